package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// What is done without a delivery: from any process, by a person, a webhook, a cron script.

// outside decides on a conversation that no handle of the caller holds.
func outside[V any](ctx context.Context, l *Ledger, conversation, verb string, keys []string, transition func(fence.Identity, fence.View) (V, fence.Change)) (V, fence.Millis, error) {
	c := l.open(conversation)
	defer l.close(c)
	t := task{l: l, c: c, verb: verb, want: Query{Keys: keys}}
	return decide(ctx, t, func(v fence.View) (V, fence.Change) { return transition(t.identity(v), v) })
}

func effectAnd(effect string, inbound []string) []string {
	keys := []string{fence.EffectRow(effect)}
	for _, id := range inbound {
		keys = append(keys, fence.InboundRow(id))
	}
	return keys
}

// Claim decides rule S5 for a write without a job.
func (l *Ledger) Claim(ctx context.Context, conversation string, q fence.ClaimRequest) (fence.ClaimVerdict, fence.Millis, error) {
	keys := effectAnd(q.Effect, q.Answers)
	return outside(ctx, l, conversation, "claim", keys, func(id fence.Identity, v fence.View) (fence.ClaimVerdict, fence.Change) {
		q.Identity, q.Claim = id, l.claimID(v, keys[0], &q)
		return l.Rules.Claim(v, q)
	})
}

// Settle records the outcome of a claim, also one of another process.
func (l *Ledger) Settle(ctx context.Context, conversation string, q fence.SettleRequest) (fence.SettleVerdict, fence.Millis, error) {
	return outside(ctx, l, conversation, "settle", effectAnd(q.Effect, answersOf(q)), func(id fence.Identity, v fence.View) (fence.SettleVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Settle(v, q)
	})
}

// Stamp takes a ledger stamp.
func (l *Ledger) Stamp(ctx context.Context, conversation string) (int64, error) {
	n, _, err := outside(ctx, l, conversation, "stamp", nil, func(id fence.Identity, v fence.View) (int64, fence.Change) {
		return l.Rules.Stamp(v, id)
	})
	return n, err
}

// Report records an outside write.
func (l *Ledger) Report(ctx context.Context, conversation string, q fence.ReportRequest) (fence.ReportVerdict, error) {
	keys := []string{fence.ReportRow(q.ID)}
	if q.Reference != "" {
		keys = append(keys, fence.ReferenceRow(q.Reference))
	}
	if q.Effect != "" {
		keys = append(keys, fence.EffectRow(q.Effect))
	}
	for _, id := range q.Answers {
		keys = append(keys, fence.InboundRow(id))
	}
	v, _, err := outside(ctx, l, conversation, "report", keys, func(id fence.Identity, v fence.View) (fence.ReportVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Report(v, q)
	})
	return v, err
}

// Dismiss closes inbound messages without an answer.
func (l *Ledger) Dismiss(ctx context.Context, conversation string, ids []string, why string) (fence.DismissVerdict, error) {
	c := l.open(conversation)
	defer l.close(c)
	t := task{l: l, c: c, verb: "dismiss"}
	for _, id := range ids {
		t.want.Keys = append(t.want.Keys, fence.InboundRow(id))
	}
	return dismiss(ctx, t, ids, why)
}

func dismiss(ctx context.Context, t task, ids []string, why string) (fence.DismissVerdict, error) {
	v, _, err := decide(ctx, t, func(v fence.View) (fence.DismissVerdict, fence.Change) {
		q := fence.DismissRequest{Identity: t.identity(v), IDs: ids, Why: why}
		if t.h != nil {
			q.Delivery = t.h.known()
		}
		return t.l.Rules.Dismiss(v, q)
	})
	return v, err
}

// Resolve takes a person's or a probe's verdict on an unknown outcome.
func (l *Ledger) Resolve(ctx context.Context, conversation string, q fence.ResolveRequest) (fence.ResolveVerdict, fence.Millis, error) {
	return outside(ctx, l, conversation, "resolve", effectAnd(q.Effect, nil), func(id fence.Identity, v fence.View) (fence.ResolveVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Resolve(v, q)
	})
}

// FindRun returns the conversation that a run lives on; found is false when the ledger does
// not know it, and the conversation "" when it was cancelled before it began.
func (l *Ledger) FindRun(ctx context.Context, run fence.RunKey) (conversation string, found bool, err error) {
	home, err := l.findRun(ctx, run)
	if err != nil {
		return "", false, fmt.Errorf("ledger: find run: %w", err)
	}
	if home.Conversation == "" {
		return "", home.Found, nil
	}
	return l.nameOf(home.Conversation), true, nil
}

func (l *Ledger) findRun(ctx context.Context, run fence.RunKey) (home Home, err error) {
	failed := 0
	err = l.try(ctx, &failed, func() (err error) {
		home, err = l.store.FindRun(ctx, l.runKey(run))
		return err
	})
	return home, err
}

// Cancel cancels a run, also one that has not begun (rules S4.4, S10.3). It asks the directory
// first and buries only a run that the directory does not know, so that a Begin that comes
// between the two meets the tombstone, or is met by the cancel.
func (l *Ledger) Cancel(ctx context.Context, q fence.CancelRequest) (fence.CancelVerdict, error) {
	for range 3 {
		home, err := l.findRun(ctx, q.Run)
		if err != nil {
			return fence.CancelVerdict{}, fmt.Errorf("ledger: cancel: %w", err)
		}
		if home.Conversation != "" {
			v, gone, err := l.cancelOn(ctx, home, q)
			if err != nil || !gone {
				return v, err
			}
			continue
		}
		if home.Found {
			return fence.CancelVerdict{Cancelled: true}, nil // buried before
		}
		buried, err := l.bury(ctx, q)
		if err != nil {
			return fence.CancelVerdict{}, fmt.Errorf("ledger: cancel: %w", err)
		}
		if buried {
			l.Emit(ctx, "", []fence.Event{{Kind: fence.EventCancelled, Run: q.Run, Text: q.By}})
			return fence.CancelVerdict{Cancelled: true}, nil
		}
	}
	return fence.CancelVerdict{}, fmt.Errorf("ledger: cancel: %w: run %s keeps moving", ErrContended, q.Run)
}

// cancelOn cancels a run on the conversation where the directory has it. gone says that it
// is not there any more, so that the cancel of an old record does not pass for one of the run.
func (l *Ledger) cancelOn(ctx context.Context, home Home, q fence.CancelRequest) (v fence.CancelVerdict, gone bool, err error) {
	c := l.open(l.nameOf(home.Conversation))
	defer l.close(c)
	t := task{l: l, c: c, verb: "cancel", want: Query{Keys: []string{fence.RunRow(q.Run)}, Run: l.runKey(q.Run)}}
	v, _, err = decide(ctx, t, func(v fence.View) (fence.CancelVerdict, fence.Change) {
		if gone = v.Home.Where != c.key; gone {
			return fence.CancelVerdict{}, fence.Change{}
		}
		q.Identity = t.identity(v)
		return l.Rules.Cancel(v, q)
	})
	return v, gone, err
}

func (l *Ledger) bury(ctx context.Context, q fence.CancelRequest) (buried bool, err error) {
	now, ok := l.clock()
	if !ok {
		if now, err = l.now(ctx); err != nil {
			return false, err
		}
	}
	doc, err := encode(fence.Tombstone{At: now, By: q.By, Why: q.Why})
	if err != nil {
		return false, err
	}
	failed := 0
	err = l.try(ctx, &failed, func() (err error) {
		buried, err = l.store.Bury(ctx, l.runKey(q.Run), doc, now+l.Rules.Retention)
		return err
	})
	return buried, err
}

// Renew extends leases, all with one statement. It is not repeated when it fails: the next
// beat is.
func (l *Ledger) Renew(ctx context.Context, leases []LeaseKey, d time.Duration) ([]Renewed, error) {
	renewed, err := l.store.Renew(ctx, leases, d)
	if err != nil {
		return nil, fmt.Errorf("ledger: renew: %w", err)
	}
	if len(renewed) != len(leases) {
		return nil, fmt.Errorf("ledger: renew: the store answered %d of %d questions", len(renewed), len(leases))
	}
	l.note(leases, renewed, d)
	return renewed, nil
}

// note keeps the copies' leases and the estimate of the store's clock fresh, so that a claim
// after a long thought need not ask.
func (l *Ledger) note(leases []LeaseKey, renewed []Renewed, d time.Duration) {
	at := l.Seam.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range renewed {
		if !r.Found {
			continue
		}
		l.heardNow, l.heardAt = r.Until-fence.MillisOf(d), at
		c := l.convs[l.nameOf(leases[i].Conversation)]
		if c == nil {
			continue
		}
		if c.renewed == nil {
			c.renewed = map[fence.LeaseID]fence.Millis{}
		}
		c.renewed[fence.LeaseID{Run: leases[i].Run, Nonce: leases[i].Nonce}] = r.Until
	}
}

// Close closes the store.
func (l *Ledger) Close() error { return l.store.Close() }

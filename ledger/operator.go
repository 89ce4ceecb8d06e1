package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// What is done without a delivery: from any process, by a person, a webhook, a cron script.

func outside[V any](ctx context.Context, l *Ledger, conversation string, want Query, guess bool, transition func(fence.Identity, fence.View) (V, fence.Change)) (V, fence.Millis, error) {
	c := l.open(conversation)
	defer l.close(c)
	id := l.identity(c)
	return decide(ctx, l, c, want, guess, func(v fence.View) (V, fence.Change) { return transition(id, v) })
}

// Claim decides rule S5 for a write without a job.
func (l *Ledger) Claim(ctx context.Context, conversation string, q fence.ClaimRequest) (fence.ClaimVerdict, fence.Millis, error) {
	return outside(ctx, l, conversation, Query{Keys: []string{fence.EffectRow(q.Effect)}}, false, func(id fence.Identity, v fence.View) (fence.ClaimVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Claim(v, q)
	})
}

// Settle records the outcome of a claim, also one of another process.
func (l *Ledger) Settle(ctx context.Context, conversation string, q fence.SettleRequest) (fence.SettleVerdict, fence.Millis, error) {
	return outside(ctx, l, conversation, Query{Keys: []string{fence.EffectRow(q.Effect)}}, false, func(id fence.Identity, v fence.View) (fence.SettleVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Settle(v, q)
	})
}

// Stamp takes a ledger stamp.
func (l *Ledger) Stamp(ctx context.Context, conversation string) (int64, error) {
	n, _, err := outside(ctx, l, conversation, Query{}, false, func(id fence.Identity, v fence.View) (int64, fence.Change) {
		return l.Rules.Stamp(v, id)
	})
	return n, err
}

// Report records an outside write.
func (l *Ledger) Report(ctx context.Context, conversation string, q fence.ReportRequest) (fence.ReportVerdict, error) {
	v, _, err := outside(ctx, l, conversation, Query{Keys: []string{fence.ReportRow(q.ID)}}, false, func(id fence.Identity, v fence.View) (fence.ReportVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Report(v, q)
	})
	return v, err
}

// Dismiss closes inbound messages without an answer.
func (l *Ledger) Dismiss(ctx context.Context, conversation string, ids []string, why string) (fence.DismissVerdict, error) {
	c := l.open(conversation)
	defer l.close(c)
	return l.dismiss(ctx, c, nil, ids, why)
}

func (l *Ledger) dismiss(ctx context.Context, c *conversation, h *Handle, ids []string, why string) (fence.DismissVerdict, error) {
	q := fence.DismissRequest{Identity: l.identity(c), IDs: ids, Why: why}
	var want Query
	for _, id := range ids {
		want.Keys = append(want.Keys, fence.InboundRow(id))
	}
	v, _, err := decide(ctx, l, c, want, false, func(v fence.View) (fence.DismissVerdict, fence.Change) {
		if h != nil {
			q.Delivery = h.d
		}
		return l.Rules.Dismiss(v, q)
	})
	return v, err
}

// Resolve takes a person's or a probe's verdict on an unknown outcome.
func (l *Ledger) Resolve(ctx context.Context, conversation string, q fence.ResolveRequest) (fence.ResolveVerdict, fence.Millis, error) {
	return outside(ctx, l, conversation, Query{Keys: []string{fence.EffectRow(q.Effect)}}, false, func(id fence.Identity, v fence.View) (fence.ResolveVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Resolve(v, q)
	})
}

// FindRun returns the conversation that a run lives on; found is false when the ledger does
// not know it, and the conversation "" when it was cancelled before it began.
func (l *Ledger) FindRun(ctx context.Context, run fence.RunKey) (conversation string, found bool, err error) {
	home, err := l.store.FindRun(ctx, l.runKey(run))
	if err != nil {
		return "", false, fmt.Errorf("ledger: find run: %w", err)
	}
	if home.Conversation == "" {
		return "", home.Found, nil
	}
	return l.nameOf(home.Conversation), true, nil
}

// Cancel cancels a run, also one that has not begun (rules S4.4, S10.3). It asks the directory
// first and buries only a run that the directory does not know, so that a Begin that comes
// between the two meets the tombstone, or is met by the cancel.
func (l *Ledger) Cancel(ctx context.Context, q fence.CancelRequest) (fence.CancelVerdict, error) {
	for range 3 {
		where, found, err := l.FindRun(ctx, q.Run)
		if err != nil {
			return fence.CancelVerdict{}, err
		}
		if where != "" {
			v, _, err := outside(ctx, l, where, Query{Keys: []string{fence.RunRow(q.Run)}}, false, func(id fence.Identity, v fence.View) (fence.CancelVerdict, fence.Change) {
				q.Identity = id
				return l.Rules.Cancel(v, q)
			})
			return v, err
		}
		if found {
			return fence.CancelVerdict{Cancelled: true}, nil // buried before
		}
		buried, err := l.bury(ctx, q)
		if err != nil {
			return fence.CancelVerdict{}, err
		}
		if buried {
			l.Emit(ctx, "", []fence.Event{{Kind: fence.EventCancelled, Run: q.Run, Text: q.By}})
			return fence.CancelVerdict{Cancelled: true}, nil
		}
	}
	return fence.CancelVerdict{}, fmt.Errorf("ledger: cancel: %w: run %s", ErrContended, q.Run)
}

func (l *Ledger) bury(ctx context.Context, q fence.CancelRequest) (bool, error) {
	now, ok := l.clock()
	if !ok {
		// Any load tells the store's clock.
		snap, err := l.store.Load(ctx, ConversationKey(l.Namespace, ""), Query{})
		if err != nil {
			return false, fmt.Errorf("ledger: cancel: %w", err)
		}
		now = snap.Now
	}
	doc, err := json.Marshal(fence.Tombstone{At: now, By: q.By, Why: q.Why})
	if err != nil {
		return false, fmt.Errorf("ledger: cancel: %w", err)
	}
	buried, err := l.store.Bury(ctx, l.runKey(q.Run), doc, now+l.Rules.Retention)
	if err != nil {
		return false, fmt.Errorf("ledger: cancel: %w", err)
	}
	return buried, nil
}

// Renew extends leases, all with one statement.
func (l *Ledger) Renew(ctx context.Context, leases []LeaseKey, d time.Duration) ([]Renewed, error) {
	renewed, err := l.store.Renew(ctx, leases, d)
	if err != nil {
		return nil, fmt.Errorf("ledger: renew: %w", err)
	}
	return renewed, nil
}

// Close closes the store.
func (l *Ledger) Close() error { return l.store.Close() }

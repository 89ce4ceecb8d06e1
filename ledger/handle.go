package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fencedrun/fencedrun/fence"
)

// Handle is a granted delivery: what one execution of a run may do on its conversation. It
// keeps the process's copy of the conversation alive until Close.
type Handle struct {
	l    *Ledger
	c    *conversation
	keys []string // rows that nearly every decision of a run needs

	mu sync.Mutex
	d  *fence.Delivery // replaced, never changed; guarded by mu

	// judged is the tag at which the delivery was last found to hold its right to write, or
	// one that only its own changes lie behind. Guarded by c.lock.
	judged string
	// left says that the delivery gave its lease up. Guarded by c.lock.
	left bool
}

// Begin decides rule S4. The Handle is nil unless the verdict grants a delivery.
func (l *Ledger) Begin(ctx context.Context, conversation string, q fence.BeginRequest) (*Handle, fence.BeginVerdict, fence.Millis, error) {
	c := l.open(conversation)
	h := &Handle{l: l, c: c}
	v, now, err := l.begin(ctx, h, q)
	if err != nil || v.Delivery == nil {
		l.close(c)
		return nil, v, now, err
	}
	l.mu.Lock()
	if c.handles == nil {
		c.handles = make(map[*Handle]struct{}, 1)
	}
	c.handles[h] = struct{}{}
	l.mu.Unlock()
	return h, v, now, nil
}

func (l *Ledger) begin(ctx context.Context, h *Handle, q fence.BeginRequest) (fence.BeginVerdict, fence.Millis, error) {
	h.keys = runKeys(q.Run, q.Inbound)
	t := task{l: l, c: h.c, verb: "begin", want: Query{Keys: h.keys, Run: l.runKey(q.Run)}, guess: true}
	q.Identity = fence.Identity{Namespace: l.Namespace, Conversation: h.c.name, Nonce: q.Nonce}
	var now fence.Millis
	// A run that moved between the look elsewhere and the decision is looked for again.
	looked := ""
	for range 3 {
		moved := ""
		v, at, err := decide(ctx, t, func(v fence.View) (fence.BeginVerdict, fence.Change) {
			moved = ""
			if where := v.Home.Where; where != "" && where != h.c.key && where != looked {
				moved = where
				return fence.BeginVerdict{}, fence.Change{}
			}
			verdict, change := l.Rules.Begin(v, q)
			change.Learn = func() { h.begun(verdict.Delivery) }
			return verdict, change
		})
		now = at
		if err != nil || moved == "" {
			return v, now, err
		}
		run, err := l.runOn(ctx, moved, q.Run)
		if err != nil {
			return fence.BeginVerdict{}, now, err
		}
		if run == nil {
			// An entry whose run was never written: its Begin died in between.
			run = &fence.Run{Key: q.Run, State: fence.RunEnded, End: fence.EndDiscarded}
		}
		looked, q.Elsewhere = moved, run
	}
	return fence.BeginVerdict{}, now, fmt.Errorf("ledger: begin: %w: run %s keeps moving", ErrContended, q.Run)
}

func runKeys(run fence.RunKey, inbound []string) []string {
	keys := make([]string, 1, 1+len(inbound))
	keys[0] = fence.RunRow(run)
	for _, id := range inbound {
		keys = append(keys, fence.InboundRow(id))
	}
	return slices.Clip(keys)
}

// runOn reads a run's record on another conversation, given by its key in the store.
func (l *Ledger) runOn(ctx context.Context, key string, run fence.RunKey) (*fence.Run, error) {
	snap, err := l.load(ctx, key, Query{Keys: []string{fence.RunRow(run)}})
	if err != nil {
		return nil, fmt.Errorf("ledger: begin: %w", err)
	}
	recs, err := records(snap.Rows)
	if err != nil {
		return nil, fmt.Errorf("ledger: begin: %w", err)
	}
	if len(recs) == 0 {
		return nil, nil
	}
	found, _ := recs[0].(*fence.Run)
	return found, nil
}

// Close gives the handle up. It does not end or release anything in the ledger. Further calls
// do nothing.
func (h *Handle) Close() {
	h.l.mu.Lock()
	_, open := h.c.handles[h]
	delete(h.c.handles, h)
	h.l.mu.Unlock()
	if open {
		h.l.close(h.c)
	}
}

// Delivery returns what the delivery knows now.
func (h *Handle) Delivery() fence.Delivery { return *h.known() }

func (h *Handle) known() *fence.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.d
}

// begun and moved are called with the conversation's lock held, once a verdict is final. A
// decision that is made again starts from what the delivery knew before: nothing is kept of
// one that was not written, because it may have rested on a view that was no longer true.
func (h *Handle) begun(d *fence.Delivery) {
	if d != nil {
		h.learn(d)
		h.judged = h.c.tag
	}
}

func (h *Handle) moved(d *fence.Delivery, mayWrite bool) {
	if mayWrite {
		h.judged = h.c.tag
	}
	if d != nil {
		h.learn(d)
	}
}

func (h *Handle) learn(d *fence.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.d = d
}

// task is a decision that the delivery asks for. It may need these effects and messages
// beside what nearly every decision needs.
func (h *Handle) task(verb, effect string, inbound ...string) task {
	t := task{l: h.l, c: h.c, h: h, verb: verb, want: Query{Keys: h.keys}}
	if effect != "" {
		t.want.Keys = append(make([]string, 0, len(h.keys)+1+len(inbound)), h.keys...)
		t.want.Keys = append(t.want.Keys, fence.EffectRow(effect))
	}
	for _, id := range inbound {
		if key := fence.InboundRow(id); !slices.Contains(h.keys, key) {
			t.want.Keys = append(t.want.Keys, key)
		}
	}
	return t
}

// Claim decides rule S5 for the run.
func (h *Handle) Claim(ctx context.Context, q fence.ClaimRequest) (fence.ClaimVerdict, fence.Millis, error) {
	t := h.task("claim", q.Effect, q.Answers...)
	row := t.want.Keys[len(h.keys)]
	return decide(ctx, t, func(v fence.View) (fence.ClaimVerdict, fence.Change) {
		q.Identity, q.Delivery, q.Claim = t.identity(v), h.known(), h.l.claimID(v, row, &q)
		verdict, change := h.l.Rules.Claim(v, q)
		// A claim of its own that was found again says nothing about the right to write.
		granted := verdict.Call != nil && change.Durable
		change.Learn = func() { h.moved(verdict.Delivery, granted) }
		return verdict, change
	})
}

// Settle decides rule S7 for a call of this delivery.
func (h *Handle) Settle(ctx context.Context, q fence.SettleRequest) (fence.SettleVerdict, fence.Millis, error) {
	t := h.task("settle", q.Effect, answersOf(q)...)
	return decide(ctx, t, func(v fence.View) (fence.SettleVerdict, fence.Change) {
		q.Identity, q.Delivery = t.identity(v), h.known()
		verdict, change := h.l.Rules.Settle(v, q)
		change.Learn = func() { h.moved(verdict.Delivery, false) }
		return verdict, change
	})
}

// answersOf returns the messages that the settled claim answers, as far as they are known.
func answersOf(q fence.SettleRequest) []string {
	if q.Granted != nil {
		for i := range q.Granted.Calls {
			if c := &q.Granted.Calls[i]; c.Claim == q.Claim {
				return c.Answers
			}
		}
	}
	return nil
}

// CatchUp marks what the delivery reads from now on as current.
func (h *Handle) CatchUp(ctx context.Context) (fence.CatchUpVerdict, fence.Millis, error) {
	t := h.task("catch up", "")
	t.want.Open = true
	return decide(ctx, t, func(v fence.View) (fence.CatchUpVerdict, fence.Change) {
		verdict, change := h.l.Rules.CatchUp(v, fence.CatchUpRequest{Identity: t.identity(v), Delivery: h.known()})
		change.Learn = func() { h.moved(verdict.Delivery, false) }
		return verdict, change
	})
}

// End decides rule S10.1.
func (h *Handle) End(ctx context.Context, reason fence.EndReason) (fence.EndVerdict, fence.Millis, error) {
	t := h.task("end", "")
	return decide(ctx, t, func(v fence.View) (fence.EndVerdict, fence.Change) {
		return h.l.Rules.End(v, fence.EndRequest{Identity: t.identity(v), Delivery: h.known(), Reason: reason})
	})
}

// Owned asks which unresolved effects are the delivery's run's own: what of rule S10.1 is sticky
// whatever a handler returns. Messages that others have taken are not looked at.
func (h *Handle) Owned(ctx context.Context) (*fence.Refusal, fence.Millis, error) {
	t := h.task("owned", "")
	return decide(ctx, t, func(v fence.View) (*fence.Refusal, fence.Change) {
		d := h.Delivery()
		d.Inbound, d.Taken = nil, nil
		return h.l.Rules.Unfinished(v, fence.EndRequest{Identity: t.identity(v), Delivery: &d})
	})
}

// Release gives the lease up and remembers what refused the delivery (rule S10.2).
func (h *Handle) Release(ctx context.Context, parked fence.Reason) (bool, error) {
	t := h.task("release", "")
	released, _, err := decide(ctx, t, func(v fence.View) (bool, fence.Change) {
		released, change := h.l.Rules.Release(v, fence.ReleaseRequest{Identity: t.identity(v), Delivery: h.known(), Parked: parked})
		change.Learn = func() { h.left = true }
		return released, change
	})
	return released, err
}

// Beat asks what a heartbeat learns (rule S9.2).
func (h *Handle) Beat(ctx context.Context, rejoin bool) (fence.BeatVerdict, fence.Millis, error) {
	t := h.task("beat", "")
	return decide(ctx, t, func(v fence.View) (fence.BeatVerdict, fence.Change) {
		// A beat that crosses the handler's return must not take up what was given up.
		verdict, change := h.l.Rules.Beat(v, fence.BeatRequest{Identity: t.identity(v), Delivery: h.known(), Rejoin: rejoin && !h.left})
		change.Learn = func() { h.moved(nil, verdict.Refusal == nil) }
		return verdict, change
	})
}

// SaveProgress stores what the run's next delivery is to find (rule S9.1).
func (h *Handle) SaveProgress(ctx context.Context, value []byte) (*fence.Refusal, error) {
	t := h.task("save progress", "")
	ref, _, err := decide(ctx, t, func(v fence.View) (*fence.Refusal, fence.Change) {
		ref, change := h.l.Rules.SaveProgress(v, fence.ProgressRequest{Identity: t.identity(v), Delivery: h.known(), Value: value})
		change.Learn = func() { h.moved(nil, ref == nil) }
		return ref, change
	})
	return ref, err
}

// Dismiss closes inbound messages without an answer, with the run's right to write.
func (h *Handle) Dismiss(ctx context.Context, ids []string, why string) (fence.DismissVerdict, error) {
	return dismiss(ctx, h.task("dismiss", "", ids...), ids, why)
}

// Lease returns the key of the delivery's lease.
func (h *Handle) Lease() LeaseKey {
	d := h.Delivery()
	return LeaseKey{Conversation: h.c.key, Run: fence.RunRow(d.Run), Nonce: d.ID.Nonce}
}

// Moved reports whether the conversation, whose tag is tag now, has changed since the delivery
// was last found to hold its right to write, by anybody but the delivery itself: then it is
// time for a Beat.
func (h *Handle) Moved(ctx context.Context, tag string) bool {
	if h.c.lock.Lock(ctx) != nil {
		return true
	}
	defer h.c.lock.Unlock()
	return h.judged != tag
}

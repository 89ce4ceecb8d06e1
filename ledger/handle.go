package ledger

import (
	"context"
	"fmt"
	"sync"

	"github.com/fencedrun/fencedrun/fence"
)

// Handle is a granted delivery: what one execution of a run may do on its conversation. It
// keeps the process's copy of the conversation alive until Close.
type Handle struct {
	l *Ledger
	c *conversation

	mu sync.Mutex
	d  *fence.Delivery // replaced, never changed; written under c.lock and mu
}

// Begin decides rule S4. The Handle is nil unless the verdict grants a delivery.
func (l *Ledger) Begin(ctx context.Context, conversation string, q fence.BeginRequest) (*Handle, fence.BeginVerdict, fence.Millis, error) {
	c := l.open(conversation)
	v, now, err := l.begin(ctx, c, q)
	if err != nil || v.Delivery == nil {
		l.close(c)
		return nil, v, now, err
	}
	return &Handle{l: l, c: c, d: v.Delivery}, v, now, nil
}

func (l *Ledger) begin(ctx context.Context, c *conversation, q fence.BeginRequest) (fence.BeginVerdict, fence.Millis, error) {
	want := Query{Keys: []string{fence.RunRow(q.Run)}, Run: l.runKey(q.Run)}
	for _, id := range q.Inbound {
		want.Keys = append(want.Keys, fence.InboundRow(id))
	}
	// A run that moved between the look elsewhere and the decision is looked for again.
	for range 3 {
		q.Identity = withNonce(l.identity(c), q.Nonce)
		moved := ""
		v, now, err := decide(ctx, l, c, want, true, func(v fence.View) (fence.BeginVerdict, fence.Change) {
			moved = ""
			if v.Home.Known && v.Home.Found && v.Home.Where != "" && v.Home.Where != c.key && q.Elsewhere == nil {
				moved = v.Home.Where
				return fence.BeginVerdict{}, fence.Change{}
			}
			return l.Rules.Begin(v, q)
		})
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
		q.Elsewhere = run
	}
	return fence.BeginVerdict{}, 0, fmt.Errorf("ledger: begin: %w: run %s keeps moving", ErrContended, q.Run)
}

func withNonce(id fence.Identity, nonce string) fence.Identity {
	id.Nonce = nonce
	return id
}

// runOn reads a run's record on another conversation, given by its key in the store.
func (l *Ledger) runOn(ctx context.Context, key string, run fence.RunKey) (*fence.Run, error) {
	snap, err := l.store.Load(ctx, key, Query{Keys: []string{fence.RunRow(run)}})
	if err != nil {
		return nil, fmt.Errorf("ledger: find run: %w", err)
	}
	for _, row := range snap.Rows {
		rec, err := row.record()
		if err != nil {
			return nil, err
		}
		found, _ := rec.(*fence.Run)
		return found, nil
	}
	return nil, nil
}

// Close gives the handle up. It does not end or release anything in the ledger.
func (h *Handle) Close() { h.l.close(h.c) }

// Delivery returns what the delivery knows now.
func (h *Handle) Delivery() fence.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.d
}

func (h *Handle) move(d *fence.Delivery) {
	if d == nil {
		return
	}
	h.mu.Lock()
	h.d = d
	h.mu.Unlock()
}

// want is what nearly every decision of a run needs.
func (h *Handle) want() Query {
	d := h.Delivery()
	q := Query{Keys: []string{fence.RunRow(d.Run)}}
	for _, id := range d.Inbound {
		q.Keys = append(q.Keys, fence.InboundRow(id))
	}
	return q
}

// Claim decides rule S5 for the run.
func (h *Handle) Claim(ctx context.Context, q fence.ClaimRequest) (fence.ClaimVerdict, fence.Millis, error) {
	q.Identity = h.l.identity(h.c)
	return decide(ctx, h.l, h.c, h.want(), false, func(v fence.View) (fence.ClaimVerdict, fence.Change) {
		q.Delivery = h.d
		verdict, change := h.l.Rules.Claim(v, q)
		return moving(h, verdict, change, verdict.Delivery)
	})
}

// moving lets the delivery learn from a verdict, once it is final. A decision that is made
// again starts from what the delivery knew before: nothing is kept of one that was not
// written, because it may have rested on a view that was no longer true.
func moving[V any](h *Handle, v V, c fence.Change, d *fence.Delivery) (V, fence.Change) {
	c.Learn = func() { h.move(d) }
	return v, c
}

// Settle decides rule S7 for a call of this delivery.
func (h *Handle) Settle(ctx context.Context, q fence.SettleRequest) (fence.SettleVerdict, fence.Millis, error) {
	q.Identity = h.l.identity(h.c)
	return decide(ctx, h.l, h.c, Query{Keys: []string{fence.EffectRow(q.Effect)}}, false, func(v fence.View) (fence.SettleVerdict, fence.Change) {
		q.Delivery = h.d
		verdict, change := h.l.Rules.Settle(v, q)
		return moving(h, verdict, change, verdict.Delivery)
	})
}

// CatchUp marks what the delivery reads from now on as current.
func (h *Handle) CatchUp(ctx context.Context) (fence.CatchUpVerdict, fence.Millis, error) {
	q := fence.CatchUpRequest{Identity: h.l.identity(h.c)}
	want := h.want()
	want.Open = true
	return decide(ctx, h.l, h.c, want, false, func(v fence.View) (fence.CatchUpVerdict, fence.Change) {
		q.Delivery = h.d
		verdict, change := h.l.Rules.CatchUp(v, q)
		return moving(h, verdict, change, verdict.Delivery)
	})
}

// End decides rule S10.1.
func (h *Handle) End(ctx context.Context, reason fence.EndReason) (fence.EndVerdict, fence.Millis, error) {
	q := fence.EndRequest{Identity: h.l.identity(h.c), Reason: reason}
	return decide(ctx, h.l, h.c, h.want(), false, func(v fence.View) (fence.EndVerdict, fence.Change) {
		q.Delivery = h.d
		return h.l.Rules.End(v, q)
	})
}

// Release gives the lease up and remembers what refused the delivery (rule S10.2).
func (h *Handle) Release(ctx context.Context, parked fence.Reason) (bool, error) {
	q := fence.ReleaseRequest{Identity: h.l.identity(h.c), Parked: parked}
	released, _, err := decide(ctx, h.l, h.c, h.want(), false, func(v fence.View) (bool, fence.Change) {
		q.Delivery = h.d
		return h.l.Rules.Release(v, q)
	})
	return released, err
}

// Beat asks what a heartbeat learns (rule S9.2).
func (h *Handle) Beat(ctx context.Context, rejoin bool) (fence.BeatVerdict, fence.Millis, error) {
	q := fence.BeatRequest{Identity: h.l.identity(h.c), Rejoin: rejoin}
	return decide(ctx, h.l, h.c, h.want(), false, func(v fence.View) (fence.BeatVerdict, fence.Change) {
		q.Delivery = h.d
		return h.l.Rules.Beat(v, q)
	})
}

// SaveProgress stores what the run's next delivery is to find (rule S9.1).
func (h *Handle) SaveProgress(ctx context.Context, value []byte) (*fence.Refusal, error) {
	q := fence.ProgressRequest{Identity: h.l.identity(h.c), Value: value}
	ref, _, err := decide(ctx, h.l, h.c, h.want(), false, func(v fence.View) (*fence.Refusal, fence.Change) {
		q.Delivery = h.d
		return h.l.Rules.SaveProgress(v, q)
	})
	return ref, err
}

// Dismiss closes inbound messages without an answer, with the run's right to write.
func (h *Handle) Dismiss(ctx context.Context, ids []string, why string) (fence.DismissVerdict, error) {
	return h.l.dismiss(ctx, h.c, h, ids, why)
}

// Lease returns the key of the delivery's lease.
func (h *Handle) Lease() LeaseKey {
	d := h.Delivery()
	return LeaseKey{Conversation: h.c.key, Run: fence.RunRow(d.Run), Nonce: d.ID.Nonce}
}

// Moved reports whether tag is not the one that the process last saw of the conversation.
func (h *Handle) Moved(ctx context.Context, tag string) bool {
	if h.c.lock.Lock(ctx) != nil {
		return true
	}
	defer h.c.lock.Unlock()
	return !h.c.have || h.c.tag != tag
}

// Unfinished asks what would refuse an End with success (rule S10.1).
func (h *Handle) Unfinished(ctx context.Context) (*fence.Refusal, fence.Millis, error) {
	q := fence.EndRequest{Identity: h.l.identity(h.c), Reason: fence.EndSuccess}
	return decide(ctx, h.l, h.c, h.want(), false, func(v fence.View) (*fence.Refusal, fence.Change) {
		q.Delivery = h.d
		return h.l.Rules.Unfinished(v, q)
	})
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// ErrNoJoin is returned when the store cannot write in the caller's transaction, and never will: a
// mistake in the program, not an outage.
var ErrNoJoin = errors.New("the ledger cannot write in this transaction")

// Joined decides on one conversation inside a transaction of the caller's (promise S11.6). The
// conversation stays locked until the transaction ends. What it decides may still be rolled back:
// no copy of this process learns it, nobody is told of it, and a delivery keeps what it knew.
//
// It is for one effect, used by one goroutine. Nothing is written before Flush.
type Joined struct {
	l     *Ledger
	c     *conversation // as the transaction sees it, for nobody else
	batch *batch
}

// Join locks the conversation inside tx.
func (l *Ledger) Join(ctx context.Context, tx any, conv string) (*Joined, error) {
	joiner, ok := l.store.(Joiner)
	if !ok {
		return nil, fmt.Errorf("%w: %T does not offer it; pgledger and sqliteledger do", ErrNoJoin, l.store)
	}
	key := ConversationKey(l.Namespace, conv)
	inner, err := joiner.Join(ctx, tx, key)
	if errors.Is(err, ErrNoJoin) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: join: %w", err)
	}
	c := &conversation{name: conv, key: key, lock: l.Seam.NewLock()}
	return &Joined{l: l, c: c, batch: &batch{inner: inner}}, nil
}

// Claim is [Handle.Claim] of h, or [Ledger.Claim] when h is nil.
func (j *Joined) Claim(ctx context.Context, h *Handle, q fence.ClaimRequest) (fence.ClaimVerdict, fence.Millis, error) {
	t := j.task(h, "claim", q.Effect, q.Answers)
	d := delivery(h)
	return decide(ctx, t, func(v fence.View) (fence.ClaimVerdict, fence.Change) {
		q.Identity, q.Delivery = t.identity(v), d
		verdict, change := j.l.Rules.Claim(v, q)
		// What refused it, or was done by another delivery, stands in the ledger whatever
		// becomes of this transaction. A replay of what this very delivery did may be one of
		// what this transaction holds.
		if h != nil && (verdict.Refusal != nil || verdict.Replay != nil && verdict.Replay.Delivery != d.ID) {
			change.Learn = func() { h.learnElsewhere(verdict.Delivery) }
		}
		return verdict, change
	})
}

// Look is [Ledger.Look], as the transaction sees the conversation.
func (j *Joined) Look(ctx context.Context, keys ...string) (fence.View, error) {
	t := task{l: j.l, c: j.c, verb: "look in the caller's transaction", joined: j.batch, want: Query{Keys: keys}}
	v, _, err := decide(ctx, t, func(v fence.View) (fence.View, fence.Change) {
		return j.l.Rules.Lapsed(v), fence.Change{Needs: missing(v, keys)}
	})
	return v, err
}

// Settle is [Handle.Settle] of h, or [Ledger.Settle] when h is nil.
func (j *Joined) Settle(ctx context.Context, h *Handle, q fence.SettleRequest) (fence.SettleVerdict, fence.Millis, error) {
	t := j.task(h, "settle", q.Effect, answersOf(q))
	d := delivery(h)
	return decide(ctx, t, func(v fence.View) (fence.SettleVerdict, fence.Change) {
		q.Identity, q.Delivery = t.identity(v), d
		return j.l.Rules.Settle(v, q)
	})
}

// End is [Handle.End] of h. It returns the events that are true once the transaction is committed.
func (j *Joined) End(ctx context.Context, h *Handle, reason fence.EndReason) (v fence.EndVerdict, events []fence.Event, now fence.Millis, err error) {
	t := j.task(h, "end", "", nil)
	d := delivery(h)
	v, now, err = decide(ctx, t, func(v fence.View) (fence.EndVerdict, fence.Change) {
		verdict, change := j.l.Rules.End(v, fence.EndRequest{Identity: t.identity(v), Delivery: d, Reason: reason})
		change.Learn = func() { events = change.Events }
		return verdict, change
	})
	return v, events, now, err
}

// Flush writes what was decided into the transaction.
func (j *Joined) Flush(ctx context.Context) error {
	if err := j.batch.flush(ctx, j.c.key); err != nil {
		return fmt.Errorf("ledger: join: %w", err)
	}
	return nil
}

// task is h's own task, on the conversation as the transaction has it: nothing of h follows it.
func (j *Joined) task(h *Handle, verb, effect string, inbound []string) task {
	verb += " in the caller's transaction"
	if h == nil {
		return task{l: j.l, c: j.c, verb: verb, joined: j.batch, want: Query{Keys: effectAnd(effect, inbound)}}
	}
	t := h.task(verb, effect, inbound...)
	t.c, t.h, t.joined = j.c, nil, j.batch
	return t
}

// delivery returns a copy of what h's delivery knows; nil without a job.
func delivery(h *Handle) *fence.Delivery {
	if h == nil {
		return nil
	}
	d := h.Delivery()
	return &d
}

// learnElsewhere keeps what a refusal or a replay told the delivery. The decision was not made
// under the lock of this process's copy, so another may have moved the delivery on meanwhile.
func (h *Handle) learnElsewhere(d *fence.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	moved := *h.d
	for _, claim := range d.Waits {
		if !slices.Contains(moved.Waits, claim) {
			moved.Waits = append(slices.Clip(moved.Waits), claim)
		}
	}
	moved.Replayed = slices.Concat(moved.Replayed, d.Replayed)
	slices.Sort(moved.Replayed)
	moved.Replayed = slices.Compact(moved.Replayed)
	moved.Refused, moved.Twice = d.Refused, moved.Twice || d.Twice
	h.d = &moved
}

// batch holds the writes of a Joined back, so that the claim and the settle of an effect in one
// transaction are one statement. In between nobody could see the difference.
type batch struct {
	inner Tx
	now   fence.Millis
	held  *Write
}

func (b *batch) Load(ctx context.Context, conv string, q Query) (Snapshot, error) {
	if err := b.flush(ctx, conv); err != nil {
		return Snapshot{}, err
	}
	snap, err := b.inner.Load(ctx, conv, q)
	b.now = snap.Now
	return snap, err
}

func (b *batch) Apply(_ context.Context, _ string, w Write) (Result, error) {
	if b.held != nil {
		w = b.held.then(w)
	}
	b.held = &w
	return Result{Applied: true, Now: b.now}, nil
}

func (b *batch) flush(ctx context.Context, conv string) error {
	if b.held == nil {
		return nil
	}
	w := *b.held
	b.held = nil
	result, err := b.inner.Apply(ctx, conv, w)
	if err == nil && !result.Applied {
		err = fmt.Errorf("%w: it changed under its lock", ErrContended)
	}
	return err
}

// then returns the one write that does what w and next, decided on w's outcome, do.
func (w *Write) then(next Write) Write {
	both := next
	both.Tag, both.Want = w.Tag, w.Want
	both.Durable = w.Durable || next.Durable
	both.Leases = slices.Concat(w.Leases, next.Leases)
	both.Forget = slices.Concat(w.Forget, next.Forget)
	if w.Home != nil {
		both.Home = w.Home
	}
	writes := func(key string) bool {
		return slices.ContainsFunc(next.Put, func(r Row) bool { return r.Key == key }) || slices.Contains(next.Delete, key)
	}
	both.Put = slices.Concat(slices.DeleteFunc(slices.Clone(w.Put), func(r Row) bool { return writes(r.Key) }), next.Put)
	both.Delete = slices.Concat(slices.DeleteFunc(slices.Clone(w.Delete), writes), next.Delete)
	// What w wrote is there for next, but not yet for the store.
	both.Absent = slices.Concat(w.Absent, slices.DeleteFunc(slices.Clone(next.Absent), func(key string) bool {
		return slices.ContainsFunc(w.Put, func(r Row) bool { return r.Key == key }) || slices.Contains(w.Delete, key)
	}))
	return both
}

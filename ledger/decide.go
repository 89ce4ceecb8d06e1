package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// ErrContended is returned when a conversation changed under every one of many tries.
var ErrContended = errors.New("the conversation is contended")

const (
	maxTries = 200 // decisions per operation; each loss means that somebody else succeeded
	maxRows  = 64  // rows that the process's copy of a conversation remembers
	// firstPause is how long an operation waits before it asks a store again that failed.
	firstPause = 10 * time.Millisecond
)

// task says what is to be decided.
type task struct {
	l    *Ledger
	c    *conversation
	h    *Handle // whose delivery asks; nil: nobody's
	verb string  // for errors
	want Query   // what the decision is known to need
	// guess allows a conversation that this process does not know to be taken for a new one.
	guess bool
	// joined is set for a decision inside a transaction of the caller's.
	joined *batch
}

// identity names the conversation, with a fresh nonce where its record must be created.
func (t *task) identity(v fence.View) fence.Identity {
	id := fence.Identity{Namespace: t.l.Namespace, Conversation: t.c.name}
	if v.Head == nil {
		id.Nonce = t.l.Seam.NewID()
	}
	return id
}

// operation is one load-decide-write on a conversation whose lock is held.
type operation struct {
	task
	fresh   bool // the view was read by this operation
	guessed bool // the view is a guess
	failed  int  // store calls that failed so far
	now     fence.Millis
	wrote   bool
	base    string // the tag that the change replaced
	events  []fence.Event
	learn   func()
	tx      Tx // set while the store's own lock is held
}

// decide runs one transition on a conversation: it queues for it, decides on what the process
// knows, writes by compare-and-swap, and starts again from what the store says when the
// conversation was not what it was thought to be.
//
// The transition is called several times; it must depend on its view alone.
func decide[V any](ctx context.Context, t task, transition func(fence.View) (V, fence.Change)) (V, fence.Millis, error) {
	var none V
	if err := t.c.lock.Lock(ctx); err != nil {
		return none, 0, fmt.Errorf("ledger: %s: %w", t.verb, err)
	}
	op := &operation{task: t}
	if t.joined != nil {
		op.tx = t.joined
	}
	v, err := inTurn(ctx, op, transition)
	if err != nil {
		return none, op.now, fmt.Errorf("ledger: %s: %w", t.verb, err)
	}
	if len(op.events) > 0 && (t.joined == nil || !op.wrote) {
		t.l.Emit(ctx, t.c.name, op.events)
	}
	return v, op.now, nil
}

func inTurn[V any](ctx context.Context, op *operation, transition func(fence.View) (V, fence.Change)) (V, error) {
	defer op.c.lock.Unlock()
	v, err := run(ctx, op, transition)
	if err == nil {
		op.learned()
	}
	op.trim()
	return v, err
}

func run[V any](ctx context.Context, op *operation, transition func(fence.View) (V, fence.Change)) (V, error) {
	var none V
	var locker Locker // what to use after a loss, if the store offers it
	for range maxTries {
		if locker != nil && !op.c.have {
			return locked(ctx, op, locker, transition)
		}
		view, err := op.look(ctx)
		if err != nil {
			return none, err
		}
		v, change := transition(view)
		switch {
		case !change.Needs.Empty():
			if !op.ask(change.Needs) {
				return none, fmt.Errorf("the rules ask for what they have: %+v", change.Needs)
			}
		case !change.Writes():
			if op.fresh && len(change.Absent) == 0 {
				op.final(change)
				return v, nil
			}
			// A verdict that writes nothing must not rest on memory or on guesses.
			op.ask(fence.Needs{Keys: change.Absent})
			op.forget()
		case op.joined != nil && op.ask(fence.Needs{Keys: change.Absent}):
			// What is written there is written last: nothing may be left for it to find out.
		case locker != nil:
			return locked(ctx, op, locker, transition)
		default:
			applied, contended, err := op.apply(ctx, view, change)
			if err != nil {
				return none, err
			}
			if applied {
				op.final(change)
				return v, nil
			}
			if contended && op.tx == nil {
				locker, _ = op.l.store.(Locker)
			}
		}
	}
	return none, fmt.Errorf("%w: %d tries", ErrContended, maxTries)
}

// final is called once for the decision that counts.
func (op *operation) final(change fence.Change) {
	op.events, op.learn = change.Events, change.Learn
}

// learned tells the handle what its decision was worth. A handle that was allowed to write at
// one tag still is at the next if nobody but itself made that.
func (op *operation) learned() {
	if op.wrote && op.h != nil && op.h.judged == op.base {
		op.h.judged = op.c.tag
	}
	if op.learn != nil {
		op.learn()
	}
}

// locked decides under the store's own lock, after somebody else came first.
func locked[V any](ctx context.Context, op *operation, locker Locker, transition func(fence.View) (V, fence.Change)) (V, error) {
	var v V
	err := op.try(ctx, func() error {
		err := locker.WithLock(ctx, op.c.key, func(tx Tx) (err error) {
			op.forget()
			op.tx, op.wrote = tx, false
			v, err = run(ctx, op, transition)
			return err
		})
		op.tx = nil
		if err != nil {
			op.forget() // what it followed was not written, or nobody knows
			op.wrote = false
		}
		return err
	})
	return v, err
}

// try repeats a store call that failed, a bounded number of times. Repeating is always right:
// every decision recognises its own earlier success.
func (op *operation) try(ctx context.Context, call func() error) error {
	return op.l.try(ctx, &op.failed, call)
}

func (l *Ledger) try(ctx context.Context, failed *int, call func() error) error {
	for {
		err := call()
		if err == nil || !l.again(ctx, failed, err) {
			return err
		}
	}
}

// again waits before a store call is repeated that failed with err; false means that it is not
// to be repeated: too often, ctx is done, or the answer would be the same.
func (l *Ledger) again(ctx context.Context, failed *int, err error) bool {
	if errors.Is(err, ErrContended) || errors.Is(err, ErrCorrupt) {
		return false
	}
	*failed++
	if *failed >= l.Tries || ctx.Err() != nil {
		return false
	}
	pause := firstPause << min(2*(*failed-1), 8)
	return l.Seam.Sleep(ctx, pause/2+l.Seam.Jitter(pause)) == nil
}

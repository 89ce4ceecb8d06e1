package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// ErrContended is returned when a conversation changed under every one of many tries.
var ErrContended = errors.New("ledger: the conversation is contended")

const (
	maxTries = 200 // decisions per operation; each loss means that somebody else succeeded
	maxRows  = 64  // rows that the process's copy of a conversation remembers
	// firstPause is how long an operation waits before it asks a store again that failed.
	firstPause = 10 * time.Millisecond
)

// operation is one load-decide-write on a conversation whose lock is held.
type operation struct {
	l      *Ledger
	c      *conversation
	want   Query // everything this operation has been found to need
	fresh  bool  // the view was read by this operation
	failed int   // store calls that failed so far
	now    fence.Millis
	events []fence.Event
	learn  func()
	tx     Tx // set while the store's own lock is held
}

// decide runs one transition on c: it queues for the conversation, decides on what the
// process knows, writes by compare-and-swap, and starts again from what the store says when
// the conversation was not what it was thought to be.
//
// The transition is called several times; it must depend on its view alone.
func decide[V any](ctx context.Context, l *Ledger, c *conversation, want Query, guess bool, transition func(fence.View) (V, fence.Change)) (V, fence.Millis, error) {
	var none V
	if err := c.lock.Lock(ctx); err != nil {
		return none, 0, err
	}
	op := &operation{l: l, c: c, want: want}
	v, err := run(ctx, op, guess, transition)
	if err == nil && op.learn != nil {
		op.learn()
	}
	c.trim()
	c.lock.Unlock()
	if len(op.events) > 0 {
		l.Emit(ctx, c.name, op.events)
	}
	if err != nil {
		return none, op.now, err
	}
	return v, op.now, nil
}

func run[V any](ctx context.Context, op *operation, guess bool, transition func(fence.View) (V, fence.Change)) (V, error) {
	var none V
	lost := 0
	for try := 0; try < maxTries; try++ {
		if locker, ok := op.l.store.(Locker); ok && lost > 0 && op.tx == nil {
			return locked(ctx, op, locker, transition)
		}
		view, err := op.view(ctx, guess)
		if err != nil {
			return none, err
		}
		guess = false
		v, change := transition(view)
		switch {
		case !change.Needs.Empty():
			op.ask(change.Needs)
			continue
		case !change.Writes():
			if op.fresh && len(change.Absent) == 0 {
				op.final(change)
				return v, nil
			}
			// A verdict that writes nothing must not rest on memory or on guesses.
			op.ask(fence.Needs{Keys: change.Absent})
			op.c.have, op.fresh = false, false
			continue
		}
		applied, err := op.apply(ctx, view, change)
		if err != nil {
			return none, err
		}
		if applied {
			op.final(change)
			return v, nil
		}
		op.ask(fence.Needs{Keys: change.Absent})
		lost++
	}
	return none, fmt.Errorf("%w: %d tries", ErrContended, maxTries)
}

// final is called once for the decision that counts.
func (op *operation) final(change fence.Change) {
	op.events = append(op.events, change.Events...)
	op.learn = change.Learn
}

// locked decides under the store's own lock, after a first loss.
func locked[V any](ctx context.Context, op *operation, locker Locker, transition func(fence.View) (V, fence.Change)) (V, error) {
	var v V
	err := op.try(ctx, func() error {
		events := len(op.events)
		err := locker.WithLock(ctx, op.c.key, func(tx Tx) (err error) {
			op.tx = tx
			op.c.have, op.fresh = false, false
			v, err = run(ctx, op, false, transition)
			return err
		})
		op.tx = nil
		if err != nil {
			op.events = op.events[:events]
			op.c.have = false
		}
		return err
	})
	return v, err
}

// ask adds to what the operation loads from now on; what the copy lacks is loaded next.
func (op *operation) ask(n fence.Needs) {
	for _, key := range n.Keys {
		if !slices.Contains(op.want.Keys, key) {
			op.want.Keys = append(op.want.Keys, key)
		}
	}
	if n.Tail && (!op.want.Tail || n.Since < op.want.Since) {
		op.want.Tail, op.want.Since = true, n.Since
	}
	op.want.Open = op.want.Open || n.Open
	if !n.Empty() && !op.covers() {
		op.c.have = false
	}
}

// covers reports whether the copy holds everything that the operation wants.
func (op *operation) covers() bool {
	v := &op.c.view
	if op.want.Tail && (!v.Tailed || v.Since > op.want.Since) || op.want.Open && !v.Opened || op.want.Run != "" && !v.Home.Known {
		return false
	}
	for _, key := range op.want.Keys {
		if _, ok := v.Rows[key]; !ok {
			return false
		}
	}
	return true
}

// view returns what to decide on: the copy, moved on to the present by the time that passed,
// or what the store says.
func (op *operation) view(ctx context.Context, guess bool) (fence.View, error) {
	c := op.c
	if !c.have && guess {
		// Most conversations that a process does not know are new ones: decide as if it
		// were, and let the store object.
		if now, ok := op.l.clock(); ok {
			c.tag, c.view, c.at, c.have = "", fence.View{Now: now, Home: fence.Home{Known: true}}, op.l.Seam.Now(), true
		}
	}
	if c.have && !op.fresh && op.seatsLapsed() {
		c.have = false
	}
	if !c.have {
		snap, err := op.load(ctx)
		if err != nil {
			return fence.View{}, err
		}
		if err := op.adopt(snap); err != nil {
			return fence.View{}, err
		}
	}
	v := c.view
	v.Now = op.estimate()
	op.now = v.Now
	return v, nil
}

// estimate is the ledger's clock: its last answer plus what has passed here since that was
// heard. It lags behind by what the answer took, and is ahead by no more than the drift of
// this process's clock.
func (op *operation) estimate() fence.Millis {
	return since(op.c.view.Now, op.c.at, op.l.Seam.Now())
}

func since(heard fence.Millis, at, now time.Time) fence.Millis {
	return heard + fence.Millis(max(now.Sub(at), 0)/time.Millisecond)
}

// seatsLapsed reports whether a lease has run out as far as this process remembers. It may
// have been renewed since, which changes no tag: ask.
func (op *operation) seatsLapsed() bool {
	v := &op.c.view
	if v.Head == nil {
		return false
	}
	now := op.estimate()
	for _, seat := range v.Head.Seats {
		if v.Leases[fence.LeaseID{Run: fence.RunRow(seat.Run), Nonce: seat.Delivery.Nonce}] <= now {
			return true
		}
	}
	return false
}

func (op *operation) load(ctx context.Context) (snap Snapshot, err error) {
	if op.tx != nil {
		return op.tx.Load(ctx, op.c.key, op.want)
	}
	err = op.try(ctx, func() (err error) {
		snap, err = op.l.store.Load(ctx, op.c.key, op.want)
		return err
	})
	return snap, err
}

// try repeats a store call that failed, a bounded number of times. Repeating is always right:
// every decision recognises its own earlier success.
func (op *operation) try(ctx context.Context, call func() error) error {
	pause := firstPause
	for {
		err := call()
		if err == nil || errors.Is(err, ErrContended) {
			return err
		}
		op.failed++
		if op.failed >= op.l.Tries || ctx.Err() != nil {
			return err
		}
		if cause := op.l.Seam.Sleep(ctx, pause/2+op.l.Seam.Jitter(pause)); cause != nil {
			return err
		}
		pause *= 4
	}
}

// adopt makes a snapshot the process's copy.
func (op *operation) adopt(snap Snapshot) error {
	v := fence.View{Now: snap.Now, Rows: make(map[string]fence.Record, len(op.want.Keys)), Leases: make(map[fence.LeaseID]fence.Millis, len(snap.Leases))}
	if snap.Tag != "" {
		rec, err := snap.Head.record()
		if err != nil {
			return err
		}
		v.Head, _ = rec.(*fence.Head)
	}
	for _, key := range op.want.Keys {
		v.Rows[key] = nil
	}
	for _, row := range snap.Rows {
		rec, err := row.record()
		if err != nil {
			return err
		}
		v.Rows[row.Key] = rec
	}
	for _, lease := range snap.Leases {
		v.Leases[fence.LeaseID{Run: lease.Run, Nonce: lease.Nonce}] = lease.Until
	}
	if op.want.Run != "" {
		home, err := homeOf(snap.Home)
		if err != nil {
			return err
		}
		v.Home = home
	}
	if op.want.Tail {
		v.Tailed, v.Since = true, op.want.Since
		for _, row := range snap.Tail {
			rec, err := row.record()
			if err != nil {
				return err
			}
			v.Tail = append(v.Tail, rec)
		}
	}
	if op.want.Open {
		v.Opened, v.OpenCount = true, snap.OpenCount
		for _, row := range snap.Open {
			rec, err := row.record()
			if err != nil {
				return err
			}
			if in, ok := rec.(*fence.Inbound); ok {
				v.Open = append(v.Open, in)
				v.Rows[row.Key] = in
			}
		}
	}
	op.c.tag, op.c.view, op.c.have, op.fresh = snap.Tag, v, true, true
	op.heard(snap.Now)
	return nil
}

// apply writes a change and keeps the process's copy in step with it.
func (op *operation) apply(ctx context.Context, view fence.View, change fence.Change) (bool, error) {
	c := op.c
	w := op.write(change)
	result, err := op.send(ctx, w)
	if err != nil {
		c.have, op.fresh = false, false
		op.failed++
		if op.tx != nil || op.failed >= op.l.Tries || ctx.Err() != nil {
			return false, err
		}
		// Applied or not, the next decision will know it by its claim id or nonce.
		if cause := op.l.Seam.Sleep(ctx, firstPause+op.l.Seam.Jitter(firstPause)); cause != nil {
			return false, err
		}
		return false, nil
	}
	if !result.Applied {
		c.have, op.fresh = false, false
		if result.Current != nil {
			return false, op.adopt(*result.Current)
		}
		return false, nil
	}
	op.now = result.Now
	op.follow(view, change, w, result.Now)
	return true, nil
}

func (op *operation) send(ctx context.Context, w Write) (Result, error) {
	if op.tx != nil {
		return op.tx.Apply(ctx, op.c.key, w)
	}
	return op.l.store.Apply(ctx, op.c.key, w)
}

// write translates a change into rows.
func (op *operation) write(change fence.Change) Write {
	w := Write{
		Tag: op.c.tag, NewTag: op.newTag(), Head: rowOf(change.Head),
		Delete: change.Delete, Absent: change.Absent, Durable: change.Durable, Want: op.want,
	}
	w.Want.Keys = append(slices.Clip(w.Want.Keys), change.Absent...)
	if len(change.Rows) > 0 {
		w.Put = make([]Row, len(change.Rows))
		for i, rec := range change.Rows {
			w.Put[i] = rowOf(rec)
		}
	}
	for _, lease := range change.Lease {
		w.Leases = append(w.Leases, LeaseWrite{Run: lease.ID.Run, Nonce: lease.ID.Nonce, For: lease.For.Duration()})
	}
	if change.Home != nil {
		w.Home = &HomeWrite{Run: op.l.runKey(change.Home.Run), Was: op.was()}
	}
	for _, run := range change.Forget {
		w.Forget = append(w.Forget, op.l.runKey(run))
	}
	return w
}

// newTag draws the tag of the next state. It must not be foreseeable from the present one: a
// crash that loses an acknowledged change would hand a counter's value out again (rule S3.2).
func (op *operation) newTag() string {
	if op.l.Seam.Off.Has(sabotage.CounterTags) {
		var n int
		_, _ = fmt.Sscanf(op.c.tag, "n%d", &n)
		return fmt.Sprintf("n%d", n+1)
	}
	return op.l.Seam.NewID()
}

// follow moves the process's copy to the state that was written.
func (op *operation) follow(view fence.View, change fence.Change, w Write, now fence.Millis) {
	c := op.c
	v := view
	v.Now, v.Head = now, change.Head
	v.Tailed, v.Tail, v.Opened, v.Open = false, nil, false, nil
	if v.Rows == nil {
		v.Rows = make(map[string]fence.Record, len(change.Rows))
	}
	if v.Leases == nil {
		v.Leases = make(map[fence.LeaseID]fence.Millis, 1)
	}
	for _, key := range change.Absent {
		v.Rows[key] = nil
	}
	for _, rec := range change.Rows {
		v.Rows[rec.RowKey()] = rec
	}
	for _, key := range change.Delete {
		v.Rows[key] = nil
	}
	for _, lease := range change.Lease {
		if lease.For == 0 {
			delete(v.Leases, lease.ID)
		} else {
			v.Leases[lease.ID] = now + lease.For
		}
	}
	v.Home = fence.Home{}
	c.tag, c.view, c.have = w.NewTag, v, true
	op.heard(now)
}

// heard notes what the ledger's clock said just now.
func (op *operation) heard(now fence.Millis) {
	at := op.l.Seam.Now()
	op.c.at = at
	op.l.mu.Lock()
	op.l.heardNow, op.l.heardAt = now, at
	op.l.mu.Unlock()
}

// trim keeps the copy of a long conversation small; what is forgotten is loaded when needed.
func (c *conversation) trim() {
	if len(c.view.Rows) > maxRows {
		c.have = false
	}
	c.view.Home = fence.Home{}
	c.view.Tailed, c.view.Tail, c.view.Opened, c.view.Open = false, nil, false, nil
}

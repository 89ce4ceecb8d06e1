package sim

import (
	"context"
	"fmt"
	"math"
)

type status uint8

const (
	ready    status = iota
	sleeping        // until wake, or until ctx is done
	blocked         // until what it waits for happens, or ctx is done
	finished
)

const never = math.MaxInt64

// task is one simulated goroutine of one process.
type task struct {
	w       *World
	p       *proc
	id      int
	name    string
	c       *coro
	started bool
	status  status
	wake    int64           // for sleeping
	ctx     context.Context // for sleeping and blocked; nil: nothing cancels
	done    <-chan struct{} // for blocked on a channel
	granted bool            // for blocked on a lock
	ids     int             // ids drawn so far
	d       *delivery       // the queue delivery that it executes, or nil
	// Its last write that was applied: step, time, which write of the database's it was.
	stored   int
	storedAt int64
	applied  int
	durable  bool
	obs      uint64 // what it has observed since its last fold
	base     uint64 // … until it took, or gave back, its copy of a conversation
	errs     uint64 // the errors of the store since then
	holds    bool   // the lock of its process's copy
	beats    bool   // it renews leases
	acks     bool   // it is about to tell the queue, and the queue listens to nobody else
	asks     int    // of the store since it has it
	hand     *hand  // of the delivery at work
	effect   string // claimed by it and not settled
	key      uint64 // names it in ids and hashes, whatever the order in which tasks began
}

// spawn starts a task; it runs when it is picked.
func (w *World) spawn(p *proc, name string, body func(t *task)) *task {
	t := &task{w: w, p: p, id: w.taskN, key: 1<<21 | uint64(w.taskN), name: name, c: w.pool.get()}
	w.taskN++
	t.c.body = func() { body(t) }
	w.tasks = append(w.tasks, t)
	return t
}

// resume lets a task go on to its next yield.
func (w *World) resume(t *task) {
	before := w.cur
	w.cur = t
	t.started = true
	t.status = ready
	t.c.next()
	w.cur = before
	if t.c.body != nil {
		return
	}
	t.status = finished
	if p := t.c.panicked; p != nil {
		t.c.panicked = nil
		w.fail("panic", "task %s panicked: %v", t.name, p)
	}
	w.pool.put(t.c)
}

// yield gives control back to the scheduler.
func (t *task) yield() {
	t.c.yield(struct{}{})
	if t.p.dead {
		panic(killedPanic{})
	}
}

func (t *task) alive() {
	if t.p.dead {
		panic(killedPanic{})
	}
}

// sleep returns nil after d, or ctx's cause.
func (t *task) sleep(ctx context.Context, d int64) error {
	t.alive()
	if ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.status, t.wake, t.ctx = sleeping, t.w.now+d, ctx
	t.yield()
	t.ctx = nil
	if t.w.now < t.wake && ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// isReady reports whether a task that is not finished could go on now.
func (t *task) isReady() bool {
	if t.p.pausedUntil > t.w.now {
		return false
	}
	switch t.status {
	case sleeping:
		return t.wake <= t.w.now || t.ctx != nil && t.ctx.Err() != nil
	case blocked:
		if t.granted || t.ctx != nil && t.ctx.Err() != nil {
			return true
		}
		if t.done != nil {
			select {
			case <-t.done:
				return true
			default:
			}
		}
		return false
	}
	return true
}

// nextAt returns when t could go on if nothing else happened.
func (t *task) nextAt() int64 {
	at := int64(never)
	switch t.status {
	case sleeping:
		at = t.wake
	case ready:
		at = t.w.now
	}
	if at != never {
		at = max(at, t.p.pausedUntil)
	} else if t.p.pausedUntil > t.w.now {
		at = t.p.pausedUntil
	}
	return at
}

// crash ends a process on the spot: its coroutines are unwound, and none of their defers can
// reach anything. When the running task is one of them, crash does not return.
func (w *World) crash(p *proc) {
	if p.dead {
		return
	}
	p.dead = true
	w.count(covCrash)
	w.crashes++
	for _, t := range w.tasks {
		if t.p != p || t == w.cur || t.status == finished {
			continue
		}
		if !t.started {
			t.c.body = nil
			w.pool.put(t.c)
			t.status = finished
			continue
		}
		w.resume(t)
		if t.status != finished {
			panic(fmt.Sprintf("sim: task %s survived the crash of %s", t.name, p.name))
		}
	}
	w.died(p)
	if w.cur != nil && w.cur.p == p {
		panic(killedPanic{})
	}
}

// timer calls fn once now is at.
type timer struct {
	at   int64
	seq  int
	p    *proc // whose clock it is; nil: the world's
	fn   func()
	ctx  *deadline // instead of fn: what it ends
	what uint64    // for hashes: what fn does
}

func (w *World) after(p *proc, d int64, fn func()) *timer {
	t := &timer{at: w.now + d, p: p, fn: fn}
	w.schedule(t)
	return t
}

func (w *World) schedule(t *timer) {
	w.timerN++
	t.seq = w.timerN
	w.timers = append(w.timers, t)
	w.nextTimer = min(w.nextTimer, t.at)
}

// stop reports whether the timer had not fired.
func (w *World) stopTimer(t *timer) bool {
	for i, have := range w.timers {
		if have == t {
			last := len(w.timers) - 1
			w.timers[i] = w.timers[last]
			w.timers[last] = nil
			w.timers = w.timers[:last]
			return true
		}
	}
	return false
}

// fireTimers calls what is due, in order.
func (w *World) fireTimers() {
	for w.nextTimer <= w.now {
		var due *timer
		next := int64(never)
		for _, t := range w.timers {
			at := t.due()
			if at <= w.now && (due == nil || t.at < due.at || t.at == due.at && t.seq < due.seq) {
				due = t
			}
			next = min(next, at)
		}
		if due == nil {
			w.nextTimer = next
			return
		}
		w.stopTimer(due)
		switch {
		case due.p != nil && due.p.dead:
		case due.ctx != nil:
			due.ctx.cancel(context.DeadlineExceeded)
		default:
			due.fn()
		}
	}
}

// due is when the timer can fire: the timers of a process that is paused fire when it goes on.
func (t *timer) due() int64 {
	if t.p != nil && !t.p.dead {
		return max(t.at, t.p.pausedUntil)
	}
	return t.at
}

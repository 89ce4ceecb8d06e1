package runstest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// clock is time that stands still. Whoever works on behalf of the test is in the foreground
// and moves it by waiting; the keepers' own goroutines are in the background, and moving the
// clock waits for them to come to rest.
type clock struct {
	moving sync.Mutex // held while the clock moves from one timer to the next

	mu     sync.Mutex
	rest   *sync.Cond // the background has come to rest
	now    time.Time
	timers []*timer
	made   int // timers that were ever made
	awake  int // background goroutines that are not waiting
	motion bool
	later  []func() // to be done once the clock stands still
}

type timer struct {
	at     time.Time
	number int
	fire   func() // called with clock.mu held
}

func newClock() *clock {
	c := &clock{now: time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)}
	c.rest = sync.NewCond(&c.mu)
	return c
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// set makes a timer; c.mu must be held.
func (c *clock) set(d time.Duration, fire func()) *timer {
	c.made++
	t := &timer{at: c.now.Add(max(d, 0)), number: c.made, fire: fire}
	c.timers = append(c.timers, t)
	return t
}

// stop reports whether t had not fired; c.mu must be held.
func (c *clock) stop(t *timer) bool {
	i := slices.Index(c.timers, t)
	if i < 0 {
		return false
	}
	c.timers = slices.Delete(c.timers, i, i+1)
	return true
}

// next takes out the timer that is due first, up to until; c.mu must be held.
func (c *clock) next(until time.Time) *timer {
	if len(c.timers) == 0 {
		return nil
	}
	t := slices.MinFunc(c.timers, func(a, b *timer) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.number, b.number))
	})
	if t.at.After(until) {
		return nil
	}
	c.stop(t)
	return t
}

// advance moves the clock on by d, or until stop says so, through every timer on the way.
func (c *clock) advance(d time.Duration, stop func() bool) {
	for _, f := range c.move(d, stop) {
		f()
	}
}

// still does f once the clock stands still: now, if it does.
func (c *clock) still(f func()) {
	c.mu.Lock()
	if c.motion {
		c.later = append(c.later, f)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	f()
}

func (c *clock) move(d time.Duration, stop func() bool) (later []func()) {
	c.moving.Lock()
	defer c.moving.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.motion = true
	defer func() {
		c.motion = false
		later, c.later = c.later, nil
	}()
	until := c.now.Add(d)
	for {
		c.settle()
		if stop != nil && stop() {
			return nil
		}
		t := c.next(until)
		if t == nil {
			break
		}
		if t.at.After(c.now) {
			c.now = t.at
		}
		t.fire()
	}
	c.now = until
	return nil
}

// settle waits for the background to come to rest; c.mu must be held. It works in real time
// and in memory, so it takes microseconds.
func (c *clock) settle() {
	for c.awake > 0 {
		c.rest.Wait()
	}
}

// wake and sleep count a background goroutine; c.mu must be held.
func (c *clock) wake() { c.awake++ }

func (c *clock) sleep() {
	c.awake--
	if c.awake == 0 {
		c.rest.Broadcast()
	}
}

// goBackground runs f as a background goroutine, and returns when it has come to rest: so the
// foreground never runs beside it.
func (c *clock) goBackground(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake()
	go func() {
		defer func() {
			c.mu.Lock()
			c.sleep()
			c.mu.Unlock()
		}()
		f()
	}()
	c.settle()
}

// sleepFor waits for d. own says that the caller is known to be in the foreground.
func (c *clock) sleepFor(ctx context.Context, d time.Duration, own bool) error {
	c.mu.Lock()
	background := c.awake > 0 && !own
	c.mu.Unlock()
	if background {
		return c.background(ctx, d)
	}
	if ctx.Err() == nil {
		c.advance(d, func() bool { return ctx.Err() != nil })
	}
	return context.Cause(ctx)
}

// background waits for d in the background.
func (c *clock) background(ctx context.Context, d time.Duration) error {
	done := make(chan struct{})
	c.mu.Lock()
	t := c.set(d, func() {
		c.wake()
		close(done)
	})
	c.sleep()
	c.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop(t) {
		c.wake() // else the timer has done it
	}
	return context.Cause(ctx)
}

// afterFunc calls f, without any lock, when the clock has moved on by d.
func (c *clock) afterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.set(d, func() {
		c.mu.Unlock()
		defer c.mu.Lock()
		f()
	})
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.stop(t)
	}
}

// withTimeout derives a ctx that ends with context.DeadlineExceeded when the clock has moved on
// by d. It states no deadline: those are taken for real time.
func (c *clock) withTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx := &timedContext{Context: parent, done: make(chan struct{})}
	stopTimer := c.afterFunc(d, func() { ctx.end(context.DeadlineExceeded) })
	stopParent := context.AfterFunc(parent, func() { ctx.end(parent.Err()) })
	if parent.Err() != nil {
		ctx.end(parent.Err())
	}
	return ctx, func() {
		stopTimer()
		stopParent()
		ctx.end(context.Canceled)
	}
}

type timedContext struct {
	context.Context
	done chan struct{}

	mu     sync.Mutex
	err    error
	number int
	then   map[int]func()
}

func (ctx *timedContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (ctx *timedContext) Done() <-chan struct{}       { return ctx.done }

func (ctx *timedContext) Err() error {
	ctx.mu.Lock()
	defer ctx.mu.Unlock()
	return ctx.err
}

func (ctx *timedContext) String() string { return fmt.Sprintf("%v.WithVirtualTimeout", ctx.Context) }

func (ctx *timedContext) end(err error) {
	ctx.mu.Lock()
	if ctx.err != nil {
		ctx.mu.Unlock()
		return
	}
	ctx.err = err
	close(ctx.done)
	then := ctx.then
	ctx.then = nil
	ctx.mu.Unlock()
	for _, f := range then {
		f()
	}
}

// AfterFunc is how package context learns that a parent ended without a goroutine to watch
// it: a derived ctx is done as soon as the clock stands still again.
func (ctx *timedContext) AfterFunc(f func()) (stop func() bool) {
	ctx.mu.Lock()
	defer ctx.mu.Unlock()
	if ctx.err != nil {
		go f()
		return func() bool { return false }
	}
	ctx.number++
	number := ctx.number
	if ctx.then == nil {
		ctx.then = map[int]func(){}
	}
	ctx.then[number] = f
	return func() bool {
		ctx.mu.Lock()
		defer ctx.mu.Unlock()
		_, there := ctx.then[number]
		delete(ctx.then, number)
		return there
	}
}

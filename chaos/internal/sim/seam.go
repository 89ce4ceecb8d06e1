package sim

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/runs"
)

// epoch is where simulated time begins.
var epoch = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

const (
	millisecond = int64(time.Millisecond)
	second      = int64(time.Second)
)

// proc is one simulated process: it has a clock of its own, a connection to the ledger, and
// one keeper.
type proc struct {
	w           *World
	id          int
	name        string
	dead        bool
	pausedUntil int64
	cutUntil    int64 // its connection to ledger and queue is cut
	skew        int64 // its clock minus the world's
	drift       int64 // parts per million
	keeper      *runs.Keeper
	adapters    adapters
	seam        *seam.Seam
	stopping    bool   // takes no more jobs
	beats       int    // tasks started
	obs         uint64 // what its tasks have observed, in order
}

func (w *World) newProc(name string) *proc {
	p := &proc{w: w, id: len(w.procs), name: name}
	w.procs = append(w.procs, p)
	p.seam = &seam.Seam{
		Now:         p.clock,
		Sleep:       func(ctx context.Context, d time.Duration) error { return w.cur.sleep(ctx, int64(d)) },
		WithTimeout: p.withTimeout,
		AfterFunc:   p.afterFunc,
		Go:          p.start,
		NewID:       w.newID,
		Jitter:      w.jitter,
		NewLock:     func() seam.Lock { return &lock{w: w, p: p} },
		Wait:        w.wait,
		Off:         w.cfg.Off,
	}
	return p
}

func (p *proc) clock() time.Time {
	now := p.w.now
	if p.drift != 0 {
		now += now / 1_000_000 * p.drift
	}
	return epoch.Add(time.Duration(now + p.skew))
}

func (p *proc) withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := &deadline{at: p.clock().Add(d)}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	if !p.dead {
		c.timer = timer{at: p.w.now + int64(d), p: p, ctx: c}
		p.w.schedule(&c.timer)
	}
	return c, c.stop
}

// deadline is a ctx with a timeout on simulated time: no goroutine and no real timer.
type deadline struct {
	context.Context
	at     time.Time
	cancel context.CancelCauseFunc
	timer  timer
}

func (c *deadline) stop() {
	if c.timer.p != nil {
		c.timer.p.w.stopTimer(&c.timer)
	}
	c.cancel(nil)
}

func (c *deadline) Deadline() (time.Time, bool) {
	if at, ok := c.Context.Deadline(); ok && at.Before(c.at) {
		return at, true
	}
	return c.at, true
}

func (c *deadline) Err() error {
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == context.DeadlineExceeded { //nolint:errorlint // withTimeout sets this very value; a cause that wraps it is somebody else's
		return context.DeadlineExceeded
	}
	return err
}

func (p *proc) afterFunc(d time.Duration, f func()) func() bool {
	if p.dead {
		return func() bool { return false }
	}
	t := p.w.after(p, int64(d), func() {
		p.w.spawn(p, p.name+" timer", func(*task) { f() })
	})
	return func() bool { return p.w.stopTimer(t) }
}

func (p *proc) start(f func()) {
	if !p.dead {
		p.beats++
		t := p.w.spawn(p, p.name+" beats", func(*task) { f() })
		t.beats = true
		t.key = 1<<20 | uint64(p.id)<<12 | uint64(p.beats)
	}
}

const letters = "abcdefghijklmnopqrstuvwxyz234567"

// newID names what the asking task asks for: the task and a count. So equal states that were
// reached by different ways hold the same ids.
func (w *World) newID() string {
	t := w.cur
	var id [26]byte
	for i := range id {
		id[i] = 'a'
	}
	if w.cfg.Frozen {
		w.idOf(t, &id)
		return string(id[:])
	}
	t.ids++
	put := func(at, n int) {
		for ; n > 0; n /= 32 {
			id[at] = letters[n%32]
			at--
		}
	}
	put(12, int(t.key)+1)
	put(25, t.ids)
	return string(id[:])
}

// idOf names an id after the task, the place in the code that asks, and how many of its ids from
// there were ever written: what was drawn in vain makes no difference.
func (w *World) idOf(t *task, id *[26]byte) {
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])
	place := placeOf(pcs[0])
	for n := uint64(0); ; n++ {
		v := (place^t.key<<8)*0x9e3779b97f4a7c15 + n
		for i := range 13 {
			id[i] = letters[v&31]
			v >>= 5
		}
		for i, v := 25, n<<24|t.key; v > 0; i, v = i-1, v/32 {
			id[i] = letters[v%32]
		}
		if !w.db.used[string(id[:])] {
			return
		}
	}
}

var places sync.Map // program counter → hash of the place's name

func placeOf(pc uintptr) uint64 {
	if known, ok := places.Load(pc); ok {
		v, _ := known.(uint64)
		return v
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	v := hashString(fmt.Sprint(frame.Function, frame.Line))
	places.Store(pc, v)
	return v
}

func (w *World) jitter(d time.Duration) time.Duration {
	if d <= 0 || w.cfg.Frozen {
		return 0
	}
	return time.Duration(w.noise.next() % uint64(d))
}

func (w *World) wait(ctx context.Context, done <-chan struct{}) error {
	t := w.cur
	t.alive()
	t.status, t.done, t.ctx = blocked, done, ctx
	if !t.isReady() {
		t.yield()
	}
	t.status, t.done, t.ctx = ready, nil, nil
	select {
	case <-done:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// lock is a seam.Lock whose waiters are served in order.
type lock struct {
	w       *World
	p       *proc
	held    bool
	waiters []*task
}

func (l *lock) Lock(ctx context.Context) error {
	t := l.w.cur
	t.alive()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if !l.held {
		l.held = true
		t.enter(true)
		return nil
	}
	l.waiters = append(l.waiters, t)
	t.status, t.ctx = blocked, ctx
	t.yield()
	t.status, t.ctx = ready, nil
	if t.granted {
		t.granted = false
		t.enter(true)
		return nil
	}
	for i, waiter := range l.waiters {
		if waiter == t {
			l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
			break
		}
	}
	return context.Cause(ctx)
}

func (l *lock) Unlock() {
	if l.p.dead {
		return
	}
	l.w.cur.enter(false)
	if len(l.waiters) == 0 {
		l.held = false
		return
	}
	l.waiters[0].granted = true
	l.waiters = l.waiters[1:]
}

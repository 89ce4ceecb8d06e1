package runstest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// worker is the process in which one delivery runs: a keeper of its own, which can die.
type worker struct {
	k      *Keeper
	keeper *runs.Keeper
	dead   atomic.Bool
}

// errDead is what a dead process's last breath gets from everything it asks.
var errDead = errors.New("runstest: the process has crashed")

type workerKey struct{}

// Crash ends the process in which the delivery that ctx belongs to is at work, as kill -9
// would: nothing is recorded or released, no defer of the library acts, and the lease runs on
// until it lapses. Call it in a handler, in an effect, in a stub that either of them calls; it
// does not return. Defers of the handler's own do run.
func Crash(ctx context.Context) {
	w, _ := ctx.Value(workerKey{}).(*worker)
	if w == nil {
		panic("runstest: Crash: ctx does not belong to a delivery of this package")
	}
	w.dead.Store(true)
	runtime.Goexit()
}

// newWorker starts a process.
func (k *Keeper) newWorker() (*worker, error) {
	w := &worker{k: k}
	config := k.config
	config.Observer = func(ctx context.Context, e runs.Event) {
		if !w.dead.Load() {
			k.observe(ctx, e)
		}
	}
	var err error
	w.keeper, err = runs.NewSeamed(&mortal{k.store, w}, &config, w.seam())
	if err == nil {
		k.t.Cleanup(func() { _ = w.keeper.Close() })
	}
	return w, err
}

// seam is the process's way to the clock.
func (w *worker) seam() *seam.Seam {
	c := w.k.clock
	s := *seam.Real()
	s.Now = c.Now
	s.AfterFunc = func(d time.Duration, f func()) func() bool {
		return c.afterFunc(d, func() {
			if !w.dead.Load() {
				f()
			}
		})
	}
	s.WithTimeout = c.withTimeout
	s.Go = c.goBackground
	s.Jitter = func(time.Duration) time.Duration { return 0 }
	s.NewID = w.k.newID
	s.Sleep = func(ctx context.Context, d time.Duration) error {
		if w.dead.Load() {
			return errDead
		}
		return c.sleepFor(ctx, d, ctx.Value(workerKey{}) != nil)
	}
	return &s
}

// newID counts: the same test makes the same ids.
func (k *Keeper) newID() string {
	const digits = "abcdefghijklmnopqrstuvwxyz234567"
	n := k.ids.Add(1)
	id := []byte(strings.Repeat("a", 26))
	for i := len(id) - 1; n > 0; i-- {
		id[i] = digits[n%32]
		n /= 32
	}
	return string(id)
}

// mortal is the way to the ledger, which ends with its process.
type mortal struct {
	ledger.Store
	w *worker
}

func alive[T any](m *mortal, call func() (T, error)) (none T, err error) {
	if m.w.dead.Load() {
		return none, errDead
	}
	return call()
}

func (m *mortal) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	return alive(m, func() (ledger.Snapshot, error) { return m.Store.Load(ctx, conversation, q) })
}

func (m *mortal) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	return alive(m, func() (ledger.Result, error) { return m.Store.Apply(ctx, conversation, w) })
}

func (m *mortal) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	return alive(m, func() ([]ledger.Renewed, error) { return m.Store.Renew(ctx, leases, d) })
}

// Close leaves the store open for the other processes.
func (m *mortal) Close() error { return nil }

// run runs one delivery in the process and waits for it.
func (w *worker) run(ctx context.Context, deliver func(ctx context.Context) runs.Verdict) (v runs.Verdict, how exit) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		how.left = true
		defer func() {
			if how.panicked = recover(); how.panicked != nil {
				how.left = false // a panic of the handler is the test's to see
			}
		}()
		v = deliver(context.WithValue(ctx, workerKey{}, w))
		how.left = false
	}()
	<-ended
	how.crashed = w.dead.Load()
	if how.crashed {
		_ = w.keeper.Close()
	}
	return v, how
}

// exit says how a delivery's goroutine ended.
type exit struct {
	crashed  bool
	left     bool // by runtime.Goexit, such as t.FailNow
	panicked any
}

package ledgertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Fault is what becomes of one call of a store.
type Fault int

// The faults. Both look alike to the caller: an error, and no word about what happened.
const (
	NoFault    Fault = iota
	LostCall         // it fails before anything is done
	LostAnswer       // it is done, and its answer is lost
)

// ErrFault is the error of a call that was made to fail.
var ErrFault = errors.New("ledgertest: fault")

// Call is one call of a store.
type Call struct {
	N      int    // counted from 1
	Method string // of ledger.Store, or WithLock
	Write  *ledger.Write
}

// Faulty returns store with the faults that plan decides on. Calls inside a lock are not asked
// about: the lock as a whole is one call. What it returns offers a ledger.Locker if store does.
// plan may be called by many goroutines, one at a time.
func Faulty(store ledger.Store, plan func(Call) Fault) ledger.Store {
	f := &faulty{store: store, plan: plan}
	if locker, ok := store.(ledger.Locker); ok {
		return &lockingFaulty{f, locker}
	}
	return f
}

type faulty struct {
	store ledger.Store
	mu    sync.Mutex
	n     int
	plan  func(Call) Fault
}

// through makes a call as the plan has it.
func through[V any](f *faulty, method string, w *ledger.Write, call func() (V, error)) (V, error) {
	f.mu.Lock()
	f.n++
	fault := f.plan(Call{N: f.n, Method: method, Write: w})
	f.mu.Unlock()
	var none V
	if fault == LostCall {
		return none, ErrFault
	}
	v, err := call()
	if fault == LostAnswer && err == nil {
		return none, ErrFault
	}
	return v, err
}

// Load implements ledger.Store.
func (f *faulty) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	return through(f, "Load", nil, func() (ledger.Snapshot, error) { return f.store.Load(ctx, conversation, q) })
}

// Apply implements ledger.Store.
func (f *faulty) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	return through(f, "Apply", &w, func() (ledger.Result, error) { return f.store.Apply(ctx, conversation, w) })
}

// Renew implements ledger.Store.
func (f *faulty) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	return through(f, "Renew", nil, func() ([]ledger.Renewed, error) { return f.store.Renew(ctx, leases, d) })
}

// FindRun implements ledger.Store.
func (f *faulty) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	return through(f, "FindRun", nil, func() (ledger.Home, error) { return f.store.FindRun(ctx, run) })
}

// Bury implements ledger.Store.
func (f *faulty) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	return through(f, "Bury", nil, func() (bool, error) { return f.store.Bury(ctx, run, tombstone, due) })
}

// Scan implements ledger.Store.
func (f *faulty) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	return through(f, "Scan", nil, func() ([]ledger.Found, error) { return f.store.Scan(ctx, q) })
}

// Exhume implements ledger.Store.
func (f *faulty) Exhume(ctx context.Context, limit int) (int, error) {
	return through(f, "Exhume", nil, func() (int, error) { return f.store.Exhume(ctx, limit) })
}

// Close implements ledger.Store.
func (f *faulty) Close() error { return f.store.Close() }

type lockingFaulty struct {
	*faulty
	locker ledger.Locker
}

// WithLock implements ledger.Locker.
func (f *lockingFaulty) WithLock(ctx context.Context, conversation string, fn func(ledger.Tx) error) error {
	_, err := through(f.faulty, "WithLock", nil, func() (struct{}, error) {
		return struct{}{}, f.locker.WithLock(ctx, conversation, fn)
	})
	return err
}

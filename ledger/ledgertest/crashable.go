package ledgertest

import (
	"context"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Machine is a store whose machine can crash: then everything is gone that was acknowledged
// after the last change that had to survive.
type Machine struct {
	open func() ledger.Store

	mu      sync.Mutex
	store   ledger.Store
	journal []func(ledger.Store) error // what was acknowledged, in order
	flushed int                        // how much of it survives
}

// Crashable returns a store that can crash, made of stores that open gives: a fresh one for each
// crash, into which what survived is written again.
func Crashable(open func() ledger.Store) *Machine {
	return &Machine{open: open, store: open()}
}

// Crash loses what was not flushed.
func (m *Machine) Crash() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store = m.open()
	m.journal = m.journal[:m.flushed]
	for _, again := range m.journal {
		if err := again(m.store); err != nil {
			return err
		}
	}
	return nil
}

// did notes a change. Like a log that is flushed up to a point, one that survives takes all
// earlier ones with it.
func (m *Machine) did(durable bool, again func(ledger.Store) error) {
	m.journal = append(m.journal, again)
	if durable {
		m.flushed = len(m.journal)
	}
}

// Load implements ledger.Store.
func (m *Machine) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.Load(ctx, conversation, q)
}

// Apply implements ledger.Store.
func (m *Machine) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.store.Apply(ctx, conversation, w)
	if err == nil && r.Applied {
		m.did(w.Durable, func(s ledger.Store) error {
			_, err := s.Apply(context.Background(), conversation, w)
			return err
		})
	}
	return r, err
}

// Renew implements ledger.Store.
func (m *Machine) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.Renew(ctx, leases, d)
}

// FindRun implements ledger.Store.
func (m *Machine) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.FindRun(ctx, run)
}

// Bury implements ledger.Store.
func (m *Machine) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	buried, err := m.store.Bury(ctx, run, tombstone, due)
	if err == nil && buried {
		m.did(true, func(s ledger.Store) error {
			_, err := s.Bury(context.Background(), run, tombstone, due)
			return err
		})
	}
	return buried, err
}

// Scan implements ledger.Store.
func (m *Machine) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.Scan(ctx, q)
}

// Exhume implements ledger.Store.
func (m *Machine) Exhume(ctx context.Context, limit int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.Exhume(ctx, limit)
}

// Close implements ledger.Store.
func (m *Machine) Close() error { return m.store.Close() }

package ledgertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Counts says what was asked of a store. A call inside a lock counts like any other.
type Counts struct {
	Loads, Applies, Durable, Refused     int
	Blind                                int // refusals that did not show the present
	Locks, Renews, Scans, Finds, Burials int
	RowsOut, RowsIn                      int // heads, rows and leases read and written
}

// Calls is how often the store was asked.
func (c Counts) Calls() int {
	return c.Loads + c.Applies + c.Renews + c.Scans + c.Finds + c.Burials
}

// String is for the messages of tests.
func (c Counts) String() string {
	return fmt.Sprintf("%d calls: %d loads, %d applies (%d durable, %d refused), %d locks, %d renews, %d scans; %d rows out, %d in",
		c.Calls(), c.Loads, c.Applies, c.Durable, c.Refused, c.Locks, c.Renews, c.Scans, c.RowsOut, c.RowsIn)
}

// Counter counts the calls that reach a store.
type Counter struct {
	store ledger.Store
	mu    sync.Mutex
	n     Counts
}

// Counting returns store and the counter of its calls. What it returns offers a ledger.Locker if
// store does.
func Counting(store ledger.Store) (ledger.Store, *Counter) {
	c := &Counter{store: store}
	if locker, ok := store.(ledger.Locker); ok {
		return &lockingCounter{c, locker}, c
	}
	return c, c
}

// Take returns the counts since the last Take.
func (c *Counter) Take() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = Counts{}
	return n
}

func (c *Counter) add(f func(n *Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.n)
}

func (c *Counter) loaded(s ledger.Snapshot) {
	c.add(func(n *Counts) {
		n.Loads++
		n.RowsOut += rowsOf(s)
	})
}

func rowsOf(s ledger.Snapshot) int {
	rows := len(s.Rows) + len(s.Leases) + len(s.Tail) + len(s.Open)
	if s.Tag != "" {
		rows++
	}
	return rows
}

func (c *Counter) applied(w ledger.Write, r ledger.Result) {
	c.add(func(n *Counts) {
		n.Applies++
		if w.Durable {
			n.Durable++
		}
		if !r.Applied {
			n.Refused++
			if r.Current == nil {
				n.Blind++
			} else {
				n.RowsOut += rowsOf(*r.Current)
			}
			return
		}
		n.RowsIn += 1 + len(w.Put) + len(w.Delete) + len(w.Leases)
	})
}

// Load implements ledger.Store.
func (c *Counter) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	s, err := c.store.Load(ctx, conversation, q)
	c.loaded(s)
	return s, err
}

// Apply implements ledger.Store.
func (c *Counter) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	r, err := c.store.Apply(ctx, conversation, w)
	c.applied(w, r)
	return r, err
}

// Renew implements ledger.Store.
func (c *Counter) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	c.add(func(n *Counts) { n.Renews++ })
	return c.store.Renew(ctx, leases, d)
}

// FindRun implements ledger.Store.
func (c *Counter) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	c.add(func(n *Counts) { n.Finds++ })
	return c.store.FindRun(ctx, run)
}

// Bury implements ledger.Store.
func (c *Counter) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	c.add(func(n *Counts) { n.Burials++ })
	return c.store.Bury(ctx, run, tombstone, due)
}

// Scan implements ledger.Store.
func (c *Counter) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	found, err := c.store.Scan(ctx, q)
	c.add(func(n *Counts) {
		n.Scans++
		n.RowsOut += len(found)
	})
	return found, err
}

// Exhume implements ledger.Store.
func (c *Counter) Exhume(ctx context.Context, limit int) (int, error) {
	c.add(func(n *Counts) { n.Burials++ })
	return c.store.Exhume(ctx, limit)
}

// Close implements ledger.Store.
func (c *Counter) Close() error { return c.store.Close() }

type lockingCounter struct {
	*Counter
	locker ledger.Locker
}

// WithLock implements ledger.Locker.
func (c *lockingCounter) WithLock(ctx context.Context, conversation string, fn func(ledger.Tx) error) error {
	c.add(func(n *Counts) { n.Locks++ })
	return c.locker.WithLock(ctx, conversation, func(tx ledger.Tx) error { return fn(countingTx{tx, c.Counter}) })
}

type countingTx struct {
	tx ledger.Tx
	c  *Counter
}

func (t countingTx) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	s, err := t.tx.Load(ctx, conversation, q)
	t.c.loaded(s)
	return s, err
}

func (t countingTx) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	r, err := t.tx.Apply(ctx, conversation, w)
	t.c.applied(w, r)
	return r, err
}

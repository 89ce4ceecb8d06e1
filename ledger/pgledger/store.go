package pgledger

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
)

// Store implements [ledger.Store], [ledger.Locker] and [ledger.Joiner] on a Postgres database.
// [Open] and [Connect] make one.
type Store struct {
	config   Config
	seam     *seam.Seam
	pool     *pgxpool.Pool
	owned    *pgxpool.Pool // what Connect made, nil otherwise
	texts    *texts
	mode     pgx.QueryExecMode
	batches  bool             // statements may be sent together, in mode
	identity string           // of the ledger in the database
	clock    func() time.Time // nil: Postgres's own
	never    bool             // waits for no flush, in tests that pull no plug
	closed   atomic.Bool

	mu      sync.Mutex
	beating *pgxpool.Pool // for renewals; nil: not opened yet
}

var (
	_ ledger.Store  = (*Store)(nil)
	_ ledger.Locker = (*Store)(nil)
	_ ledger.Joiner = (*Store)(nil)
)

var errClosed = errors.New("the ledger is closed")

// now is the argument that overrides the server's clock, nil in production.
func (s *Store) now() any {
	if s.clock == nil {
		return nil
	}
	return s.clock().UnixMilli()
}

// async reports whether a change need not wait for the server's flush.
func (s *Store) async(durable bool) bool { return !durable && !s.config.FlushAll || s.never }

// Load implements ledger.Store.
func (s *Store) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	var snap ledger.Snapshot
	err := s.retry(ctx, "load", func() (err error) {
		snap, err = s.load(ctx, s.pool, conversation, q)
		return err
	})
	return snap, err
}

// Apply implements ledger.Store.
func (s *Store) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	st, err := s.statement(conversation, w, s.async(w.Durable))
	if err != nil {
		return ledger.Result{}, err
	}
	var a answer
	err = s.retry(ctx, "apply", func() (err error) {
		a, err = s.apply(ctx, s.pool, st)
		return err
	})
	if err != nil {
		return ledger.Result{}, err
	}
	result := ledger.Result{Applied: a.applied, Now: a.now}
	if a.present {
		// Nobody was racing: the view did not know of a row. To say so spares the ledger a
		// lock. The statement itself cannot show the present: had it waited for somebody,
		// it would show what was before.
		snap, err := s.Load(ctx, conversation, w.Want)
		if err != nil {
			return ledger.Result{}, err
		}
		result.Current = &snap
	}
	return result, nil
}

// loading returns the statement that loads.
func (s *Store) loading(conversation string, q ledger.Query) (text string, args []any) {
	var run any
	if q.Run != "" {
		run = []byte(q.Run)
	}
	args = []any{[]byte(conversation), names(q.Keys), run, s.now()}
	if !q.Tail && !q.Open {
		return s.texts.load, args
	}
	var since, open any
	if q.Tail {
		since = q.Since
	}
	if q.Open {
		open = int32(fence.MaxOpen)
	}
	return s.texts.loadMore, append(args, since, open)
}

func (s *Store) load(ctx context.Context, q querier, conversation string, query ledger.Query) (ledger.Snapshot, error) {
	text, args := s.loading(conversation, query)
	var snap ledger.Snapshot
	err := s.ask(ctx, q, text, func(rows pgx.Rows) error { return addTo(&snap, rows) }, args...)
	snap.Sort()
	return snap, err
}

func addTo(snap *ledger.Snapshot, rows pgx.Rows) error {
	var kind int32
	var open int16
	var key, body []byte
	var at, due int64
	var ix fence.Index
	if err := rows.Scan(&kind, &key, &open, &at, &ix.Landed, &due, &body); err != nil {
		return err
	}
	ix.Open, ix.At, ix.Due = fence.OpenKind(open), fence.Millis(at), fence.Millis(due)
	snap.Add(ledger.Part{Kind: ledger.PartKind(kind), Key: key, Body: body, Index: ix})
	return nil
}

// names are bytes to Postgres: its text knows no NUL and nothing that is not UTF-8.
func names(list []string) [][]byte {
	if len(list) == 0 {
		return nil
	}
	all := make([][]byte, len(list))
	for i, name := range list {
		all[i] = []byte(name)
	}
	return all
}

// Close closes the connections that the store opened itself: those for renewals, and the pool that
// Connect made. It waits for calls that are using them.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.mu.Lock()
	beating, owned := s.beating, s.owned
	s.beating, s.owned = nil, nil
	s.mu.Unlock()
	if beating != nil {
		beating.Close()
	}
	if owned != nil {
		owned.Close()
	}
	return nil
}

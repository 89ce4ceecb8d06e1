package sqliteledger

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
)

// Store implements [ledger.Store] and [ledger.Locker] on a SQLite file. [Open] makes one.
type Store struct {
	config Config
	seam   *seam.Seam
	dsn    string
	path   string
	clock  func() time.Time // nil: SQLite's own

	readers *sql.DB
	mu      sync.Mutex
	asks    map[*query]*sql.Stmt // prepared on readers

	turn   seam.Lock // to write
	writer writer
	closed bool // guarded by turn

	flushed, unflushed *query // what a change is committed under
}

var (
	_ ledger.Store  = (*Store)(nil)
	_ ledger.Locker = (*Store)(nil)
)

var errClosed = errors.New("the ledger is closed")

// now is the argument that overrides the file's clock, nil in production.
func (s *Store) now() any {
	if s.clock == nil {
		return nil
	}
	return s.clock().UnixMilli()
}

// Load implements ledger.Store.
func (s *Store) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	snap, err := s.load(ctx, s.ask, conversation, q)
	if err != nil {
		return ledger.Snapshot{}, fmt.Errorf("sqliteledger: load: %w", err)
	}
	return snap, nil
}

// Apply implements ledger.Store.
func (s *Store) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	var result ledger.Result
	err := s.write(ctx, w.Durable, func(t *tx) (bool, error) {
		var err error
		result, err = t.Apply(t.ctx, conversation, w)
		return result.Applied, err
	})
	if err != nil {
		return ledger.Result{}, fmt.Errorf("sqliteledger: apply: %w", err)
	}
	return result, nil
}

// WithLock implements ledger.Locker. The lock is the file's, and what is written under it is
// flushed.
func (s *Store) WithLock(ctx context.Context, conversation string, fn func(ledger.Tx) error) error {
	var refused error
	err := s.write(ctx, true, func(t *tx) (bool, error) {
		refused = fn(t)
		return refused == nil && t.wrote, nil
	})
	if err != nil {
		return fmt.Errorf("sqliteledger: lock: %w", err)
	}
	return refused
}

// ask reads outside any transaction of the caller's: one statement sees one state. It finds the
// file busy, if at all, before its first row.
func (s *Store) ask(ctx context.Context, q *query, each func(*sql.Rows) error, args ...any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.patiently(ctx, func() error {
		stmt, err := s.asking(ctx, q) //nolint:sqlclosecheck // it stays prepared as long as its connection
		if err != nil {
			return err
		}
		rows, err := stmt.QueryContext(ctx, args...)
		return every(rows, err, each)
	})
}

func (s *Store) asking(ctx context.Context, q *query) (*sql.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asks == nil {
		return nil, errClosed
	}
	if stmt := s.asks[q]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.readers.PrepareContext(ctx, q.text) //nolint:sqlclosecheck // it stays prepared as long as its connection
	if err == nil {
		s.asks[q] = stmt
	}
	return stmt, err
}

func every(rows *sql.Rows, err error, each func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

type asking func(ctx context.Context, q *query, each func(*sql.Rows) error, args ...any) error

func (s *Store) load(ctx context.Context, ask asking, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	var run, since, open any
	if q.Run != "" {
		run = []byte(q.Run)
	}
	if q.Tail {
		since = q.Since
	}
	if q.Open {
		open = fence.MaxOpen
	}
	var snap ledger.Snapshot
	err := ask(ctx, load, func(rows *sql.Rows) error {
		var kind ledger.PartKind
		var key, body []byte
		var ix fence.Index
		var due sql.NullInt64
		if err := rows.Scan(&kind, &key, &ix.Open, &ix.At, &ix.Landed, &due, &body); err != nil {
			return err
		}
		ix.Due = fence.Millis(due.Int64)
		snap.Add(ledger.Part{Kind: kind, Key: key, Body: body, Index: ix})
		return nil
	}, []byte(conversation), hexes(q.Keys), run, since, open, s.now())
	snap.Sort()
	return snap, err
}

// hexes writes names as JSON, which holds no other bytes than text.
func hexes(names []string) string {
	size := 2
	for _, name := range names {
		size += 2*len(name) + 3
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('[')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(hex.EncodeToString([]byte(name)))
		b.WriteByte('"')
	}
	b.WriteByte(']')
	return b.String()
}

// Close closes the store's connections. It waits for a write that is under way.
func (s *Store) Close() error {
	if err := s.turn.Lock(context.Background()); err != nil {
		return err
	}
	defer s.turn.Unlock()
	s.closed = true
	err := s.writer.discard()
	s.mu.Lock()
	err = errors.Join(err, finalize(s.asks))
	s.asks = nil
	s.mu.Unlock()
	if s.readers != nil {
		err = errors.Join(err, s.readers.Close())
	}
	return err
}

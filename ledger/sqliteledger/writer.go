package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
)

// writer is the store's only connection that writes. SQLite lets one write at a time anyway, and
// waiting for each other in memory is fair and costs nothing, while waiting at the file is
// neither. Guarded by Store.turn.
type writer struct {
	db    *sql.DB // nil: not connected
	conn  *sql.Conn
	stmts map[*query]*sql.Stmt
	// sync is what the connection's synchronous is set to. It can be changed between
	// transactions only; changing it costs about 3 µs, and one connection keeps its cache.
	sync *query
}

func (s *Store) connect(ctx context.Context) error {
	if s.writer.conn != nil {
		return nil
	}
	db := s.pool("", 1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.writer = writer{db: db, conn: conn, stmts: map[*query]*sql.Stmt{}}
	return nil
}

// discard closes the connection, because nobody knows what state it is in. Whatever it had
// not committed is rolled back.
func (w *writer) discard() error {
	if w.conn == nil {
		return nil
	}
	err := errors.Join(finalize(w.stmts), w.conn.Close(), w.db.Close())
	*w = writer{}
	return err
}

// finalize closes statements. With one of them open SQLite keeps its connection, and with it the
// file, for ever.
func finalize(stmts map[*query]*sql.Stmt) (err error) {
	for _, stmt := range stmts {
		err = errors.Join(err, stmt.Close())
	}
	clear(stmts)
	return err
}

func (w *writer) prepared(ctx context.Context, q *query) (*sql.Stmt, error) {
	if stmt := w.stmts[q]; stmt != nil {
		return stmt, nil
	}
	stmt, err := w.conn.PrepareContext(ctx, q.text)
	if err == nil {
		w.stmts[q] = stmt
	}
	return stmt, err
}

func (w *writer) exec(ctx context.Context, q *query, args ...any) (sql.Result, error) {
	stmt, err := w.prepared(ctx, q) //nolint:sqlclosecheck // it stays prepared as long as its connection
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

func (w *writer) query(ctx context.Context, q *query, args ...any) (*sql.Rows, error) {
	stmt, err := w.prepared(ctx, q) //nolint:sqlclosecheck // it stays prepared as long as its connection
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// begin takes the file's write lock, or fails at once when another process has it.
func (w *writer) begin(ctx context.Context, sync *query) error {
	if w.sync != sync {
		// Not prepared: this pragma acts when it is compiled, not when it is run.
		if _, err := w.conn.ExecContext(ctx, sync.text); err != nil {
			return err
		}
		w.sync = sync
	}
	_, err := w.exec(ctx, beginTx)
	return err
}

// alone calls do when nothing else in this process writes, again while the file is busy.
func (s *Store) alone(ctx context.Context, do func(context.Context) error) error {
	if err := s.turn.Lock(ctx); err != nil {
		return err
	}
	defer s.turn.Unlock()
	if s.closed {
		return errClosed
	}
	// What was begun is finished, whatever becomes of ctx: it takes microseconds, or one
	// flush, and a statement that was interrupted leaves a connection in doubt.
	whole := context.WithoutCancel(ctx)
	return s.patiently(ctx, func() error {
		if err := s.connect(whole); err != nil {
			return err
		}
		return do(whole)
	})
}

// write runs do in a transaction that holds the file's write lock, and commits if do says so.
func (s *Store) write(ctx context.Context, durable bool, do func(t *tx) (commit bool, err error)) error {
	sync := s.unflushed
	if durable || s.config.FlushAll {
		sync = s.flushed
	}
	begun := false
	return s.alone(ctx, func(whole context.Context) (err error) {
		if begun {
			return errors.New("begun twice") // only begin can find the file busy
		}
		w := &s.writer
		if err := w.begin(whole, sync); err != nil {
			return err
		}
		begun = true
		committed := false
		defer func() {
			if committed {
				return
			}
			if _, e := w.exec(whole, rollbackTx); e != nil {
				err = errors.Join(err, w.discard())
			}
		}()
		commit, err := do(&tx{s: s, on: w, ctx: whole})
		if err != nil || !commit {
			return err
		}
		if _, err := w.exec(whole, commitTx); err != nil {
			return err
		}
		committed = true
		return nil
	})
}

// The pauses between tries to get a lock that another process has. A claim holds it for
// about as long as one flush takes.
const (
	shortestPause = 500 * time.Microsecond
	longestPause  = 20 * time.Millisecond
)

// patiently calls do again while it finds the file locked by another process.
func (s *Store) patiently(ctx context.Context, do func() error) error {
	var waited time.Duration
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := do()
		if !isBusy(err) {
			return err
		}
		if waited >= s.config.BusyTimeout {
			return fmt.Errorf("other processes have been writing for %v: %w", s.config.BusyTimeout, err)
		}
		nap := pause/2 + s.seam.Jitter(pause)
		if cause := s.seam.Sleep(ctx, nap); cause != nil {
			return cause
		}
		waited += nap
	}
}

// Primary result codes of SQLite.
const (
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeCantOpen = 14
	codeNotADB   = 26
)

// code returns the primary result code of an error of SQLite, 0 for another error.
func code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

func isBusy(err error) bool {
	c := code(err)
	return c == codeBusy || c == codeLocked
}

// explain says in words what a failed Open means for whoever has to mend it.
func explain(err error) error {
	switch code(err) {
	case codeReadOnly:
		return fmt.Errorf("the file, or its directory, may not be written by this process: %w", err)
	case codeCantOpen:
		return fmt.Errorf("does its directory exist, and may this process use it? %w", err)
	case codeNotADB:
		return fmt.Errorf("it is no SQLite database: %w", err)
	}
	return err
}

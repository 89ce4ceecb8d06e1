package sqliteledger

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/fencedrun/fencedrun/ledger"
)

var _ ledger.Joiner = (*Store)(nil)

// Join implements ledger.Joiner. The transaction is a *sql.Tx on a database of driver "sqlite" that has the
// ledger's tables: the ledger's own file, in which a service that wants this keeps its tables
// too, opened again by the service. Begin the transaction with the write lock ("_txlock=immediate" in
// the data source): one that reads first and writes later may find that somebody else wrote in
// between, and fail.
//
// SQLite has one writer, so the whole ledger waits until it ends: keep it short, and let nothing in
// it wait for this ledger. Whether the commit is flushed is for its connection to say.
func (s *Store) Join(ctx context.Context, theirs any, _ string) (ledger.Tx, error) {
	own, ok := theirs.(*sql.Tx)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: tx is a %T, not a *sql.Tx", ledger.ErrNoJoin, theirs)
	case own == nil:
		return nil, fmt.Errorf("%w: tx is nil", ledger.ErrNoJoin)
	}
	t := &tx{s: s, on: joined{own}, ctx: ctx}
	var file string
	if _, err := t.row(mainFile, nil, &file); err != nil {
		return nil, fmt.Errorf("sqliteledger: join: %w", err)
	}
	if !sameFile(file, s.path) {
		return nil, fmt.Errorf("%w: it is on the file %q, not on the ledger's, %s", ledger.ErrNoJoin, file, s.path)
	}
	if err := t.exec(writable); err != nil {
		if isBusy(err) {
			err = fmt.Errorf("the file is being written by somebody else; begin the transaction with _txlock=immediate and a _busy_timeout: %w", err)
		}
		return nil, fmt.Errorf("sqliteledger: join: %w", err)
	}
	return t, nil
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// joined is the caller's own transaction.
type joined struct{ *sql.Tx }

func (j joined) exec(ctx context.Context, q *query, args ...any) (sql.Result, error) {
	return j.ExecContext(ctx, q.text, args...)
}

func (j joined) query(ctx context.Context, q *query, args ...any) (*sql.Rows, error) {
	return j.QueryContext(ctx, q.text, args...)
}

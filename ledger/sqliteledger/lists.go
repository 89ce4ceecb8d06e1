package sqliteledger

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Renew implements ledger.Store.
func (s *Store) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if len(leases) == 0 {
		return nil, ctx.Err()
	}
	keys := leaseKeys(leases)
	answers := make([]ledger.Renewed, 0, len(leases))
	err := s.write(ctx, false, func(t *tx) (bool, error) {
		var at fence.Millis
		if _, err := t.row(now, []any{s.now()}, &at); err != nil {
			return false, err
		}
		until := at + fence.MillisOf(d)
		if err := t.exec(renew, keys, int64(until)); err != nil {
			return false, err
		}
		return true, t.ask(t.ctx, renewed, func(rows *sql.Rows) error {
			var tag []byte
			var is sql.NullInt64
			err := rows.Scan(&tag, &is)
			answers = append(answers, ledger.Renewed{Found: is.Valid, Until: fence.Millis(is.Int64), Tag: string(tag)})
			return err
		}, keys)
	})
	if err != nil {
		return nil, fmt.Errorf("sqliteledger: renew: %w", err)
	}
	return answers, nil
}

func leaseKeys(leases []ledger.LeaseKey) string {
	var b strings.Builder
	sep := byte('[')
	for _, l := range leases {
		b.WriteByte(sep)
		sep = ','
		fmt.Fprintf(&b, `["%x","%x","%x"]`, l.Conversation, l.Run, l.Nonce)
	}
	b.WriteByte(']')
	return b.String()
}

// FindRun implements ledger.Store.
func (s *Store) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	var home ledger.Home
	err := s.ask(ctx, findHome, func(rows *sql.Rows) error {
		var conversation, tombstone []byte
		err := rows.Scan(&conversation, &tombstone)
		home = ledger.HomeOf(conversation, tombstone)
		return err
	}, []byte(run))
	if err != nil {
		return ledger.Home{}, fmt.Errorf("sqliteledger: find run: %w", err)
	}
	return home, nil
}

// Bury implements ledger.Store.
func (s *Store) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	var buried bool
	err := s.write(ctx, true, func(t *tx) (bool, error) {
		n, err := t.count(buryRun, []byte(run), tombstone, int64(due))
		buried = n > 0
		return buried, err
	})
	if err != nil {
		return false, fmt.Errorf("sqliteledger: bury: %w", err)
	}
	return buried, nil
}

// Exhume implements ledger.Store.
func (s *Store) Exhume(ctx context.Context, limit int) (int, error) {
	var n int
	err := s.write(ctx, false, func(t *tx) (_ bool, err error) {
		n, err = t.count(exhume, s.now(), max(limit, 0))
		return n > 0, err
	})
	if err != nil {
		return 0, fmt.Errorf("sqliteledger: exhume: %w", err)
	}
	return n, nil
}

// count runs q and says how many rows it changed.
func (t *tx) count(q *query, args ...any) (int, error) {
	result, err := t.s.writer.exec(t.ctx, q, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// Scan implements ledger.Store.
func (s *Store) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	text, args := s.scanOf(q)
	var found []ledger.Found
	err := s.ask(ctx, text, func(rows *sql.Rows) error {
		var name, key, body []byte
		var ix fence.Index
		err := rows.Scan(&name, &key, &ix.Open, &ix.At, &ix.Landed, &ix.Due, &body)
		found = append(found, ledger.Found{Conversation: string(name), Row: ledger.NewRow(string(key), ix, body)})
		return err
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("sqliteledger: scan: %w", err)
	}
	return found, nil
}

func (s *Store) scanOf(q ledger.Scan) (*query, []any) {
	limit := max(q.Limit, 0)
	if q.Kind == ledger.ScanRows {
		var after any
		if q.After != nil {
			after = []byte(q.After.Row.Key)
		}
		return scanRows, []any{[]byte(q.Conversation), []byte(q.Keys), below(q.Keys), after, limit}
	}
	from, before, only := []byte(q.Prefix), below(q.Prefix), any(nil)
	if q.Conversation != "" {
		only = []byte(q.Conversation)
	}
	number, name, key := int64(math.MinInt64), []byte{}, []byte{}
	if q.After != nil {
		number, name, key = int64(q.After.Row.Index.Due), []byte(q.After.Conversation), []byte(q.After.Row.Key)
		if q.Kind == ledger.ScanOpen {
			number = int64(q.After.Row.Index.At)
		}
	}
	if q.Kind == ledger.ScanOpen {
		return scanOpen, []any{int64(q.Open), int64(q.Before), from, before, only, limit, number, name, key}
	}
	return scanDue, []any{s.now(), from, before, only, limit, number, name, key}
}

// below returns the first name that is above everything that starts with prefix, nil if there
// is none.
func below(prefix string) any {
	end := []byte(prefix)
	for len(end) > 0 {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return end
		}
		end = end[:len(end)-1]
	}
	return nil
}

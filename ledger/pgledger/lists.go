package pgledger

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Renew implements ledger.Store. It has connections of its own; see the package's documentation.
// When the server gives it none, it takes one of the pool.
func (s *Store) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if len(leases) == 0 {
		return nil, ctx.Err()
	}
	conversations, runs, nonces := make([][]byte, len(leases)), make([][]byte, len(leases)), make([][]byte, len(leases))
	for i, l := range leases {
		conversations[i], runs[i], nonces[i] = []byte(l.Conversation), []byte(l.Run), []byte(l.Nonce)
	}
	var answers []ledger.Renewed
	err := s.retry(ctx, "renew", func() error {
		ask := func(q querier) error {
			answers = make([]ledger.Renewed, 0, len(leases))
			return s.ask(ctx, q, s.texts.renew, func(rows pgx.Rows) error {
				var tag []byte
				var until *int64
				err := rows.Scan(&tag, &until)
				r := ledger.Renewed{Tag: string(tag)}
				if until != nil {
					r.Found, r.Until = true, fence.Millis(*until)
				}
				answers = append(answers, r)
				return err
			}, conversations, runs, nonces, int64(fence.MillisOf(d)), s.now(), s.async(false))
		}
		beats, err := s.beats(ctx)
		if err != nil {
			return err
		}
		err = ask(beats)
		if unconnected(err) && ctx.Err() == nil {
			err = ask(s.pool)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// FindRun implements ledger.Store.
func (s *Store) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	var home ledger.Home
	err := s.retry(ctx, "find run", func() error {
		home = ledger.Home{}
		return s.ask(ctx, s.pool, s.texts.home, func(rows pgx.Rows) error {
			var conversation, tombstone []byte
			err := rows.Scan(&conversation, &tombstone)
			home = ledger.HomeOf(conversation, tombstone)
			return err
		}, []byte(run))
	})
	return home, err
}

// Bury implements ledger.Store.
func (s *Store) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	var buried bool
	err := s.retry(ctx, "bury", func() error {
		tag, err := s.pool.Exec(ctx, s.texts.bury, s.with([]any{[]byte(run), tombstone, int64(due)})...)
		buried = tag.RowsAffected() > 0
		return err
	})
	return buried && err == nil, err
}

// Exhume implements ledger.Store.
func (s *Store) Exhume(ctx context.Context, limit int) (int, error) {
	var n int64
	err := s.retry(ctx, "exhume", func() error {
		return s.ask(ctx, s.pool, s.texts.exhume, func(rows pgx.Rows) error { return rows.Scan(&n, nil) },
			s.now(), limitOf(limit), s.async(false))
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

func limitOf(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// Scan implements ledger.Store.
func (s *Store) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	text, args := s.scanOf(q)
	var found []ledger.Found
	if text == "" {
		return nil, ctx.Err()
	}
	err := s.retry(ctx, "scan", func() error {
		found = nil
		return s.ask(ctx, s.pool, text, func(rows pgx.Rows) error {
			var name, key, body []byte
			var open int16
			var at, due int64
			var ix fence.Index
			if err := rows.Scan(&name, &key, &open, &at, &ix.Landed, &due, &body); err != nil {
				return err
			}
			ix.Open, ix.At, ix.Due = fence.OpenKind(open), fence.Millis(at), fence.Millis(due)
			found = append(found, ledger.Found{Conversation: string(name), Row: ledger.NewRow(string(key), ix, body)})
			return nil
		}, args...)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (s *Store) scanOf(q ledger.Scan) (string, []any) {
	limit := limitOf(q.Limit)
	if q.Kind == ledger.ScanRows {
		var after any
		if q.After != nil {
			after = []byte(q.After.Row.Key)
		}
		return s.texts.scanRows, []any{[]byte(q.Conversation), []byte(q.Keys), below(q.Keys), after, limit}
	}
	number, name, key := int64(math.MinInt64), []byte{}, []byte{}
	if q.After != nil {
		number, name, key = int64(q.After.Row.Index.Due), []byte(q.After.Conversation), []byte(q.After.Row.Key)
		if q.Kind == ledger.ScanOpen {
			number = int64(q.After.Row.Index.At)
		}
	}
	first, text, one := s.now(), s.texts.scanDue, s.texts.scanDueOne
	if q.Kind == ledger.ScanOpen {
		kind := int(q.Open) - 1
		if kind < 0 || kind >= len(s.texts.scanOpen) {
			return "", nil
		}
		first, text, one = int64(q.Before), s.texts.scanOpen[kind], s.texts.scanOpenOne[kind]
	}
	if q.Conversation != "" {
		return one, []any{first, []byte(q.Conversation), limit, number, name, key}
	}
	return text, []any{first, []byte(q.Prefix), below(q.Prefix), limit, number, name, key}
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

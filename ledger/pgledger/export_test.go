package pgledger

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/internal/seam"
)

// OpenSeamed is Open on another clock. All that share a schema must agree on the clock.
func OpenSeamed(ctx context.Context, pool *pgxpool.Pool, config *Config, s *seam.Seam) (*Store, error) {
	store, err := open(ctx, pool, config, s)
	if err == nil {
		store.clock = s.Now
	}
	return store, err
}

// Unflushed makes a store that never waits for the disk, for tests that write a lot and pull no
// plug. Through a pooler the session's settings cannot say so.
func Unflushed(s *Store) *Store {
	s.never = true
	return s
}

// Mode returns how the store's statements are sent.
func Mode(s *Store) pgx.QueryExecMode { return s.mode }

// Version is that of the last migration.
var Version = len(migrations)

// Queries are the texts of a schema, by name.
func Queries(schema string) map[string]string {
	t := textsFor(schema)
	return map[string]string{
		"load": t.load, "load_more": t.loadMore, "lock": t.lock,
		"create": t.create, "put1": t.put1, "puts": t.puts, "change": t.change, "drop": t.drop,
		"renew": t.renew, "home": t.home, "bury": t.bury, "exhume": t.exhume,
		"scan_open 1": t.scanOpen[0], "scan_open 2": t.scanOpen[1], "scan_open_one 1": t.scanOpenOne[0], "scan_open_one 2": t.scanOpenOne[1],
		"scan_due": t.scanDue, "scan_due_one": t.scanDueOne, "scan_rows": t.scanRows,
	}
}

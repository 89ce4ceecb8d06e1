//go:build unix

package pgledger_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

// quiet starts a server of the test's own, on which nothing but the test writes.
func quiet(t testing.TB, settings ...string) *private.Postgres {
	t.Helper()
	if _, ok := private.ServicePostgres.Find(); !ok {
		private.Unavailable(t, "Postgres is not installed: none can be started")
	}
	folder, err := private.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	})
	server, err := private.StartPostgres(t.Context(), filepath.Join(folder.Path, "postgres"), settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Crash(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Flushes are counted by the server itself, which does nothing else here.
func TestAnEffectFlushesOnceAndAReplayNever(t *testing.T) {
	server := quiet(t, "autovacuum=off", "wal_writer_delay=10s", "wal_writer_flush_after=128MB", "checkpoint_timeout=1h", "bgwriter_lru_maxpages=0")
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprint("flush all ", all), func(t *testing.T) {
			pool := poolOf(t, server.URL, func(c *pgxpool.Config) { c.MaxConns = 1 })
			schema := fresh(t, pool)
			store := opened(t, pool, pgledger.Config{Schema: schema, FlushAll: all})
			flushes := func() int {
				t.Helper()
				run(t, pool, "select pg_stat_force_next_flush()")
				return scalar[int](t, pool, "select wal_sync from pg_stat_wal")
			}
			h := begun(t, newLedger(store), "c", "j")
			const n = 100
			// The log writer may flush for itself now and then what nobody waits for.
			const slack = 5
			measured := func(what string, want int, do func(i int)) {
				t.Helper()
				run(t, pool, "checkpoint")
				before := flushes()
				for i := range n {
					do(i)
				}
				if got := flushes() - before; got < want || got > want+slack {
					t.Errorf("%d times %s: %d flushes, want %d", n, what, got, want)
				}
			}
			once := n
			if all {
				once = 2 * n
			}
			measured("claim and settle", once, func(i int) { settle(t, h, claim(t, h, effect("c", fmt.Sprint(i)))) })
			measured("replay", 0, func(i int) {
				if v, _, err := h.Claim(t.Context(), effect("c", fmt.Sprint(i))); err != nil || v.Replay == nil {
					t.Fatalf("%+v, %v", v, err)
				}
			})
			if all {
				return
			}
			measured("begin", 0, func(i int) { begun(t, newLedger(store), fmt.Sprint("c", i), fmt.Sprint("j", i)) })
			measured("renew", 0, func(int) {
				if _, err := store.Renew(t.Context(), []ledger.LeaseKey{h.Lease()}, time.Minute); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

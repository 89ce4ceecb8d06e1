package pgledger_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

func pgbouncer(t testing.TB) string { return private.ServicePgBouncer.Need(t) }

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
}

// Case F16: the whole contract through PgBouncer in transaction mode.
func TestContractThroughPgBouncer(t *testing.T) {
	direct := poolOf(t, postgres(t))
	contractOn(t, direct, pgbouncer(t), pgledger.Config{Pooler: true})
}

// Case F16: what would fail in the middle of a job is refused at the start, and what would not is not.
func TestOpenSaysWhichModesAreSafeBehindAPooler(t *testing.T) {
	direct := poolOf(t, postgres(t))
	schema := fresh(t, direct)
	for _, c := range []struct {
		pool   pgx.QueryExecMode
		config pgledger.Config
		want   pgx.QueryExecMode // 0: refused
	}{
		{pgx.QueryExecModeCacheStatement, pgledger.Config{}, 0},
		{pgx.QueryExecModeDescribeExec, pgledger.Config{}, 0},
		{pgx.QueryExecModeCacheDescribe, pgledger.Config{}, pgx.QueryExecModeCacheDescribe},
		{pgx.QueryExecModeExec, pgledger.Config{}, pgx.QueryExecModeExec},
		{pgx.QueryExecModeSimpleProtocol, pgledger.Config{}, pgx.QueryExecModeSimpleProtocol},
		{pgx.QueryExecModeCacheStatement, pgledger.Config{Pooler: true}, pgx.QueryExecModeCacheDescribe},
		{pgx.QueryExecModeDescribeExec, pgledger.Config{Pooler: true}, pgx.QueryExecModeCacheDescribe},
		{pgx.QueryExecModeCacheStatement, pgledger.Config{ExecMode: pgx.QueryExecModeExec}, pgx.QueryExecModeExec},
		{pgx.QueryExecModeExec, pgledger.Config{ExecMode: pgx.QueryExecModeDescribeExec}, 0},
		{pgx.QueryExecModeExec, pgledger.Config{Pooler: true, ExecMode: pgx.QueryExecModeDescribeExec}, 0},
		{pgx.QueryExecModeExec, pgledger.Config{ExecMode: pgx.QueryExecModeCacheStatement}, pgx.QueryExecModeCacheStatement},
	} {
		t.Run(fmt.Sprintf("%s, %v, %s", c.pool, c.config.Pooler, c.config.ExecMode), func(t *testing.T) {
			pool := poolOf(t, pgbouncer(t), inMode(c.pool))
			c.config.Schema = schema
			if c.want == 0 {
				wantError(t, pool, c.config, "pooler", "Config.Pooler", "transaction mode")
				return
			}
			if got := pgledger.Mode(opened(t, pool, c.config)); got != c.want {
				t.Errorf("statements are sent in mode %s, want %s", got, c.want)
			}
		})
	}
	// Without a cache of descriptions there is another safe mode.
	pool := poolOf(t, pgbouncer(t), func(c *pgxpool.Config) { c.ConnConfig.DescriptionCacheCapacity = 0 })
	if got := pgledger.Mode(opened(t, pool, pgledger.Config{Schema: schema, Pooler: true})); got != pgx.QueryExecModeExec {
		t.Errorf("mode %s", got)
	}
	// And without a pooler nothing is refused.
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec} {
		if got := pgledger.Mode(opened(t, poolOf(t, postgres(t), inMode(mode)), pgledger.Config{Schema: schema})); got != mode {
			t.Errorf("mode %s, want the pool's own %s", got, mode)
		}
	}
}

func TestMigrateThroughPgBouncer(t *testing.T) {
	direct := poolOf(t, postgres(t))
	schema := schemaName(t, direct)
	pool := poolOf(t, pgbouncer(t))
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := pgledger.Migrate(context.Background(), pool, schema); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	opened(t, pool, pgledger.Config{Schema: schema, Pooler: true})
}

// Case F16: 20 clients over 2 connections of the server, in every safe mode, while those
// connections are recycled.
func TestTwentyClientsShareTwoServerConnections(t *testing.T) {
	const clients, effects = 20, 10
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			direct := poolOf(t, postgres(t))
			schema := fresh(t, direct)
			handles := make([]*ledger.Handle, clients)
			for i := range handles {
				pool := poolOf(t, pgbouncer(t), inMode(mode), func(c *pgxpool.Config) { c.MaxConns = 1 })
				store := pgledger.Unflushed(opened(t, pool, pgledger.Config{Schema: schema, ExecMode: mode}))
				handles[i] = begun(t, ledger.New(store, ledger.Options{Seam: seam.Real(), Rules: rules, Tries: 50}), "c", fmt.Sprint("j", i))
			}
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
					}
					_, _ = direct.Exec(context.Background(), `select pg_terminate_backend(pid) from pg_stat_activity
						where pid <> pg_backend_pid() and query like '%' || $1 || '%'`, schema)
				}
			}()
			var calls [effects]atomic.Int64
			var wg sync.WaitGroup
			for i, h := range handles {
				wg.Go(func() {
					for n := range effects {
						q := effect("c", fmt.Sprint((n+i)%effects))
						q.Policy, q.AfterUnresolved = fence.NoChange, true
						if err := onceMore(context.Background(), h, q, &calls[(n+i)%effects]); err != nil {
							t.Errorf("client %d: %v", i, err)
						}
					}
				})
			}
			wg.Wait()
			close(stop)
			<-stopped
			for n := range calls {
				if got := calls[n].Load(); got != 1 {
					t.Errorf("effect %d was called %d times", n, got)
				}
			}
		})
	}
}

package pgledger_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

// contract runs the contract over pools that change may change. It waits for no flush: it pulls no
// plug.
func contract(t *testing.T, config pgledger.Config, change ...func(*pgxpool.Config)) {
	t.Helper()
	contractOn(t, poolOf(t, postgres(t)), postgres(t), config, change...)
}

func contractOn(t *testing.T, direct *pgxpool.Pool, url string, config pgledger.Config, change ...func(*pgxpool.Config)) {
	t.Helper()
	pool, second := poolOf(t, url, change...), poolOf(t, url, change...)
	configs := map[ledger.Store]pgledger.Config{}
	ledgertest.RunShared(t,
		func(t *testing.T) ledger.Store {
			c := config
			c.Schema = fresh(t, direct)
			store := pgledger.Unflushed(opened(t, pool, c))
			configs[store] = c
			return store
		},
		func(t *testing.T, store ledger.Store) ledger.Store {
			return pgledger.Unflushed(opened(t, second, configs[store]))
		})
}

func TestContract(t *testing.T) { contract(t, pgledger.Config{}) }

func TestContractWhereEverythingIsSerializable(t *testing.T) {
	contract(t, pgledger.Config{}, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable" })
}

func TestContractWhereEveryReadIsRepeatable(t *testing.T) {
	takesLong(t)
	contract(t, pgledger.Config{}, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	})
}

func TestContractInEveryMode(t *testing.T) {
	takesLong(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) { contract(t, pgledger.Config{}, inMode(mode)) })
	}
}

func TestMemoryAndPostgresHoldTheSameAfterEveryStep(t *testing.T) {
	seeds := 8
	if testing.Short() {
		seeds = 2
	}
	pool := poolOf(t, postgres(t), unflushed)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			ledgertest.Same(t, uint64(seed), 300,
				func(_ *testing.T, s *seam.Seam) ledger.Store { return memledger.NewSeamed(s) },
				func(t *testing.T, s *seam.Seam) ledger.Store {
					store, err := pgledger.OpenSeamed(t.Context(), pool, &pgledger.Config{Schema: fresh(t, pool)}, s)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { store.Close() })
					return store
				})
		})
	}
}

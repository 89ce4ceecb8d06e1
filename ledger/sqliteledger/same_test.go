package sqliteledger_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

func TestMemoryAndSQLiteHoldTheSameAfterEveryStep(t *testing.T) {
	seeds := 8
	if race.Enabled || testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			ledgertest.Same(t, uint64(seed), 300,
				func(_ *testing.T, s *seam.Seam) ledger.Store { return memledger.NewSeamed(s) },
				func(t *testing.T, s *seam.Seam) ledger.Store {
					store, err := sqliteledger.OpenSeamed(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), nil, s)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { store.Close() })
					return sqliteledger.Unflushed(store)
				})
		})
	}
}

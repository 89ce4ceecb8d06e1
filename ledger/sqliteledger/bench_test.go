package sqliteledger_test

import (
	"path/filepath"
	"testing"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

func BenchmarkLedger(b *testing.B) {
	ledgertest.Benchmark(b, func(b *testing.B) ledger.Store {
		store, err := sqliteledger.Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { store.Close() })
		return store
	})
}

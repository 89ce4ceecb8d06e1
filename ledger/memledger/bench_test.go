package memledger_test

import (
	"testing"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

func BenchmarkLedger(b *testing.B) {
	ledgertest.Benchmark(b, func(*testing.B) ledger.Store { return memledger.New() })
}

package memledger_test

import (
	"testing"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

func TestContract(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledger.Store { return memledger.New() })
}

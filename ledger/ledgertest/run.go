package ledgertest

import (
	"testing"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/ledger"
)

// Run checks that the stores which open returns keep the contract. open is called for each test
// and must return a store without any data; what it opened it closes with t.Cleanup. The tests
// ask nothing of the store's clock but that it goes on.
//
// With -short, and under the race detector, long histories are a tenth as long and some repetitions
// fewer.
func Run(t *testing.T, open func(t *testing.T) ledger.Store) {
	t.Helper()
	RunShared(t, open, func(_ *testing.T, store ledger.Store) ledger.Store { return store })
}

// RunShared is [Run] for a store that several processes share: again returns another handle on the
// data of store, as another process would open it.
func RunShared(t *testing.T, open func(t *testing.T) ledger.Store, again func(t *testing.T, store ledger.Store) ledger.Store) {
	t.Helper()
	group := func(name string, tests []test) {
		t.Run(name, func(t *testing.T) {
			for _, c := range tests {
				t.Run(c.promises, func(t *testing.T) {
					store := open(t)
					c.run(&bench{TB: t, t: t, ctx: t.Context(), store: store, open: open, again: again})
				})
			}
		})
	}
	group("store", storeTests)
	group("ledger", ledgerTests)
}

func brief() bool { return race.Enabled || testing.Short() }

// test is one promise of the contract.
type test struct {
	promises string
	run      func(*bench)
}

var storeTests = concat(applyTests, loadTests, leaseTests, homeTests, scanTests, raceTests)

func concat(groups ...[]test) []test {
	var all []test
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

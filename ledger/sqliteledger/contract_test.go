package sqliteledger_test

import (
	"path/filepath"
	"testing"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

// files remembers which file a store was opened on.
var files = map[ledger.Store]string{}

func open(t *testing.T, path string) ledger.Store {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	files[store] = path
	sqliteledger.Unflushed(store)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func TestContract(t *testing.T) {
	ledgertest.RunShared(t,
		func(t *testing.T) ledger.Store { return open(t, filepath.Join(t.TempDir(), "ledger.db")) },
		func(t *testing.T, store ledger.Store) ledger.Store { return open(t, files[store]) })
}

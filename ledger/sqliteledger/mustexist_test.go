package sqliteledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

// A tool that looks at somebody else's ledger makes none where there is none.
func TestALedgerThatMustExistIsNotMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	config := &sqliteledger.Config{MustExist: true}
	if _, err := sqliteledger.Open(t.Context(), path, config); !errors.Is(err, sqliteledger.ErrNoLedger) {
		t.Errorf("where there is no file: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("there is a file now")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqliteledger.Open(t.Context(), path, config); !errors.Is(err, sqliteledger.ErrNoLedger) {
		t.Errorf("in an empty file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("the file has %d bytes now, %v", len(text), err)
	}
	open(t, path)
	store, err := sqliteledger.Open(t.Context(), path, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

package sqliteledger_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

func openError(t *testing.T, path string, config *sqliteledger.Config, want ...string) {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), path, config)
	if err == nil {
		store.Close()
		t.Fatalf("Open(%q) gave no error", path)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("Open(%q): %q does not say %q", path, err, w)
		}
	}
}

// foreign makes a database that belongs to somebody else.
func foreign(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsWrongWithAFileIsSaid(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }

	openError(t, "", nil, "sqliteledger: open: path is empty")
	openError(t, ":memory:", nil, "memledger")
	openError(t, "file::memory:?cache=shared", nil, "memledger")
	openError(t, "file:x.db", nil, "not a URI")
	openError(t, "x\x00y", nil, "NUL")
	openError(t, file("x.db"), &sqliteledger.Config{BusyTimeout: -1}, "Config.BusyTimeout")
	openError(t, file("x.db"), &sqliteledger.Config{Readers: -1}, "Config.Readers")
	openError(t, file("missing/x.db"), nil, "does its directory exist", "missing/x.db")
	openError(t, dir, nil, "may this process use it")

	if err := os.WriteFile(file("text.db"), []byte(strings.Repeat("no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	openError(t, file("text.db"), nil, "no SQLite database")

	foreign(t, file("foreign.db"), "create table users (id integer)")
	openError(t, file("foreign.db"), nil, "no ledger")
	foreign(t, file("other.db"), "pragma application_id = 7")
	openError(t, file("other.db"), nil, "no ledger")
	foreign(t, file("newer.db"), "pragma application_id = 0x666e6472; pragma user_version = 99; create table x (y)")
	openError(t, file("newer.db"), nil, "version 99", "newer version")
}

func TestAForeignFileIsLeftAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "foreign.db")
	foreign(t, path, "create table users (id integer)")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	openError(t, path, nil)
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(after, before) {
		t.Errorf("Open changed a file that is not its own: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("Open left %v beside it, %v", entries, err)
	}
}

func TestAFileThatMayNotBeWrittenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	open(t, path)
	store, err := sqliteledger.OpenReadOnly(t.Context(), path)
	if err == nil {
		store.Close()
		t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), "may not be written") {
		t.Errorf("%q does not say that the file may not be written", err)
	}
}

func TestAPathIsAPath(t *testing.T) {
	for _, name := range []string{"a b.db", "a?mode=memory.db", "a%20b.db", "a#b.db", "ä☂.db", "a&b=c.db", "_pragma=x"} {
		path := filepath.Join(t.TempDir(), name)
		store := open(t, path)
		if _, err := store.Apply(t.Context(), "c", ledger.Write{NewTag: "t", Head: ledger.NewRow("", noIndex, []byte("h"))}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestARelativePathIsOfTheDirectoryAtOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	store := open(t, "ledger.db")
	t.Chdir(t.TempDir())
	// A second connection is opened only now.
	if _, err := store.Load(t.Context(), "c", ledger.Query{}); err != nil {
		t.Error(err)
	}
}

func TestAClosedLedgerSaysSo(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	for range 2 {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Apply(t.Context(), "c", ledger.Write{NewTag: "t"}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Apply: %v", err)
	}
	if _, err := store.Load(t.Context(), "c", ledger.Query{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Load: %v", err)
	}
}

func TestOpenGivesUpWithItsCtx(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if store, err := sqliteledger.Open(ctx, filepath.Join(t.TempDir(), "ledger.db"), nil); err == nil {
		store.Close()
		t.Error("no error")
	}
}

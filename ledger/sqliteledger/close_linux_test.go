package sqliteledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

// A store that is closed lets go of its file, and leaves nothing beside it.
func TestCloseLetsGoOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	store, err := sqliteledger.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		r, err := store.Apply(t.Context(), name, ledger.Write{NewTag: "t", Head: ledger.NewRow("", fence.Index{}, []byte("h"))})
		if err != nil || !r.Applied {
			t.Fatal(r, err)
		}
		if _, err := store.Load(t.Context(), name, ledger.Query{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := held(t, path); n == 0 {
		t.Fatal("no descriptor is open while the store is: the test does not see them")
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if n := held(t, path); n > 0 {
		t.Errorf("%d descriptors of the file are open", n)
	}
	left, err := filepath.Glob(path + "-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left beside the file: %v, %v", left, err)
	}
	if _, err := store.Load(t.Context(), "a", ledger.Query{}); err == nil {
		t.Error("a closed store answers")
	}
}

// held counts this process's descriptors of a file and of what SQLite keeps beside it.
func held(t *testing.T, path string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, path) {
			n++
		}
	}
	return n
}

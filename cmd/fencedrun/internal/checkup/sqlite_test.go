package checkup

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// ledgerAt makes a ledger with something in it.
func ledgerAt(t *testing.T, path string) {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := runs.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for id := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz", "") {
			effect := runs.Effect{Intent: "reply", Key: runs.ID(id), Summary: strings.Repeat("x", 500)}
			if err := keeper.Once(t.Context(), "c"+id, effect, func(context.Context, *runs.Call) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := keeper.Close(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", source(path, ""))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func sqliteFindings(t *testing.T, path string) []Finding {
	t.Helper()
	r := Check(t.Context(), Target{Kind: SQLite, SQLite: path, Records: &fake{}})
	complete(t, r.Findings)
	return r.Findings
}

func TestSQLiteAsItShouldBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c.db")
	ledgerAt(t, path)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	findings := sqliteFindings(t, path)
	for _, f := range findings {
		if f.Level != OK && f.Check != "file_system" && f.Check != "disk" { // the machine's own matter
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{"file", "journal_mode", "integrity", "busy", "synchronous"} {
		wants(t, findings, check, "ok: ")
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the checkup changed the file: %v", err)
	}
}

func TestFilesThatHurtAreFound(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	wants(t, sqliteFindings(t, file("none.db")), "file", "problem: there is no file to look at")
	wants(t, sqliteFindings(t, dir), "file", "problem: "+dir+" is a directory")
	if err := os.WriteFile(file("text.db"), []byte(strings.Repeat("no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, sqliteFindings(t, file("text.db")), "file", "problem: the file is no SQLite database")
	run(t, open(t, file("other.db")), "create table users (id integer)")
	wants(t, sqliteFindings(t, file("other.db")), "file", "problem: the file is a SQLite database, but no ledger")
	for _, name := range []string{"none.db", "text.db-wal"} {
		if _, err := os.Stat(file(name)); err == nil {
			t.Errorf("the checkup made %s", name)
		}
	}

	ledgerAt(t, file("good.db"))
	run(t, open(t, file("good.db")), "pragma wal_checkpoint(truncate)")
	good, err := os.ReadFile(file("good.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("journal.db"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, open(t, file("journal.db")), "pragma journal_mode = delete")
	wants(t, sqliteFindings(t, file("journal.db")), "journal_mode", "warning: journal_mode is delete")

	for i := 3 * 4096; i < 5*4096; i++ {
		good[i] ^= 0x5a
	}
	if err := os.WriteFile(file("damaged.db"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, sqliteFindings(t, file("damaged.db")), "integrity", "problem: the file is damaged: ")
}

func TestAWriterThatNeverEndsIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	ledgerAt(t, path)
	db := open(t, path)
	run(t, db, "begin immediate")
	wants(t, sqliteFindings(t, path), "busy", "problem: another process has kept the file from being written for 3s")
	run(t, db, "rollback")
	wants(t, sqliteFindings(t, path), "busy", "ok: ")
}

func TestFileSystemsAreJudged(t *testing.T) {
	for want, fs := range map[string]fileSystem{
		"ok: the file is on a local file system":                     {size: 1 << 40, free: 1 << 39},
		"problem: the file is on a network file system (NFS)":        {name: "NFS", kind: network},
		"problem: the file is on overlayfs":                          {name: "overlayfs", kind: forgetful},
		"warning: the file is on a file system in user space (FUSE)": {name: "FUSE", kind: userSpace},
	} {
		l := &list{}
		l.judgeFileSystem(fs)
		wants(t, l.findings, "file_system", want)
		wants(t, l.findings, "disk")
		complete(t, l.findings)
	}
	l := &list{}
	l.judgeFileSystem(fileSystem{readOnly: true, size: 1 << 40, free: 5 << 20})
	wants(t, l.findings, "read_only", "problem: the file system is mounted read-only")
	wants(t, l.findings, "disk", "warning: 5 MB are free")
	l.wal(65 << 20)
	wants(t, l.findings, "wal", "warning: the file's log (-wal) has 65 MB")
	complete(t, l.findings)
}

func TestMemoryIsNoDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system does not say what a file system is")
	}
	if fs, err := statfs("/proc/self/status"); err != nil || fs.kind != local {
		t.Errorf("/proc: %+v, %v", fs, err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "fencedrun-test-") //nolint:usetesting // it must be there
	if err != nil {
		t.Skip("there is no /dev/shm")
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "ledger.db")
	ledgerAt(t, path)
	wants(t, sqliteFindings(t, path), "file_system", "problem: the file is on tmpfs, which is gone with the machine")
}

package sqliteledger_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

var noIndex fence.Index

func change(tag, next string, durable bool) ledger.Write {
	return ledger.Write{Tag: tag, NewTag: next, Head: ledger.NewRow("", noIndex, []byte(next)), Durable: durable}
}

func must(t *testing.T, store ledger.Store, w ledger.Write) {
	t.Helper()
	if r, err := store.Apply(t.Context(), "c", w); err != nil || !r.Applied {
		t.Fatalf("Apply: %+v, %v", r, err)
	}
}

func TestWhatMustSurviveIsFlushedAndNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	for _, c := range []struct {
		all  bool
		want [4]int
	}{{false, [4]int{1, 2, 1, 2}}, {true, [4]int{2, 2, 2, 2}}} {
		store, err := sqliteledger.Open(t.Context(), path, &sqliteledger.Config{FlushAll: c.all})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		snap, err := store.Load(t.Context(), "c", ledger.Query{})
		if err != nil {
			t.Fatal(err)
		}
		tag := snap.Tag
		for i, do := range []func(){
			func() { must(t, store, change(tag, tag+"1", false)) },
			func() { must(t, store, change(tag+"1", tag+"2", true)) },
			func() {
				if _, err := store.Renew(t.Context(), []ledger.LeaseKey{{Conversation: "c"}}, time.Minute); err != nil {
					t.Error(err)
				}
			},
			func() {
				if _, err := store.Bury(t.Context(), "run"+tag, nil, 1); err != nil {
					t.Error(err)
				}
			},
		} {
			do()
			if got, err := sqliteledger.Synchronous(store); err != nil || got != c.want[i] {
				t.Errorf("flush all %v, change %d: synchronous %d, %v, want %d", c.all, i, got, err, c.want[i])
			}
		}
	}
}

// holding takes the file's write lock from outside until the function it returns is called.
func holding(t *testing.T, path string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	released := false
	release = func() {
		if !released {
			released = true
			conn.Close()
			db.Close()
		}
	}
	t.Cleanup(release)
	return release
}

func TestAWriteWaitsForAnotherProcessWithinItsBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	store, err := sqliteledger.Open(t.Context(), path, &sqliteledger.Config{BusyTimeout: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	must(t, store, change("", "1", false))
	release := holding(t, path)

	_, err = store.Apply(t.Context(), "c", change("1", "2", true))
	if err == nil || !strings.Contains(err.Error(), "other processes have been writing") {
		t.Errorf("beyond the busy timeout: %v", err)
	}
	if snap, err := store.Load(t.Context(), "c", ledger.Query{}); err != nil || snap.Tag != "1" {
		t.Errorf("reads must not wait for a writer: %+v, %v", snap, err)
	}

	patient := open(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := patient.Apply(ctx, "c", change("1", "2", true)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beyond its own deadline: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		r, err := patient.Apply(context.Background(), "c", change("1", "3", true))
		if err == nil && !r.Applied {
			err = errors.New("refused")
		}
		done <- err
	}()
	time.Sleep(5 * time.Millisecond) // most likely it waits by now; it must come right either way
	release()
	if err := <-done; err != nil {
		t.Errorf("once the other process is done: %v", err)
	}
}

func TestAPanicUnderTheLockLeavesNothingBehind(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	must(t, store, change("", "1", false))
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not pass through")
			}
		}()
		store.(ledger.Locker).WithLock(t.Context(), "c", func(tx ledger.Tx) error {
			if r, err := tx.Apply(t.Context(), "c", change("1", "2", false)); err != nil || !r.Applied {
				t.Errorf("%+v, %v", r, err)
			}
			panic("boom")
		})
	}()
	must(t, store, change("1", "3", false))
}

func TestALostConnectionIsReplaced(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "ledger.db")).(*sqliteledger.Store)
	must(t, store, change("", "1", true))
	if err := sqliteledger.Disconnect(store); err != nil {
		t.Fatal(err)
	}
	must(t, store, change("1", "2", true))
}

func TestWhatWasWrittenIsThereAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	store := open(t, path)
	must(t, store, change("", "1", false))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if snap, err := open(t, path).Load(t.Context(), "c", ledger.Query{}); err != nil || snap.Tag != "1" {
		t.Errorf("%+v, %v", snap, err)
	}
}

// Every statement finds its rows by an index: with one conversation of 10,000 rows among many
// small ones none may walk through all of them, whatever the statistics say.
func TestNoStatementWalksThroughATable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	open(t, path)
	db := database(t, path)
	for _, statistics := range []bool{false, true} {
		if statistics {
			_, err := db.ExecContext(t.Context(), `
				with recursive n (i) as (select 1 union all select i + 1 from n where i < 3000)
				insert into record select 1, cast(i as blob), i % 3, i, i, i, x'00' from n;
				with recursive n (i) as (select 2 union all select i + 1 from n where i < 300)
				insert into record select i, x'00', 1, i, i, i, x'00' from n;
				insert into conversation select distinct conv, cast(conv as blob), x'00', x'00', 5 from record;
				insert into lease select distinct conv, x'00', x'00', 1 from record;
				insert into home select cast(conv as blob), null, null, 1 from record where conv > 1;
				analyze`)
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range sqliteledger.Queries {
			for _, line := range plan(t, db, text) {
				walks := strings.HasPrefix(line, "SCAN ")
				for _, small := range []string{"k", "c", "clock", "q", "CONSTANT", "(subquery", "json_each"} {
					// A CTE of one row, the question itself, or a constant.
					walks = walks && !strings.HasPrefix(line, "SCAN "+small+" ") && line != "SCAN "+small && !strings.HasPrefix(line, "SCAN "+small+"-")
				}
				if walks && !strings.Contains(line, "CONSTANT ROW") {
					t.Errorf("%s (statistics: %v): %s", name, statistics, line)
				}
			}
		}
	}
}

// database opens a ledger's file without the ledger.
func database(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func plan(t *testing.T, db *sql.DB, text string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "explain query plan "+text, make([]any, strings.Count(text, "?"))[:parameters(text)]...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// parameters returns the highest number of a parameter of text.
func parameters(text string) int {
	highest := 0
	for n := 1; n < 10; n++ {
		if strings.Contains(text, "?"+string(rune('0'+n))) {
			highest = n
		}
	}
	return highest
}

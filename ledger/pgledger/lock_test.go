package pgledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

// waiting returns once n statements of the schema wait for a lock.
func waiting(t *testing.T, pool *pgxpool.Pool, schema string, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		got := scalar[int](t, pool, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'", schema)
		if got >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d statements wait for a lock, want %d", got, n)
		}
	}
}

// state is a whole conversation at one tag.
func state(from, tag string) ledger.Write {
	w := change(from, tag, false)
	w.Put = []ledger.Row{ledger.NewRow("k", noIndex, []byte(tag)), ledger.NewRow("k"+tag, noIndex, []byte(tag))}
	w.Leases = []ledger.LeaseWrite{{Run: tag, Nonce: tag, For: time.Minute}, {Run: from, Nonce: from}}
	return w
}

func consistent(t *testing.T, what string, s ledger.Snapshot) {
	t.Helper()
	head, _ := s.Head.Body()
	if len(s.Rows) != 1 || len(s.Leases) != 1 {
		t.Fatalf("%s: %+v", what, s)
	}
	row, _ := s.Rows[0].Body()
	if string(head) != s.Tag || string(row) != s.Tag || s.Leases[0].Run != s.Tag {
		t.Errorf("%s: tag %s, head %s, row %s, lease %s", what, s.Tag, head, row, s.Leases[0].Run)
	}
}

// A statement that has waited for a row's lock sees that row anew and all others as they were before
// it waited. Nothing of that may get out.
func TestWhoWaitedForALockSeesThePresent(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level })
			must(t, store, "c", state("", "1"))
			// The writer, who takes its time.
			tx, rollback := begin(t, poolOf(t, postgres(t)))
			defer rollback()
			slow, err := store.Join(t.Context(), tx, "c")
			if err != nil {
				t.Fatal(err)
			}
			if r, err := slow.Apply(t.Context(), "c", state("1", "2")); err != nil || !r.Applied {
				t.Fatalf("%+v, %v", r, err)
			}
			want := ledger.Query{Keys: []string{"k"}}
			one := change("1", "x", true)
			one.Put, one.Absent = []ledger.Row{ledger.NewRow("k2", noIndex, []byte("x"))}, []string{"k2"}
			many := state("1", "y")
			many.Absent = []string{"k2"}
			errs := make(chan error, 3)
			for _, w := range []ledger.Write{one, many} {
				w.Want = want
				go func() {
					r, err := store.Apply(context.Background(), "c", w)
					switch {
					case err != nil:
					case r.Applied:
						err = errors.New("a change of what had changed was applied")
					case r.Current != nil && (r.Current.Tag != "2" || len(r.Current.Leases) != 1 || r.Current.Leases[0].Run != "2"):
						err = fmt.Errorf("shown %+v", *r.Current)
					}
					errs <- err
				}()
			}
			var seen ledger.Snapshot
			calls := 0
			go func() {
				errs <- store.WithLock(context.Background(), "c", func(tx ledger.Tx) (err error) {
					calls++
					seen, err = tx.Load(context.Background(), "c", want)
					return err
				})
			}()
			waiting(t, pool, schema, 3)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if calls != 1 {
				t.Errorf("who waited its turn lost it %d times", calls-1)
			}
			if seen.Tag != "2" {
				t.Errorf("under the lock the tag is %q, want 2", seen.Tag)
			}
			consistent(t, "under the lock", seen)
		})
	}
}

// A conversation that does not exist has no row to lock: of those who make it under the lock, one
// does, and the others find it.
func TestALockOnAConversationThatIsNotThere(t *testing.T) {
	store, pool, schema := newStore(t)
	tx, _ := begin(t, pool)
	slow, err := store.Join(t.Context(), tx, "c")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := slow.Apply(t.Context(), "c", state("", "1")); err != nil || !r.Applied {
		t.Fatalf("%+v, %v", r, err)
	}
	done := make(chan error, 1)
	go func() {
		done <- store.WithLock(context.Background(), "c", func(tx ledger.Tx) error {
			ctx := context.Background()
			snap, err := tx.Load(ctx, "c", ledger.Query{})
			if err != nil || snap.Tag != "" {
				return fmt.Errorf("at first: %+v, %w", snap, err)
			}
			if r, err := tx.Apply(ctx, "c", state("", "mine")); err != nil || r.Applied {
				return fmt.Errorf("the second to make it: %+v, %w", r, err)
			}
			if snap, err = tx.Load(ctx, "c", ledger.Query{Keys: []string{"k"}}); err != nil || snap.Tag != "1" {
				return fmt.Errorf("after the refusal: %+v, %w", snap, err)
			}
			if r, err := tx.Apply(ctx, "c", state("1", "2")); err != nil || !r.Applied {
				return fmt.Errorf("%+v, %w", r, err)
			}
			return nil
		})
	}()
	waiting(t, pool, schema, 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if tag := tagOf(t, store, "c"); tag != "2" {
		t.Errorf("the tag is %q", tag)
	}
}

func TestAPanicUnderTheLockLeavesNothingBehind(t *testing.T) {
	store, _, _ := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	must(t, store, "c", change("", "1", false))
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not pass through")
			}
		}()
		_ = store.WithLock(t.Context(), "c", func(tx ledger.Tx) error {
			if r, err := tx.Apply(t.Context(), "c", change("1", "2", false)); err != nil || !r.Applied {
				t.Errorf("%+v, %v", r, err)
			}
			panic("boom")
		})
	}()
	must(t, store, "c", change("1", "3", false)) // and the pool's only connection is back
}

func TestALockCostsThreeTrips(t *testing.T) {
	var r tracer
	store, _, _ := newStore(t, traced(&r))
	must(t, store, "c", change("", "1", false))
	r.take()
	if err := store.WithLock(t.Context(), "c", func(tx ledger.Tx) error {
		if _, err := tx.Load(t.Context(), "c", ledger.Query{}); err != nil {
			return err
		}
		_, err := tx.Apply(t.Context(), "c", change("1", "2", false))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := r.take(); n != 2 { // a batch is not traced as a query
		t.Errorf("%d statements beside the batch of begin, lock and load, want apply and commit", n)
	}
	if err := store.WithLock(t.Context(), "c", func(ledger.Tx) error { return nil }); err != nil || r.take() != 0 {
		t.Errorf("who asks for nothing costs something: %v", err)
	}
}

func joined(t *testing.T, store *pgledger.Store, tx pgx.Tx, w ledger.Write) {
	t.Helper()
	j, err := store.Join(t.Context(), tx, "c")
	if err != nil {
		t.Fatal(err)
	}
	if snap, err := j.Load(t.Context(), "c", ledger.Query{}); err != nil || snap.Tag != w.Tag {
		t.Fatalf("%+v, %v", snap, err)
	}
	if r, err := j.Apply(t.Context(), "c", w); err != nil || !r.Applied {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestAJoinedTransactionWritesWhatItsOwnerCommits(t *testing.T) {
	// One connection: Join needs no other.
	store, pool, _ := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	must(t, store, "c", change("", "1", false))
	tx, rollback := begin(t, pool)
	joined(t, store, tx, change("1", "2", true))
	rollback()
	if tag := tagOf(t, store, "c"); tag != "1" {
		t.Errorf("rolled back, and the tag is %q", tag)
	}
	tx, _ = begin(t, pool)
	joined(t, store, tx, change("1", "3", true))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tag := tagOf(t, store, "c"); tag != "3" {
		t.Errorf("committed, and the tag is %q", tag)
	}
	// A savepoint is a transaction too.
	tx, _ = begin(t, pool)
	inner, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	joined(t, store, inner, change("3", "4", true))
	if err := inner.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	joined(t, store, tx, change("3", "5", true))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tag := tagOf(t, store, "c"); tag != "5" {
		t.Errorf("the tag is %q, want what was not rolled back", tag)
	}
}

func TestAJoinedTransactionKeepsOthersOut(t *testing.T) {
	store, pool, schema := newStore(t)
	must(t, store, "c", change("", "1", false))
	tx, _ := begin(t, pool)
	j, err := store.Join(t.Context(), tx, "c")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		r, err := store.Apply(context.Background(), "c", change("1", "x", true))
		if err == nil && r.Applied {
			err = errors.New("applied under somebody's lock")
		}
		done <- err
	}()
	waiting(t, pool, schema, 1)
	// Reading waits for nobody.
	if tag := tagOf(t, store, "c"); tag != "1" {
		t.Errorf("the tag is %q", tag)
	}
	if r, err := j.Apply(t.Context(), "c", change("1", "2", true)); err != nil || !r.Applied {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOnlyATransactionOfTheLedgersDatabaseIsJoined(t *testing.T) {
	store, pool, schema := newStore(t)
	for _, tx := range []any{nil, "tx", struct{}{}, pool, (*pgx.Tx)(nil)} {
		if _, err := store.Join(t.Context(), tx, "c"); !errors.Is(err, ledger.ErrNoJoin) || !strings.Contains(err.Error(), "tx is") {
			t.Errorf("Join(%T): %v", tx, err)
		}
	}
	name := schema + "_db"
	run(t, pool, "create database "+name)
	elsewhere := func() *pgxpool.Pool {
		config := pool.Config()
		config.ConnConfig.Database = name
		other, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return other
	}()
	t.Cleanup(func() {
		elsewhere.Close()
		if _, err := pool.Exec(context.Background(), "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	tx, rollback := begin(t, elsewhere)
	if _, err := store.Join(t.Context(), tx, "c"); err == nil || !strings.Contains(err.Error(), "there is no ledger in schema") {
		t.Errorf("without a ledger: %v", err)
	}
	rollback()
	if err := pgledger.Migrate(t.Context(), elsewhere, schema); err != nil {
		t.Fatal(err)
	}
	tx, rollback = begin(t, elsewhere)
	defer rollback()
	if _, err := store.Join(t.Context(), tx, "c"); err == nil || !strings.Contains(err.Error(), "of another database") {
		t.Errorf("with another ledger: %v", err)
	}
}

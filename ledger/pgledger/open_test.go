package pgledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

// A child is this test binary, run again to migrate one schema.
const migrateVariable = "PGLEDGER_MIGRATE"

func TestMain(m *testing.M) {
	schema := os.Getenv(migrateVariable)
	if schema == "" {
		os.Exit(m.Run())
	}
	if err := migrateAndMark(context.Background(), schema); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func migrateAndMark(ctx context.Context, schema string) error {
	pool, err := pgxpool.New(ctx, os.Getenv(private.ServicePostgres.Variable()))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pgledger.Migrate(ctx, pool, schema); err != nil {
		return err
	}
	store, err := pgledger.Open(ctx, pool, &pgledger.Config{Schema: schema})
	if err != nil {
		return err
	}
	defer store.Close()
	r, err := store.Apply(ctx, fmt.Sprint(os.Getpid()), change("", "t", false))
	if err == nil && !r.Applied {
		err = errors.New("refused")
	}
	return err
}

func TestTwentyProcessesMakeOneLedger(t *testing.T) {
	pool := poolOf(t, postgres(t))
	schema := schemaName(t, pool)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			cmd := child(t, schema)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process %d: %v: %s", i, err, out)
			}
		})
	}
	wg.Wait()
	if n := scalar[int](t, pool, "select count(*) from "+schema+".conversation"); n != 20 {
		t.Errorf("%d of 20 processes left their mark", n)
	}
	if n := scalar[int](t, pool, "select count(*) from "+schema+".migration"); n != pgledger.Version {
		t.Errorf("%d migrations were applied, want %d, each once", n, pgledger.Version)
	}
	if n := scalar[int](t, pool, "select count(*) from "+schema+".identity"); n != 1 {
		t.Errorf("the ledger has %d identities", n)
	}
}

func child(t *testing.T, schema string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), migrateVariable+"="+schema)
	return cmd
}

func TestThePrintedMigrationIsWhatMigrateDoes(t *testing.T) {
	pool := poolOf(t, postgres(t), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	describe := func(schema string) string {
		return scalar[string](t, pool, `
			select string_agg(replace(line, '`+schema+`', 'SCHEMA'), E'\n' order by line) from (
				select format('%s.%s %s %s', c.relname, a.attname, a.atttypid::regtype, a.attnotnull)
				from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'v')
				union all select indexdef from pg_indexes where schemaname = $1
				union all select pg_get_functiondef(p.oid) from pg_proc p where p.pronamespace = $1::regnamespace
				union all select viewname || definition from pg_views where schemaname = $1
			) x (line)`, schema)
	}
	printed := schemaName(t, pool)
	for range 2 { // it may be run again
		text, err := pgledger.MigrationSQL(printed)
		if err != nil {
			t.Fatal(err)
		}
		run(t, pool, text)
	}
	if got, want := describe(printed), describe(fresh(t, pool)); got != want || len(want) < 2000 {
		t.Errorf("by hand:\n%s\nby Migrate:\n%s", got, want)
	}
	opened(t, pool, pgledger.Config{Schema: printed})
}

func TestMigrateAgainChangesNothing(t *testing.T) {
	store, pool, schema := newStore(t)
	must(t, store, "c", change("", "1", false))
	if err := pgledger.Migrate(t.Context(), pool, schema); err != nil {
		t.Fatal(err)
	}
	if tag := tagOf(t, store, "c"); tag != "1" {
		t.Errorf("after migrating again the tag is %q", tag)
	}
}

// wantError opens a ledger, which must fail and say why.
func wantError(t *testing.T, pool *pgxpool.Pool, config pgledger.Config, want ...string) {
	t.Helper()
	store, err := pgledger.Open(t.Context(), pool, &config)
	if err == nil {
		store.Close()
		t.Fatalf("Open(%+v) gave no error, want %q", config, want)
	}
	for _, w := range append(want, "pgledger: open: ") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("Open(%+v): %q does not say %q", config, err, w)
		}
	}
}

func TestWhatIsWrongIsSaidAtTheStart(t *testing.T) {
	pool := poolOf(t, postgres(t))
	for _, schema := range []string{"a b", "ä", `a"b`, "1a", "a.b", "pg_ledger", strings.Repeat("a", 64), "a\x00", "a$migrate$"} {
		wantError(t, pool, pgledger.Config{Schema: schema}, "Config.Schema")
		if err := pgledger.Migrate(t.Context(), pool, schema); err == nil || !strings.Contains(err.Error(), "pgledger: migrate: schema") {
			t.Errorf("Migrate(%q): %v", schema, err)
		}
	}
	wantError(t, pool, pgledger.Config{ExecMode: 99}, "Config.ExecMode")
	wantError(t, nil, pgledger.Config{}, "pool is nil")
	empty := schemaName(t, pool)
	wantError(t, pool, pgledger.Config{Schema: empty}, "has no ledger in schema "+empty, "pgledger.Migrate", "MigrationSQL")

	newer := fresh(t, pool)
	run(t, pool, "insert into "+newer+".migration (version) values (99)")
	wantError(t, pool, pgledger.Config{Schema: newer}, "of version 99", "newer version")
	if err := pgledger.Migrate(t.Context(), pool, newer); err == nil || !strings.Contains(err.Error(), "of version 99") {
		t.Errorf("Migrate of a newer schema: %v", err)
	}
	older := fresh(t, pool)
	run(t, pool, "delete from "+older+".migration")
	wantError(t, pool, pgledger.Config{Schema: older}, "of version 0", "run pgledger.Migrate")
}

func TestAServerThatCannotBeReachedIsSaid(t *testing.T) {
	postgres(t)
	if _, err := pgledger.Connect(t.Context(), "postgres://127.0.0.1:1/x?connect_timeout=2", nil); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("%v", err)
	}
	if _, err := pgledger.Connect(t.Context(), "postgres://[", nil); err == nil || !strings.Contains(err.Error(), "pgledger: connect: ") {
		t.Errorf("%v", err)
	}
}

func TestAReadOnlySessionIsAnErrorBeforeAnyEffect(t *testing.T) {
	direct := poolOf(t, postgres(t))
	schema := fresh(t, direct)
	readOnly := poolOf(t, postgres(t), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" })
	wantError(t, readOnly, pgledger.Config{Schema: schema}, "read-only")
	if err := pgledger.Migrate(t.Context(), readOnly, schema+"x"); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Migrate: %v", err)
	}

	// It became read-only later, as after a failover.
	var on bool
	pool := poolOf(t, postgres(t), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			if on {
				_, err := conn.Exec(ctx, "set default_transaction_read_only = on")
				return true, err
			}
			return true, nil
		}
	})
	store := opened(t, pool, pgledger.Config{Schema: schema})
	must(t, store, "c", change("", "1", true))
	on = true
	if r, err := store.Apply(t.Context(), "c", change("1", "2", true)); err == nil || r.Applied || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Apply: %+v, %v", r, err)
	}
	if err := store.WithLock(t.Context(), "c", func(tx ledger.Tx) error {
		_, err := tx.Apply(t.Context(), "c", change("1", "2", true))
		return err
	}); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("WithLock: %v", err)
	}
	if tag := tagOf(t, store, "c"); tag != "1" {
		t.Errorf("reading works, and the tag is %q", tag)
	}
}

func TestARoleWithoutRightsIsSaid(t *testing.T) {
	pool := poolOf(t, postgres(t))
	schema := fresh(t, pool)
	role := schema + "_role"
	run(t, pool, "create role "+role+"; grant usage on schema "+schema+" to "+role+"; grant select on all tables in schema "+schema+" to "+role, pgx.QueryExecModeSimpleProtocol)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Error(err)
		}
	})
	weak := poolOf(t, postgres(t), func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set role "+role)
			return err
		}
	})
	wantError(t, weak, pgledger.Config{Schema: schema}, "role "+role+" may not")
	run(t, pool, "grant insert, update, delete on all tables in schema "+schema+" to "+role)
	must(t, opened(t, weak, pgledger.Config{Schema: schema}), "c", change("", "1", false))
}

func TestOpenGivesUpWithItsCtx(t *testing.T) {
	pool := poolOf(t, postgres(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pgledger.Open(ctx, pool, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestCloseClosesWhatTheStoreOpenedAndNothingElse(t *testing.T) {
	pool := poolOf(t, postgres(t))
	schema := fresh(t, pool)
	name := schema + "_app"
	count := func() int {
		return scalar[int](t, pool, "select count(*) from pg_stat_activity where application_name = $1", name)
	}
	gone := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); count() > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections are still there", count())
			}
		}
	}
	own, err := pgledger.Connect(t.Context(), with(t, postgres(t), "application_name", name), &pgledger.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	must(t, own, "c", change("", "1", false))
	if _, err := own.Renew(t.Context(), []ledger.LeaseKey{{Conversation: "c"}}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 2 {
		t.Errorf("%d connections, want one for writing and one for renewals", n)
	}
	for range 2 {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	}
	gone()
	if _, err := own.Load(t.Context(), "c", ledger.Query{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Load: %v", err)
	}
	if _, err := own.Renew(t.Context(), []ledger.LeaseKey{{}}, 1); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Renew: %v", err)
	}

	lent := opened(t, pool, pgledger.Config{Schema: schema})
	if err := lent.Close(); err != nil {
		t.Error(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("Close closed a pool that is not the store's: %v", err)
	}
}

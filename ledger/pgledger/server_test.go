package pgledger_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

// takesLong skips a test unless FENCEDRUN_LONG is set.
func takesLong(t testing.TB) {
	t.Helper()
	postgres(t)
	if os.Getenv("FENCEDRUN_LONG") == "" {
		t.Skip("takes minutes: set FENCEDRUN_LONG=1")
	}
}

func postgres(t testing.TB) string { return private.ServicePostgres.Need(t) }

// poolOf opens a pool that is closed when the test ends.
func poolOf(t testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 10
	for _, c := range change {
		c(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

var schemas atomic.Int64

// schemaName draws the name of a schema that is dropped when the test ends: tests of several
// processes share one server.
func schemaName(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	schema := fmt.Sprintf("test_%d_%d_%d", os.Getpid(), time.Now().UnixNano()%1_000_000_000, schemas.Add(1))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := pool.Exec(ctx, "drop schema if exists "+schema+" cascade"); err != nil {
			t.Error(err)
		}
	})
	return schema
}

// fresh makes an empty ledger.
func fresh(t testing.TB, pool *pgxpool.Pool) (schema string) {
	t.Helper()
	schema = schemaName(t, pool)
	if err := pgledger.Migrate(t.Context(), pool, schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// opened opens a ledger and closes it when the test ends.
func opened(t testing.TB, pool *pgxpool.Pool, config pgledger.Config) *pgledger.Store {
	t.Helper()
	store, err := pgledger.Open(t.Context(), pool, &config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// newStore is an empty ledger on a pool of its own.
func newStore(t testing.TB, change ...func(*pgxpool.Config)) (*pgledger.Store, *pgxpool.Pool, string) {
	t.Helper()
	pool := poolOf(t, postgres(t), change...)
	schema := fresh(t, pool)
	return opened(t, pool, pgledger.Config{Schema: schema}), pool, schema
}

func run(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func scalar[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

var noIndex fence.Index

func change(tag, next string, durable bool) ledger.Write {
	return ledger.Write{Tag: tag, NewTag: next, Head: ledger.NewRow("", noIndex, []byte(next)), Durable: durable}
}

func must(t testing.TB, store ledger.Store, conversation string, w ledger.Write) {
	t.Helper()
	if r, err := store.Apply(t.Context(), conversation, w); err != nil || !r.Applied {
		t.Fatalf("Apply: %+v, %v", r, err)
	}
}

func tagOf(t testing.TB, store ledger.Store, conversation string) string {
	t.Helper()
	snap, err := store.Load(t.Context(), conversation, ledger.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return snap.Tag
}

// begin begins a transaction that is rolled back when the test ends, or earlier: a pool waits for it.
func begin(t testing.TB, pool *pgxpool.Pool) (tx pgx.Tx, rollback func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rollback = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(rollback)
	return tx, rollback
}

// tracer counts what pgx sends. before may refuse a statement or do something first.
type tracer struct {
	statements atomic.Int64
	before     atomic.Pointer[func(ctx context.Context, conn *pgx.Conn, sql string) context.Context]
	after      atomic.Pointer[func(conn *pgx.Conn, sql string, tag pgconn.CommandTag)]
}

type sqlKey struct{}

func (r *tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.statements.Add(1)
	if f := r.before.Load(); f != nil {
		ctx = (*f)(ctx, conn, data.SQL)
	}
	return context.WithValue(ctx, sqlKey{}, data.SQL)
}

func (r *tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	if f := r.after.Load(); f != nil {
		sql, _ := ctx.Value(sqlKey{}).(string)
		(*f)(conn, sql, data.CommandTag)
	}
}

func (r *tracer) take() int { return int(r.statements.Swap(0)) }

func traced(r *tracer) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.Tracer = r }
}

// unflushed is for tests that write a lot and pull no plug.
func unflushed(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = "off" }

// with adds a parameter to a URL.
func with(t testing.TB, to, name, value string) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func configOf(schema string) pgledger.Config { return pgledger.Config{Schema: schema} }

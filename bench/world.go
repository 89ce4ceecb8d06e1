package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver of the floor on SQLite
)

//go:embed sql/sqlite.sql
var sqliteSchema string

// connections is how many each pool may have: more than there are workers.
const connections = 48

// world is the servers, and a keeper for each way of using them.
type world struct {
	url    string
	pool   *pgxpool.Pool // the floor's, and the ledger's
	off    *pgxpool.Pool // synchronous_commit=off for everything
	traced *pgxpool.Pool // says how long pgx took
	trace  *tracer

	store                                    ledger.Store
	once, flushed, lazy, watched             *runs.Keeper // on Postgres
	onRedis, onSQLite, onSQLiteAll, inMemory *runs.Keeper

	redis  *redis.Client
	sqlite *sql.DB

	closers []func() error
}

func newWorld(ctx context.Context) (*world, error) {
	w := &world{url: os.Getenv("FENCEDRUN_TEST_POSTGRES")}
	if w.url == "" || os.Getenv("FENCEDRUN_TEST_REDIS") == "" {
		return nil, errors.New("FENCEDRUN_TEST_POSTGRES and FENCEDRUN_TEST_REDIS are not set: use make bench, or go run ./internal/services -only postgres,redis -- …")
	}
	for _, part := range []func(context.Context) error{w.openPostgres, w.openRedis, w.openLocal} {
		if err := part(ctx); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

// keep returns a keeper on store, both closed in the end.
func (w *world) keep(store ledger.Store) (*runs.Keeper, error) {
	k, err := runs.New(store, nil)
	if err != nil {
		return nil, err
	}
	w.later(store.Close)
	w.later(k.Close)
	return k, nil
}

func (w *world) openPostgres(ctx context.Context) error {
	open := func(change func(*pgxpool.Config)) (*pgxpool.Pool, error) {
		config, err := pgxpool.ParseConfig(w.url)
		if err != nil {
			return nil, err
		}
		config.MaxConns = connections
		change(config)
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err == nil {
			w.later(func() error { pool.Close(); return nil })
		}
		return pool, err
	}
	var errs [3]error
	w.trace = &tracer{}
	w.pool, errs[0] = open(func(*pgxpool.Config) {})
	w.off, errs[1] = open(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = "off" })
	w.traced, errs[2] = open(func(c *pgxpool.Config) { c.ConnConfig.Tracer = w.trace })
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if _, err := w.pool.Exec(ctx, pgSchema); err != nil {
		return fmt.Errorf("the floor's tables (is this a new database?): %w", err)
	}
	if err := pgledger.Migrate(ctx, w.pool, pgledger.DefaultSchema); err != nil {
		return err
	}
	for _, k := range []struct {
		keeper   **runs.Keeper
		pool     *pgxpool.Pool
		flushAll bool
	}{{&w.once, w.pool, false}, {&w.flushed, w.pool, true}, {&w.lazy, w.off, false}, {&w.watched, w.traced, false}} {
		store, err := pgledger.Open(ctx, k.pool, &pgledger.Config{FlushAll: k.flushAll})
		if err != nil {
			return err
		}
		if *k.keeper, err = w.keep(store); err != nil {
			return err
		}
		if k.keeper == &w.once {
			w.store = store
		}
	}
	return nil
}

func (w *world) openRedis(ctx context.Context) error {
	options, err := redis.ParseURL(os.Getenv("FENCEDRUN_TEST_REDIS"))
	if err != nil {
		return err
	}
	w.redis = redis.NewClient(options)
	store, err := redisledger.Open(ctx, w.redis, &redisledger.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return errors.Join(err, w.redis.Close())
	}
	w.later(w.redis.Close)
	w.onRedis, err = w.keep(store)
	return err
}

func (w *world) openLocal(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fencedrun-bench-")
	if err != nil {
		return err
	}
	w.later(func() error { return os.RemoveAll(dir) })
	if w.inMemory, err = w.keep(memledger.New()); err != nil {
		return err
	}
	for _, k := range []struct {
		keeper **runs.Keeper
		file   string
		config *sqliteledger.Config
	}{{&w.onSQLite, "ledger.db", nil}, {&w.onSQLiteAll, "flushed.db", &sqliteledger.Config{FlushAll: true}}} {
		store, err := sqliteledger.Open(ctx, filepath.Join(dir, k.file), k.config)
		if err != nil {
			return err
		}
		if *k.keeper, err = w.keep(store); err != nil {
			return err
		}
	}
	w.sqlite, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "floor.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return err
	}
	w.later(w.sqlite.Close)
	w.sqlite.SetMaxOpenConns(1)
	_, err = w.sqlite.ExecContext(ctx, sqliteSchema)
	return err
}

// later has something closed in the end, the last first.
func (w *world) later(c func() error) { w.closers = append(w.closers, c) }

func (w *world) close() {
	for _, c := range slices.Backward(w.closers) {
		if err := c(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: close:", err)
		}
	}
}

// variants are what is measured one at a time.
func (w *world) variants(ctx context.Context) ([]*variant, error) {
	variants, err := w.onPostgres(ctx)
	return append(variants, w.elsewhere()...), err
}

// where says what machine and software this was.
func (w *world) where(ctx context.Context, took time.Duration) []string {
	lines := []string{fmt.Sprintf("%d CPUs, %s/%s, %s; measured for %v.", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), took.Round(time.Second))}
	var settings []string
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "commit_delay", "shared_buffers"} {
		settings = append(settings, name+" "+w.setting(ctx, name))
	}
	lines = append(lines, fmt.Sprintf("Postgres %s over TCP on loopback: %s.", w.setting(ctx, "server_version"), strings.Join(settings, ", ")))
	if info, err := w.redis.InfoMap(ctx, "server").Result(); err == nil {
		lines = append(lines, fmt.Sprintf("Redis %s over TCP on loopback: appendonly %s, appendfsync %s.", info["Server"]["redis_version"],
			w.redis.ConfigGet(ctx, "appendonly").Val()["appendonly"], w.redis.ConfigGet(ctx, "appendfsync").Val()["appendfsync"]))
	}
	var modules []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			for _, path := range []string{"github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9", "modernc.org/sqlite", dbosPath} {
				if m.Path == path {
					modules = append(modules, m.Path+" "+m.Version)
				}
			}
		}
	}
	return append(lines, strings.Join(modules, ", ")+".")
}

func (w *world) setting(ctx context.Context, name string) string {
	var value string
	if err := w.pool.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
		return "unknown"
	}
	return value
}

package riverharness

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// NewOnPostgres is New in a schema of its own on the server at url. Time stands still while the
// server is asked, so the bubble's time is the bubble's here too.
func NewOnPostgres(t testing.TB, url string, insert *river.Config) *BenchOf[pgx.Tx] {
	t.Helper()
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	schema := "river_" + strings.ToLower(rand.Text()[:12])
	if _, err := pool.Exec(ctx, "create schema "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(ctx, "drop schema "+schema+" cascade"); err != nil {
			t.Error(err)
		}
	})
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	b := &BenchOf[pgx.Tx]{
		T: t, driver: driver, schema: schema,
		exec: func(query string, args ...any) error {
			_, err := pool.Exec(ctx, query, args...)
			return err
		},
		timeArg: func(t time.Time) any { return t },
	}
	b.Client = b.NewClient(insert)
	return b
}

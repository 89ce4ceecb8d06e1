package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

// The ledger is where the queue is: in its Postgres, in its Redis, else in a SQLite file that all
// processes of the arm share.

func onPostgres(url string) bool { return strings.HasPrefix(url, "postgres") }

// openLedger opens the ledger of an arm, in whichever of its processes.
func openLedger(ctx context.Context, place armPlace) (ledger.Store, error) {
	switch {
	case place.Server == "":
		return sqliteledger.Open(ctx, filepath.Join(place.Folder, "ledger.sqlite3"), nil)
	case onPostgres(place.Server):
		return pgledger.Connect(ctx, place.Server, &pgledger.Config{Schema: place.Ledger})
	default:
		// A Redis for tests seldom has an append-only file. In production leave this out, and
		// let a server that forgets be refused.
		return redisledger.Connect(ctx, place.Server, &redisledger.Config{Prefix: place.Ledger, AcceptNoAOF: true})
	}
}

// makeLedger prepares a server for an arm, once for all its processes.
func makeLedger(ctx context.Context, place *armPlace) error {
	switch {
	case place.Server == "":
		return nil
	case onPostgres(place.Server):
		conn, err := pgx.Connect(ctx, place.Server)
		if err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
		defer conn.Close(ctx)
		place.Ledger = fmt.Sprintf("support_bot_ledger_%08x", rand.Uint32())
		return pgledger.Migrate(ctx, conn, place.Ledger)
	default:
		place.Ledger = queue.RedisLedger
		return dropLedger(place) // what a run that crashed left
	}
}

// dropLedger removes what makeLedger and the arm made in a server.
func dropLedger(place *armPlace) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch {
	case place.Ledger == "":
		return nil
	case onPostgres(place.Server):
		pool, err := pgxpool.New(ctx, place.Server)
		if err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
		defer pool.Close()
		_, err = pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{place.Ledger}.Sanitize()+" CASCADE")
		return err
	default:
		options, err := redis.ParseURL(place.Server)
		if err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		client := redis.NewClient(options)
		err = queue.RemoveKeys(ctx, client, nil, place.Ledger+":")
		return errors.Join(err, client.Close())
	}
}

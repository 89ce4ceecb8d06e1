package live

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/chaos/proxy"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/runs"
)

func TestRiversConnectionCutAtAnyFrameDoublesNothing(t *testing.T) {
	t.Parallel()
	sweepRiver(t, false)
}

func TestTheSweepOfRiversConnectionWouldNotice(t *testing.T) {
	t.Parallel()
	sweepRiver(t, true)
}

func sweepRiver(t *testing.T, bare bool) {
	t.Helper()
	at := private.ServicePostgres.Need(t)
	clean := pool(t, at)
	schema := schemaOn(t, clean)
	store, err := pgledger.Open(t.Context(), clean, &pgledger.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	k, err := runs.New(store, brisk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	driver := riverpgxv5.New(clean)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	settings := &riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs, Schema: schema}
	stamper, err := riverruns.NewStamper(settings)
	if err != nil {
		t.Fatal(err)
	}
	producer, err := river.NewClient(driver, riverConfig(schema, stamper))
	if err != nil {
		t.Fatal(err)
	}
	s := &queueCuts{keeper: k, bare: bare}
	sweepQueue(t, s, func(t *testing.T, lane int) *cutQueue {
		queue := fmt.Sprint("lane", lane)
		q := &cutQueue{
			proxy: riverLane(t, s, at, schema, queue, settings),
			insert: func(t *testing.T, c string) string {
				inserted, err := producer.Insert(t.Context(), killArgs{c}, &river.InsertOpts{Queue: queue})
				if err != nil {
					t.Error(err)
					return "0"
				}
				return fmt.Sprint(inserted.Job.ID)
			},
			again: func(t *testing.T, id string) {
				if _, err := clean.Exec(t.Context(),
					"update "+schema+".river_job set state = 'available', scheduled_at = now() where state = 'running' and id = "+id); err != nil {
					t.Error(err)
				}
			},
		}
		q.stage = func(t *testing.T, id string) stage {
			var state rivertype.JobState
			err := clean.QueryRow(t.Context(), "select state::text from "+schema+".river_job where id = "+id).Scan(&state)
			if err != nil {
				t.Error(err)
				return parked
			}
			switch state {
			case rivertype.JobStateRunning:
				return working
			case rivertype.JobStateCompleted:
				return done
			case rivertype.JobStateCancelled, rivertype.JobStateDiscarded:
				return parked
			case rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateScheduled:
			}
			return waiting
		}
		return q
	})
}

// riverLane starts a client whose connections go through a proxy, on a queue of its own.
func riverLane(t *testing.T, s *queueCuts, at, schema, queue string, settings *riverruns.Config) *proxy.Proxy {
	t.Helper()
	to, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.Listen(proxy.Postgres, to.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	to.Host = p.Addr()
	plugin, err := riverruns.NewPlugin(s.keeper, settings)
	if err != nil {
		t.Fatal(err)
	}
	config := riverConfig(schema, plugin)
	if s.bare {
		config.Plugins = nil
	}
	config.ID = queue
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(ctx context.Context, j *river.Job[killArgs]) error { return s.handle(ctx, j.Args.C) }))
	config.Queues = map[string]river.QueueConfig{queue: {MaxWorkers: 2}}
	config.FetchCooldown, config.FetchPollInterval = 20*time.Millisecond, 100*time.Millisecond
	config.RetryPolicy = atOnce{}
	client, err := river.NewClient[pgx.Tx](riverpgxv5.New(pool(t, to.String())), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

package live

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/runs"
)

// The same kills under real queues. After a kill the queue is told what it would find out by itself
// much later: River's rescuer after an hour, Asynq's recoverer when the lease has expired.

func workRiverOnPostgres(ctx context.Context, w *worker) error {
	pool, err := pgxpool.New(ctx, w.Queue)
	if err != nil {
		return err
	}
	defer pool.Close()
	return workRiver(ctx, w, riverpgxv5.New(pool))
}

func workRiverOnSQLite(ctx context.Context, w *worker) error {
	db, err := riverFile(w.Queue)
	if err != nil {
		return err
	}
	defer db.Close()
	return workRiver(ctx, w, riversqlite.New(db))
}

type killArgs struct {
	C string `json:"c"`
}

func (killArgs) Kind() string           { return "kill" }
func (a killArgs) Conversation() string { return a.C }
func (killArgs) Inbound() []string      { return []string{"m1"} }

func riverConfig(schema string, plugin rivertype.Plugin) *river.Config {
	return &river.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler), Plugins: []rivertype.Plugin{plugin}}
}

// workRiver works until the job is final.
func workRiver[TTx any](ctx context.Context, w *worker, driver riverdriver.Driver[TTx]) error {
	k, err := w.keeper(ctx)
	if err != nil {
		return err
	}
	plugin, err := riverruns.NewPlugin(k, &riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs, Schema: w.QueueName})
	if err != nil {
		return err
	}
	config := riverConfig(w.QueueName, plugin)
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[killArgs]) error { return w.handler(ctx) }))
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}}
	config.FetchCooldown, config.FetchPollInterval, config.PollOnly = 20*time.Millisecond, 20*time.Millisecond, true
	config.RetryPolicy = atOnce{}
	client, err := river.NewClient(driver, config)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	id, err := strconv.ParseInt(w.Job, 10, 64)
	if err != nil {
		return err
	}
	for {
		row, err := client.JobGet(ctx, id)
		if err != nil {
			return err
		}
		if out, final := map[rivertype.JobState]string{
			rivertype.JobStateCompleted: "done", rivertype.JobStateCancelled: "park", rivertype.JobStateDiscarded: "discarded",
		}[row.State]; final {
			fmt.Println(out, row.State)
			return errors.Join(client.Stop(ctx), k.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// queue is a real queue, from outside.
type queue struct {
	part
	insert func(conversation string) (id string)
	again  func(id string) // after its worker was killed
}

func riverQueue[TTx any](t *testing.T, p part, driver riverdriver.Driver[TTx], exec func(query string) error) queue {
	t.Helper()
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: p.QueueName, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	stamper, err := riverruns.NewStamper(&riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs, Schema: p.QueueName})
	if err != nil {
		t.Fatal(err)
	}
	client, err := river.NewClient(driver, riverConfig(p.QueueName, stamper))
	if err != nil {
		t.Fatal(err)
	}
	table := "river_job"
	if p.QueueName != "" {
		table = p.QueueName + ".river_job"
	}
	return queue{p, func(c string) string {
		inserted, err := client.Insert(t.Context(), killArgs{c}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatInt(inserted.Job.ID, 10)
	}, func(id string) {
		if err := exec("update " + table + " set state = 'available', scheduled_at = current_timestamp where state = 'running' and id = " + id); err != nil {
			t.Fatal(err)
		}
	}}
}

func riverFile(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func asynqOptions(url string) (*redis.Options, error) { return redis.ParseURL(url) }

// workAsynq works until the task is final.
func workAsynq(ctx context.Context, w *worker) error {
	k, err := w.keeper(ctx)
	if err != nil {
		return err
	}
	options, err := asynqOptions(w.Queue)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	fenced, err := asynqruns.New(k, &asynqruns.Config{Reads: runs.AfterBegin, Inbound: asynqruns.FromHeaders})
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(fenced.Middleware)
	mux.HandleFunc("kill", func(ctx context.Context, _ *asynq.Task) error { return w.handler(ctx) })
	server := asynq.NewServerFromRedisClient(client, fenced.Config(asynq.Config{
		Concurrency: 1, Queues: map[string]int{w.QueueName: 1}, LogLevel: asynq.FatalLevel,
		DelayedTaskCheckInterval: 50 * time.Millisecond, TaskCheckInterval: 20 * time.Millisecond, ShutdownTimeout: time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 50 * time.Millisecond },
	}))
	if err := server.Start(mux); err != nil {
		return err
	}
	inspector := asynq.NewInspectorFromRedisClient(client)
	for {
		info, err := inspector.GetTaskInfo(w.QueueName, w.Job)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound):
			fmt.Println("done")
		case err != nil:
			return err
		case info.State == asynq.TaskStateArchived:
			fmt.Println("park", info.LastErr)
		default:
			time.Sleep(20 * time.Millisecond)
			continue
		}
		server.Shutdown()
		return errors.Join(k.Close(), client.Close())
	}
}

func asynqQueue(t *testing.T, p part) queue {
	t.Helper()
	options, err := asynqOptions(p.Queue)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	producer := asynq.NewClientFromRedisClient(client)
	p.QueueName = "live-" + strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() {
		ctx := context.Background()
		removeKeys(t, options, "asynq:{"+p.QueueName+"}")
		if err := client.SRem(ctx, "asynq:queues", p.QueueName).Err(); err != nil {
			t.Error(err)
		}
		_ = client.Close()
	})
	return queue{p, func(c string) string {
		headers, err := asynqruns.Headers(asynqruns.Conversation{ID: c, Inbound: []string{"m1"}})
		if err != nil {
			t.Fatal(err)
		}
		info, err := producer.EnqueueContext(t.Context(), asynq.NewTaskWithHeaders("kill", []byte("{}"), headers),
			asynq.Queue(p.QueueName), asynq.MaxRetry(100), asynq.Timeout(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return info.ID
	}, func(id string) {
		// Asynq's recoverer takes what expired half a minute ago, and looks when it starts.
		if err := client.ZAddXX(t.Context(), "asynq:{"+p.QueueName+"}:lease", redis.Z{Score: 1, Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
	}}
}

// queues returns the queues with the ledger that belongs to each.
func queues(t *testing.T) map[string]func(t *testing.T) queue {
	t.Helper()
	places := ledgers(t)
	return map[string]func(*testing.T) queue{
		"river-postgres": func(t *testing.T) queue {
			p := places["postgres"]
			pg := pool(t, p.URL)
			p.Worker, p.Queue, p.QueueName = "river-postgres", p.URL, p.Space
			return riverQueue(t, p, riverpgxv5.New(pg), func(query string) error {
				_, err := pg.Exec(t.Context(), query)
				return err
			})
		},
		"river-sqlite": func(t *testing.T) queue {
			p := places["sqlite"]
			p.Worker, p.Queue = "river-sqlite", filepath.Join(t.TempDir(), "river.db")
			db, err := riverFile(p.Queue)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return riverQueue(t, p, riversqlite.New(db), func(query string) error {
				_, err := db.ExecContext(t.Context(), query)
				return err
			})
		},
		"asynq-redis": func(t *testing.T) queue {
			p := places["redis"]
			p.Worker, p.Queue = "asynq", p.URL
			return asynqQueue(t, p)
		},
	}
}

func TestAWorkerKilledAtAnyPointUnderItsQueueDoublesNothing(t *testing.T) {
	for name, open := range queues(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := open(t)
			q.Provider = filepath.Join(t.TempDir(), "provider")
			k := q.watcher(t)
			kills, unknown := 0, 0
			for n := int64(1); ; n++ {
				p := q.part
				p.Conversation, p.KillAt = fmt.Sprint("c", n), n
				p.Job = q.insert(p.Conversation)
				out, killed := spawn(t, p)
				if killed {
					kills++
					q.again(p.Job)
					p.KillAt = 0
					out, _ = spawn(t, p)
				}
				unknown += judge(t, k, p, out)
				if !killed {
					break
				}
			}
			t.Logf("%d kills: %d effects unknown", kills, unknown)
			if kills < 16 || unknown == 0 {
				t.Error("the kills missed most of the job")
			}
		})
	}
}

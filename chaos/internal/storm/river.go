package storm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite" // database/sql driver "sqlite"

	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/runs"
)

// riverArgs is the job as River carries it. The two methods tell the library's plugin what it is
// about; without the plugin nobody calls them.
type riverArgs struct{ job }

func (riverArgs) Kind() string           { return "live" }
func (a riverArgs) Conversation() string { return a.job.Conversation }
func (a riverArgs) Inbound() []string    { return []string{a.Message} }

func riverSettings(schema string) *riverruns.Config {
	return &riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs, Schema: schema}
}

var silent = slog.New(slog.DiscardHandler)

// riverDB is what the two databases do differently.
type riverDB struct {
	insert func(ctx context.Context, j job) (int64, error)
	exec   func(ctx context.Context, statement string, args ...any) (int64, error)
	left   func(ctx context.Context, each func(id int64, state string)) error
	reset  func() // drops idle connections
	close  func(ctx context.Context) error

	againSQL string
}

func (q *riverDB) again(ctx context.Context, id string) (bool, error) {
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return false, fmt.Errorf("storm: deliver again: %w", err)
	}
	n, err := q.exec(ctx, q.againSQL, number)
	if err != nil {
		return false, fmt.Errorf("storm: deliver again: %w", err)
	}
	return n == 1, nil
}

// riverQueue is a riverDB as a queue.
type riverQueue struct{ db riverDB }

func (q *riverQueue) enqueue(ctx context.Context, j job) (string, error) {
	id, err := q.db.insert(ctx, j)
	if err != nil {
		return "", fmt.Errorf("storm: enqueue: %w", err)
	}
	return strconv.FormatInt(id, 10), nil
}

func (q *riverQueue) left(ctx context.Context) (left, error) {
	var l left
	err := q.db.left(ctx, func(id int64, state string) {
		switch name := strconv.FormatInt(id, 10); rivertype.JobState(state) {
		case rivertype.JobStateRunning:
			l.running = append(l.running, name)
		case rivertype.JobStateCancelled, rivertype.JobStateDiscarded:
			l.parked++
		default:
			l.waiting = append(l.waiting, name)
		}
	})
	if err != nil {
		return l, fmt.Errorf("storm: look at the queue: %w", err)
	}
	return l, nil
}

func (q *riverQueue) again(ctx context.Context, id string) (bool, error) { return q.db.again(ctx, id) }

// lose does what the rescuer does an hour later. It looks in the elected leader only, which a
// killed worker may have been.
func (q *riverQueue) lose(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, err := q.db.again(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (q *riverQueue) reconnect() { q.db.reset() }

func (q *riverQueue) close(ctx context.Context) error { return q.db.close(ctx) }

func migrateRiver[T any](ctx context.Context, driver riverdriver.Driver[T], schema string) error {
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent, Schema: schema})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return fmt.Errorf("prepare river: %w", err)
	}
	return nil
}

func inserter[T any](driver riverdriver.Driver[T], schema string, without bool) (func(context.Context, job) (int64, error), error) {
	config := &river.Config{Logger: silent, Schema: schema}
	if !without {
		stamper, err := riverruns.NewStamper(riverSettings(schema))
		if err != nil {
			return nil, err
		}
		config.Plugins = []rivertype.Plugin{stamper}
	}
	client, err := river.NewClient(driver, config)
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	return func(ctx context.Context, j job) (int64, error) {
		inserted, err := client.Insert(ctx, riverArgs{j}, &river.InsertOpts{MaxAttempts: maxAttempts})
		if err != nil {
			return 0, err
		}
		return inserted.Job.ID, nil
	}, nil
}

func (s *stage) openRiverPostgres(ctx context.Context) (queue, error) {
	address := s.spec.URL
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("the queue's server cannot be used: %w", err)
	}
	s.spec.URL = named(postgres, address, s.tag, "")
	schema := pgx.Identifier{s.spec.Space}.Sanitize()
	q := &riverQueue{riverDB{
		exec: func(ctx context.Context, statement string, args ...any) (int64, error) {
			tag, err := pool.Exec(ctx, statement, args...)
			return tag.RowsAffected(), err
		},
		left: func(ctx context.Context, each func(int64, string)) error {
			rows, err := pool.Query(ctx, text("sql/left.sql", "{table}", schema+".river_job", "{text}", "::text"))
			if err != nil {
				return err
			}
			defer rows.Close()
			return errors.Join(scanJobs(rows, each), rows.Err())
		},
		reset: pool.Reset,
		close: func(ctx context.Context) error {
			pool.Close()
			return dropSchema(ctx, address, s.spec.Space)
		},
		againSQL: text("sql/again.sql", "{table}", schema+".river_job", "{now}", "now()"),
	}}
	if _, err := pool.Exec(ctx, text("sql/create_schema.sql", "{schema}", schema)); err != nil {
		pool.Close()
		return nil, fmt.Errorf("the queue's server cannot be used: %w", err)
	}
	driver := riverpgxv5.New(pool)
	if err = migrateRiver(ctx, driver, s.spec.Space); err == nil {
		q.db.insert, err = inserter(driver, s.spec.Space, s.config.Without)
	}
	if err != nil {
		return nil, errors.Join(err, q.close(context.WithoutCancel(ctx)))
	}
	return q, nil
}

// openRiverSQLite opens a file that several processes use. A transaction that begins by reading
// and then writes cannot wait for another's write, so every one asks for the write lock at once;
// one connection per process is what River's driver asks for.
func openRiverSQLite(path string) (*sql.DB, error) {
	query := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("storm: %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func (s *stage) openRiverFile(ctx context.Context) (queue, error) {
	s.spec.URL, s.spec.Space = filepath.Join(s.folder, "river.db"), ""
	db, err := openRiverSQLite(s.spec.URL)
	if err != nil {
		return nil, err
	}
	q := &riverQueue{riverDB{
		exec: func(ctx context.Context, statement string, args ...any) (int64, error) {
			result, err := db.ExecContext(ctx, statement, args...)
			if err != nil {
				return 0, err
			}
			return result.RowsAffected()
		},
		left: func(ctx context.Context, each func(int64, string)) error {
			rows, err := db.QueryContext(ctx, text("sql/left.sql", "{table}", "river_job", "{text}", ""))
			if err != nil {
				return err
			}
			defer rows.Close()
			return errors.Join(scanJobs(rows, each), rows.Err())
		},
		reset:    func() {},
		close:    func(context.Context) error { return db.Close() },
		againSQL: text("sql/again.sql", "{table}", "river_job", "{now}", "datetime('now', 'subsec')"),
	}}
	driver := riversqlite.New(db)
	if err = migrateRiver(ctx, driver, ""); err == nil {
		q.db.insert, err = inserter(driver, "", s.config.Without)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

func scanJobs(rows interface {
	Next() bool
	Scan(dest ...any) error
}, each func(int64, string),
) error {
	for rows.Next() {
		var id int64
		var state string
		if err := rows.Scan(&id, &state); err != nil {
			return err
		}
		each(id, state)
	}
	return nil
}

// riverWork runs River's own client.
func (w *worker) riverWork(ctx context.Context) error {
	if w.Queue.Space == "" {
		db, err := openRiverSQLite(w.Queue.URL)
		if err != nil {
			return err
		}
		defer db.Close()
		return runRiver(ctx, w, riversqlite.New(db))
	}
	pool, err := pgxpool.New(ctx, w.Queue.URL)
	if err != nil {
		return fmt.Errorf("storm: river: %w", err)
	}
	defer pool.Close()
	return runRiver(ctx, w, riverpgxv5.New(pool))
}

func runRiver[T any](ctx context.Context, w *worker, driver riverdriver.Driver[T]) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{w: w})
	config := &river.Config{
		FetchCooldown: poll, FetchPollInterval: 2 * poll, JobTimeout: jobTimeout, Logger: silent, MaxAttempts: maxAttempts,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}}, RetryPolicy: soon{}, Schema: w.Queue.Space,
		Workers: workers,
	}
	if w.keeper != nil {
		plugin, err := riverruns.NewPlugin(w.keeper, riverSettings(w.Queue.Space))
		if err != nil {
			return err
		}
		config.Plugins = []rivertype.Plugin{plugin}
		if err := plugin.Check(config); err != nil {
			return err
		}
	}
	var client *river.Client[T]
	err := persist(ctx, func(ctx context.Context) (err error) {
		if client, err = river.NewClient(driver, config); err != nil {
			return err
		}
		// A ctx that is done would cancel the jobs at once.
		return client.Start(context.WithoutCancel(ctx))
	})
	if err != nil {
		return err
	}
	w.emit(event{Kind: ready})
	<-ctx.Done()
	soft, cancel := context.WithTimeout(context.Background(), stopLimit/4)
	defer cancel()
	if client.Stop(soft) != nil {
		hard, cancel := context.WithTimeout(context.Background(), stopLimit/4)
		defer cancel()
		_ = client.StopAndCancel(hard)
	}
	return nil
}

// soon tries again soon.
type soon struct{}

func (soon) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(backOff) }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	w *worker
}

func (r *riverWorker) Work(ctx context.Context, j *river.Job[riverArgs]) error {
	return r.w.handle(ctx, j.Args.job)
}

// Middleware watches from outside of the plugin.
func (r *riverWorker) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware {
	return []rivertype.WorkerMiddleware{river.WorkerMiddlewareFunc(
		func(ctx context.Context, row *rivertype.JobRow, next func(context.Context) error) error {
			return r.w.deliver(strconv.FormatInt(row.ID, 10), func() error { return next(ctx) })
		})}
}

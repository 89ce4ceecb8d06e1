package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite" // database/sql driver "sqlite"
)

// Args is the job as River carries it. The two methods tell a fenced run what the job is about; without one nobody calls them.
type Args struct {
	Job
}

// Kind implements river.JobArgs.
func (Args) Kind() string { return taskType }

// Conversation names what the job works on.
func (a Args) Conversation() string { return a.Job.Conversation }

// Inbound names the messages that the job was made for.
func (a Args) Inbound() []string { return []string{a.Message} }

// openSQLite opens a file that several processes use at once. A transaction that begins by reading and then writes cannot
// wait for another process's write, whatever busy_timeout says, so every transaction asks for the write lock when it begins.
// One connection per process is what riversqlite asks for.
func openSQLite(path string) (*sql.DB, error) {
	query := url.Values{}
	query.Add("_pragma", "busy_timeout(10000)")
	query.Add("_pragma", "journal_mode(WAL)")
	query.Add("_pragma", "synchronous(NORMAL)")
	query.Set("_txlock", "immediate")
	db, err := sql.Open("sqlite", "file:"+path+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// riverStore is what differs between the two databases.
type riverStore[T any] struct {
	client *river.Client[T]
	exec   func(ctx context.Context, statement string, args ...any) (int64, error)
	counts func(ctx context.Context) (map[rivertype.JobState]int, error)
}

type riverQ[T any] struct {
	spec  Spec
	where string
	store riverStore[T]
	table string
	now   string // SQL for the present time
	close func() error
}

func openRiver(ctx context.Context, folder, address string, additions Additions) (Queue, error) {
	if address == "" {
		return openRiverSQLite(ctx, filepath.Join(folder, "river.sqlite3"), additions)
	}
	return openRiverPostgres(ctx, address, additions)
}

func openRiverSQLite(ctx context.Context, path string, additions Additions) (Queue, error) {
	db, err := openSQLite(path)
	if err != nil {
		return nil, err
	}
	driver := riversqlite.New(db)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("prepare river: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{Logger: silent, Plugins: additions.RiverPlugins})
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("river: %w", err)
	}
	return &riverQ[*sql.Tx]{
		spec:  Spec{Name: River, Address: path},
		where: "River on a SQLite file",
		store: riverStore[*sql.Tx]{
			client: client,
			exec: func(ctx context.Context, statement string, args ...any) (int64, error) {
				result, err := db.ExecContext(ctx, statement, args...)
				if err != nil {
					return 0, err
				}
				return result.RowsAffected()
			},
			counts: func(ctx context.Context) (map[rivertype.JobState]int, error) {
				rows, err := db.QueryContext(ctx, "SELECT state, count(*) FROM river_job GROUP BY state")
				if err != nil {
					return nil, err
				}
				defer rows.Close()
				counts, err := scanCounts(rows)
				return counts, errors.Join(err, rows.Err())
			},
		},
		table: "river_job",
		now:   "datetime('now', 'subsec')",
		close: db.Close,
	}, nil
}

// openRiverPostgres works in a schema of its own, which Close drops.
func openRiverPostgres(ctx context.Context, address string, additions Additions) (Queue, error) {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	schema := fmt.Sprintf("support_bot_%08x", rand.Uint32())
	quoted := pgx.Identifier{schema}.Sanitize()
	drop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+quoted+" CASCADE")
		pool.Close()
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+quoted); err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: %w", err)
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent, Schema: schema})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare river: %w", err), drop())
	}
	client, err := river.NewClient(driver, &river.Config{Logger: silent, Plugins: additions.RiverPlugins, Schema: schema})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("river: %w", err), drop())
	}
	return &riverQ[pgx.Tx]{
		spec:  Spec{Name: River, Address: address, Schema: schema},
		where: "River on Postgres, in schema " + schema,
		store: riverStore[pgx.Tx]{
			client: client,
			exec: func(ctx context.Context, statement string, args ...any) (int64, error) {
				tag, err := pool.Exec(ctx, statement, args...)
				return tag.RowsAffected(), err
			},
			counts: func(ctx context.Context) (map[rivertype.JobState]int, error) {
				rows, err := pool.Query(ctx, "SELECT state::text, count(*) FROM "+quoted+".river_job GROUP BY state")
				if err != nil {
					return nil, err
				}
				defer rows.Close()
				counts, err := scanCounts(rows)
				return counts, errors.Join(err, rows.Err())
			},
		},
		table: quoted + ".river_job",
		now:   "now()",
		close: drop,
	}, nil
}

func scanCounts(rows interface {
	Next() bool
	Scan(...any) error
}) (map[rivertype.JobState]int, error) {
	counts := map[rivertype.JobState]int{}
	for rows.Next() {
		var state string
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, err
		}
		counts[rivertype.JobState(state)] = n
	}
	return counts, nil
}

var silent = slog.New(slog.DiscardHandler)

func (q *riverQ[T]) Spec() Spec    { return q.spec }
func (q *riverQ[T]) Where() string { return q.where }
func (q *riverQ[T]) Close() error  { return q.close() }

func (q *riverQ[T]) Enqueue(ctx context.Context, job Job) (string, error) {
	inserted, err := q.store.client.Insert(ctx, Args{job}, &river.InsertOpts{MaxAttempts: maxAttempts})
	if err != nil {
		return "", fmt.Errorf("enqueue: %w", err)
	}
	return strconv.FormatInt(inserted.Job.ID, 10), nil
}

func (q *riverQ[T]) Running(ctx context.Context) ([]string, error) {
	jobs, err := q.store.client.JobList(ctx, river.NewJobListParams().States(rivertype.JobStateRunning).First(1000))
	if err != nil {
		return nil, fmt.Errorf("list running jobs: %w", err)
	}
	var ids []string
	for _, job := range jobs.Jobs {
		ids = append(ids, strconv.FormatInt(job.ID, 10))
	}
	return ids, nil
}

// Expire does to each job what River's rescuer does to a stuck one. The rescuer itself looks every half minute, in the
// elected leader only, which a killed worker may have been.
func (q *riverQ[T]) Expire(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, err := q.Again(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (q *riverQ[T]) Again(ctx context.Context, id string) (bool, error) {
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return false, fmt.Errorf("deliver again: %w", err)
	}
	statement := "UPDATE " + q.table + " SET state = 'available', scheduled_at = " + q.now +
		" WHERE id = $1 AND state = 'running' AND attempt < max_attempts"
	n, err := q.store.exec(ctx, statement, number)
	if err != nil {
		return false, fmt.Errorf("deliver again: %w", err)
	}
	return n == 1, nil
}

func (q *riverQ[T]) Left(ctx context.Context) (Left, error) {
	counts, err := q.store.counts(ctx)
	if err != nil {
		return Left{}, fmt.Errorf("look at the queue: %w", err)
	}
	return Left{
		Waiting: counts[rivertype.JobStateAvailable] + counts[rivertype.JobStatePending] +
			counts[rivertype.JobStateRetryable] + counts[rivertype.JobStateScheduled],
		Running: counts[rivertype.JobStateRunning],
		Parked:  counts[rivertype.JobStateCancelled] + counts[rivertype.JobStateDiscarded],
	}, nil
}

func argsOf(row *rivertype.JobRow) Job {
	var job Job
	_ = json.Unmarshal(row.EncodedArgs, &job) // River complains if it cannot be read
	return job
}

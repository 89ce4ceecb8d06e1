package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivertype"
)

// workRiver runs River's own client.
func workRiver(ctx context.Context, spec Spec, additions Additions, watch Watch, handler Handler, ready func()) error {
	if spec.Schema != "" {
		pool, err := pgxpool.New(ctx, spec.Address)
		if err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
		defer pool.Close()
		connect := func(config *river.Config) (*river.Client[pgx.Tx], error) {
			return river.NewClient(riverpgxv5.New(pool), config)
		}
		return runRiver(ctx, connect, spec, additions, watch, handler, ready)
	}
	db, err := openSQLite(spec.Address)
	if err != nil {
		return err
	}
	defer db.Close()
	connect := func(config *river.Config) (*river.Client[*sql.Tx], error) {
		return river.NewClient(riversqlite.New(db), config)
	}
	return runRiver(ctx, connect, spec, additions, watch, handler, ready)
}

func runRiver[T any](ctx context.Context, connect func(*river.Config) (*river.Client[T], error), spec Spec, additions Additions, watch Watch, handler Handler, ready func()) error {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &riverWorker{watch: watch, handler: handler}); err != nil {
		return fmt.Errorf("river: %w", err)
	}
	client, err := connect(&river.Config{
		FetchCooldown:     poll,
		FetchPollInterval: 2 * poll,
		JobTimeout:        jobTimeout,
		Logger:            silent,
		MaxAttempts:       maxAttempts,
		Plugins:           additions.RiverPlugins,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}},
		RetryPolicy:       riverRetry{},
		Schema:            spec.Schema,
		Workers:           workers,
	})
	if err != nil {
		return fmt.Errorf("river: %w", err)
	}
	// Start's ctx must outlive the wish to stop: when it is done River cancels the jobs at once.
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start river: %w", err)
	}
	ready()
	<-ctx.Done()
	soft, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := client.Stop(soft); err != nil && errors.Is(err, context.DeadlineExceeded) {
		hard, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err = client.StopAndCancel(hard)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("stop river: %w", err)
		}
	}
	return nil
}

type riverRetry struct{}

func (riverRetry) NextRetry(job *rivertype.JobRow) time.Time {
	return time.Now().Add(retryAfter(len(job.Errors)))
}

type riverWorker struct {
	river.WorkerDefaults[Args]
	watch   Watch
	handler Handler
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[Args]) error {
	return w.handler(ctx, job.Args.Job)
}

// Middleware watches. It is outside of the plugins that the client was given, and hands their error on as it is.
func (w *riverWorker) Middleware(job *rivertype.JobRow) []rivertype.WorkerMiddleware {
	return []rivertype.WorkerMiddleware{river.WorkerMiddlewareFunc(
		func(ctx context.Context, row *rivertype.JobRow, next func(context.Context) error) (err error) {
			id, job := strconv.FormatInt(row.ID, 10), argsOf(row)
			w.watch.Began(id, job)
			defer func() { w.watch.Ended(id, job, err) }()
			return next(ctx)
		})}
}

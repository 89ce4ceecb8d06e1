// Package queue puts the example's jobs on a real queue, Asynq or River, works them off in worker processes, and brings
// redelivery forward, so that nobody waits minutes for what a queue does minutes after a crash.
package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river/rivertype"
)

// Name of a queue.
const (
	Asynq = "asynq"
	River = "river"
)

// Job is what travels: one customer message that wants an answer.
type Job struct {
	Conversation string `json:"conversation"`
	Message      string `json:"message"`
}

// Spec is what a process needs to join a queue.
type Spec struct {
	Name    string `json:"name"`
	Address string `json:"address"` // asynq: a Redis URL; river: a path or a Postgres URL
	Schema  string `json:"schema"`  // river on Postgres
}

// Additions is what is wrapped around the bare queue. The zero value adds nothing.
type Additions struct {
	AsynqConfig     func(asynq.Config) asynq.Config // of the server
	AsynqMiddleware []asynq.MiddlewareFunc          // around the handler, first is outermost
	AsynqTask       func(ctx context.Context, job Job, kind string, payload []byte, options ...asynq.Option) (*asynq.Task, error)
	RiverPlugins    []rivertype.Plugin // of every client, the inserting one too
}

// Left counts the jobs that are not done.
type Left struct {
	Waiting int // to be delivered now or later
	Running int
	Parked  int // stopped by the queue, visible to operators: archived, cancelled, discarded
}

// Queue is the side of a queue that enqueues and watches.
type Queue interface {
	// Spec tells workers how to join.
	Spec() Spec
	// Where says in words where the queue lives.
	Where() string
	// Enqueue puts a job on the queue and returns the id it got there.
	Enqueue(ctx context.Context, job Job) (id string, err error)
	// Running returns the ids of the jobs that the queue takes to be at work.
	Running(ctx context.Context) ([]string, error)
	// Expire makes the queue believe that the deliveries of these running jobs are lost. On Asynq the next worker that
	// starts redelivers them, on River they are redelivered at once.
	Expire(ctx context.Context, ids []string) error
	// Again makes the queue deliver a running job again at once, whether or not its delivery lives. It reports false if the
	// job was not running any more.
	Again(ctx context.Context, id string) (bool, error)
	// Left counts what is not done.
	Left(ctx context.Context) (Left, error)
	// Close removes what the queue was given for this run.
	Close() error
}

// Watch is told of each delivery, outside of everything that Additions wraps around the handler.
type Watch struct {
	Began func(id string, job Job)
	Ended func(id string, job Job, err error)
}

// Handler works off a job.
type Handler func(ctx context.Context, job Job) error

// Settings of both queues, shortened so that the example ends within a minute.
const (
	concurrency = 8
	poll        = 50 * time.Millisecond
	backOff     = 300 * time.Millisecond // before the first retry; doubles
	maxBackOff  = 2 * time.Second
	maxAttempts = 12
	jobTimeout  = 20 * time.Second
	grace       = time.Second // for handlers when a worker is told to stop
	taskType    = "support:message"
)

// retryAfter is the back-off before the n-th retry, n from 0.
func retryAfter(n int) time.Duration {
	delay := backOff << min(max(n, 0), 10)
	return min(delay, maxBackOff)
}

// CheckURL tells whether url can name the queue's server. "" is the queue without a server.
func CheckURL(name, url string) error {
	if url == "" {
		return nil
	}
	var err error
	if name == Asynq {
		_, err = redis.ParseURL(url)
	} else {
		_, err = pgxpool.ParseConfig(url)
	}
	return err
}

// Open makes a queue ready for a run. Its files go to folder; url may name a server: Redis for Asynq, Postgres for River.
func Open(ctx context.Context, name, folder, url string, additions Additions) (Queue, error) {
	switch name {
	case Asynq:
		return openAsynq(ctx, url, additions)
	case River:
		return openRiver(ctx, folder, url, additions)
	default:
		return nil, fmt.Errorf("queue %q is neither %s nor %s", name, Asynq, River)
	}
}

// Work runs a worker of the queue until ctx is done; ready is called when it is at work.
func Work(ctx context.Context, spec Spec, additions Additions, watch Watch, handler Handler, ready func()) error {
	switch spec.Name {
	case Asynq:
		return workAsynq(ctx, spec, additions, watch, handler, ready)
	case River:
		return workRiver(ctx, spec, additions, watch, handler, ready)
	default:
		return errors.New("worker: no queue named")
	}
}

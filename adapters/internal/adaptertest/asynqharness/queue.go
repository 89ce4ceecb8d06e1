package asynqharness

import (
	"cmp"
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
)

// Hooks is where the adapter goes. The zero value is Asynq without one.
type Hooks struct {
	Middleware asynq.MiddlewareFunc
	Config     func(asynq.Config) asynq.Config
	NewTask    func(spec adaptertest.Spec, opts ...asynq.Option) (*asynq.Task, error)
}

// Queue is Asynq as an [adaptertest.Queue].
type Queue struct {
	*Bench
	Hooks Hooks

	worker  *Worker
	handler adaptertest.Handler
}

var _ adaptertest.Queue = (*Queue)(nil)

// taskType is the type of all tasks of the scenarios.
const taskType = "adaptertest"

// NewQueue returns Asynq on b.
func NewQueue(b *Bench, hooks Hooks) *Queue { return &Queue{Bench: b, Hooks: hooks} }

// Name implements [adaptertest.Queue].
func (q *Queue) Name() string { return "asynq" }

// Start implements [adaptertest.Queue].
func (q *Queue) Start(h adaptertest.Handler) {
	q.T.Helper()
	q.handler = h
	mux := asynq.NewServeMux()
	if q.Hooks.Middleware != nil {
		mux.Use(q.Hooks.Middleware)
	}
	mux.HandleFunc(taskType, func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		return h(ctx, adaptertest.Delivery{Name: id, Payload: string(task.Payload())})
	})
	config := asynq.Config{
		// One second, as for River.
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
		// So that a scenario need not wait for the forwarder's five seconds.
		DelayedTaskCheckInterval: time.Second,
	}
	if q.Hooks.Config != nil {
		config = q.Hooks.Config(config)
	}
	q.worker = q.Bench.Start(config, mux)
}

// Enqueue implements [adaptertest.Queue].
func (q *Queue) Enqueue(spec adaptertest.Spec) {
	q.T.Helper()
	opts := []asynq.Option{
		asynq.TaskID(spec.Name),
		asynq.MaxRetry(cmp.Or(spec.Tries, 20) - 1),
		asynq.Timeout(cmp.Or(spec.Timeout, 10*time.Minute)),
		asynq.Retention(24 * time.Hour), // so that what became of it can be read
	}
	var task *asynq.Task
	var err error
	if q.Hooks.NewTask != nil {
		task, err = q.Hooks.NewTask(spec, opts...)
	} else {
		task = asynq.NewTask(taskType, []byte(spec.Payload), opts...)
	}
	if err != nil {
		q.T.Fatalf("new task %s: %v", spec.Name, err)
	}
	q.Bench.Enqueue(task)
}

// Type returns the type that the tasks of the scenarios must have.
func Type() string { return taskType }

// Redeliver implements [adaptertest.Queue].
func (q *Queue) Redeliver(name string) {
	q.T.Helper()
	q.worker.Stop()
	q.Failover("default", name)
	q.Start(q.handler)
}

// Shutdown implements [adaptertest.Queue].
func (q *Queue) Shutdown() { q.worker.Shutdown() }

// Rerun implements [adaptertest.Queue].
func (q *Queue) Rerun(name string) {
	q.T.Helper()
	if err := q.Inspector.RunTask("default", name); err != nil {
		q.T.Fatalf("run task %s: %v", name, err)
	}
}

// ID implements [adaptertest.Queue].
func (q *Queue) ID(name string) string { return name }

// Record implements [adaptertest.Queue].
func (q *Queue) Record(name string) adaptertest.Record {
	q.T.Helper()
	info := q.Info(name)
	if info == nil {
		return adaptertest.Record{State: adaptertest.Done, Word: "gone"}
	}
	r := adaptertest.Record{
		Word:  info.State.String(),
		Spent: info.Retried,
		Error: info.LastErr,
		Note:  string(info.Result),
	}
	switch info.State {
	case asynq.TaskStateActive:
		r.State = adaptertest.Running
	case asynq.TaskStateArchived:
		r.State = adaptertest.Stopped
	case asynq.TaskStateCompleted:
		r.State = adaptertest.Done
	default:
		r.State = adaptertest.Waiting
	}
	return r
}

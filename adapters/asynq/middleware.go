package asynqruns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/adapters/internal/envelope"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/runs"
)

// Middleware is an asynq.MiddlewareFunc for [asynq.ServeMux.Use]. Programs
// without a mux wrap their handler in it.
//
// Put it first: middleware outside of it sees the run's verdicts, middleware
// inside of it sees what the handler returns. Nested muxes may use it more than
// once; the outermost counts.
func (a *Adapter) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return a.process(ctx, task, next)
	})
}

// inside marks the ctx of a handler: this task's run is open already.
type inside struct{}

func (a *Adapter) process(ctx context.Context, task *asynq.Task, next asynq.Handler) error {
	d, ok := delivery(ctx)
	if !ok {
		return errNoDelivery
	}
	key := runs.RunKey{Queue: "asynq:" + d.Queue, ID: d.TaskID}
	if ctx.Value(inside{}) == key {
		return next.ProcessTask(ctx, task)
	}
	e, err := a.envelope(task, key)
	if err != nil {
		return err
	}
	if e.Conversation == "" {
		return next.ProcessTask(ctx, task)
	}
	job, err := a.job(task, key, d.Queue, e)
	if err != nil {
		return err
	}

	last := d.Retried >= d.MaxRetry
	for {
		entered := false
		v := a.deliver(ctx, job, last, func(ctx context.Context) error {
			entered = true
			return next.ProcessTask(context.WithValue(ctx, inside{}, key), task)
		})
		switch {
		case v.Action == runs.ActionComeBack && (last || !a.wired.Load()):
			// Asynq would archive the task, or spend a retry on it.
			if err := runs.SeamOf(a.keeper).Sleep(ctx, max(v.After, minWait)); err != nil {
				return err
			}
			continue
		case v.Action == runs.ActionStale:
			// Whatever is returned now would happen to the newer delivery.
			if err := a.keeper.WaitStale(ctx, job); err != nil {
				return err
			}
		}
		a.note(task, v, !entered || e.Kept)
		return result(v, a.config.Revoke)
	}
}

func (a *Adapter) deliver(ctx context.Context, job runs.Job, last bool, handler func(context.Context) error) runs.Verdict {
	returned := false
	defer func() {
		if !returned {
			// A panic passes through, and what asynq makes of it happens to the
			// newer delivery if there is one.
			_ = a.keeper.WaitStale(ctx, job)
		}
	}()
	v := a.keeper.Deliver(ctx, job, runs.Delivery{
		Permanent:  func(err error) bool { return permanent(ctx, err, last) },
		ReplayOnly: a.config.ReplayOnly,
	}, handler)
	returned = true
	return v
}

// minWait keeps a waiting task from asking the ledger without a pause.
const minWait = 100 * time.Millisecond

var errNoDelivery = errors.New("fencedrun: asynqruns: no task id in ctx: the handler was called by hand, not by an asynq server")

// delivery returns what asynq says about the task in hand.
func delivery(ctx context.Context) (seam.Delivery, bool) {
	if d, ok := seam.DeliveryFrom(ctx); ok {
		return d, d.TaskID != "" && d.Queue != ""
	}
	var d seam.Delivery
	var ok [4]bool
	d.TaskID, ok[0] = asynq.GetTaskID(ctx)
	d.Queue, ok[1] = asynq.GetQueueName(ctx)
	d.Retried, ok[2] = asynq.GetRetryCount(ctx)
	d.MaxRetry, ok[3] = asynq.GetMaxRetry(ctx)
	return d, ok == [4]bool{true, true, true, true} && d.TaskID != "" && d.Queue != ""
}

// envelope returns what the task's producer said. No conversation means that the
// task may go without a run.
func (a *Adapter) envelope(task *asynq.Task, key runs.RunKey) (envelope.Envelope, error) {
	e, stamped, err := envelope.FromHeaders(task.Headers())
	if err != nil {
		return e, err
	}
	if !stamped && a.config.Conversation != nil {
		e.Conversation = a.config.Conversation(task)
	}
	if e.Conversation == "" {
		if a.config.Unfenced {
			return e, nil
		}
		return e, fmt.Errorf("fencedrun: asynqruns: task %s of type %q has no conversation: make it with NewTask or Headers, set Config.Conversation, or let such tasks through with Config.Unfenced", key.ID, task.Type())
	}
	if e.Nonce == "" && !a.config.TrustTaskIDs && !randomUUID(key.ID) {
		return e, fmt.Errorf("fencedrun: asynqruns: task %s of type %q has an id of its producer's and no nonce, so new work under the same id cannot be told from a redelivery: make it with NewTask, give Headers a Nonce, or set Config.TrustTaskIDs", key.ID, task.Type())
	}
	return e, nil
}

// job returns the run's job.
func (a *Adapter) job(task *asynq.Task, key runs.RunKey, queue string, e envelope.Envelope) (runs.Job, error) {
	job := runs.Job{
		Queue: key.Queue, ID: key.ID, QueueName: queue,
		Conversation: e.Conversation,
		Order:        runs.Order{Source: e.Source, Number: e.Number},
		Digest:       envelope.Digest(task.Type(), task.Payload(), e.Nonce),
		Reads:        a.config.Reads,
		Mode:         a.config.Mode,
	}
	if job.Reads == runs.FromPayload {
		job.AsOf = e.AsOf
	}
	switch from := a.config.Inbound.(type) {
	case InboundSource:
		if from == FromHeaders {
			job.Inbound = e.Inbound
		}
	case InboundFunc:
		var err error
		if job.Inbound, err = from(task); err != nil {
			return job, fmt.Errorf("fencedrun: asynqruns: Config.Inbound of task %s: %w", key.ID, err)
		}
	}
	job.NoInbound = len(job.Inbound) == 0
	return job, nil
}

// randomUUID reports whether id has the form of the ids that asynq makes up: a
// UUID of version 4.
func randomUUID(id string) bool {
	if len(id) != 36 || id[14] != '4' {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
				return false
			}
		}
	}
	return true
}

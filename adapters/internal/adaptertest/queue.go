// Package adaptertest describes a real queue, as the scenarios that every
// adapter has to pass see one. For tests only.
//
// The implementations are in asynqharness and riverharness; the scenarios are
// in package scenarios. All of it runs inside a testing/synctest bubble.
package adaptertest

import (
	"context"
	"testing"
	"time"
)

// Spec is a job to be enqueued.
type Spec struct {
	// Name identifies the job within its test. Where a queue lets the producer
	// choose the id, it is the id.
	Name string
	// Conversation that the job works on; empty for none.
	Conversation string
	// Inbound ids that the job brings.
	Inbound []string
	// Payload of the job.
	Payload string
	// Tries is how often the job may be delivered and fail before the queue
	// gives it up. Defaults to 20.
	Tries int
	// Timeout of the handler's ctx. Defaults to 10 minutes.
	Timeout time.Duration
}

// Delivery is what the handler learns about the delivery it is in.
type Delivery struct {
	Name    string
	Payload string
}

// Handler is a user's handler, of whichever queue. ctx is the one that the
// queue's own kind of handler was given.
type Handler func(ctx context.Context, d Delivery) error

// State is what became of a job, in words that all queues share.
type State string

// The states. The zero value is none of them.
const (
	// Waiting to be delivered, for the first time or again.
	Waiting State = "waiting"
	// Running now.
	Running State = "running"
	// Done is acknowledged, whether or not the queue keeps a record.
	Done State = "done"
	// Stopped is visible to people, and not delivered unless one of them says so.
	Stopped State = "stopped"
)

// Record is what the queue says about a job.
type Record struct {
	State State
	// Word is the queue's own word for the state.
	Word string
	// Spent is how many attempts failed deliveries have used up. Only
	// meaningful while the job is Waiting.
	Spent int
	// Error is the text of the last error that the queue recorded.
	Error string
	// Note is what the adapter left for people to read.
	Note string
}

// Queue is a real queue with real workers.
type Queue interface {
	// Name is "asynq" or "river".
	Name() string
	// Start starts a worker process.
	Start(h Handler)
	// Enqueue enqueues a job.
	Enqueue(spec Spec)
	// Redeliver makes the queue take a running delivery for dead and deliver
	// the job again, to a new worker process, while the old handler lives and is
	// told nothing. It returns at once.
	Redeliver(name string)
	// Shutdown stops the worker process; the ctx of running handlers is done.
	// It returns when the queue has given up waiting for them.
	Shutdown()
	// Rerun runs a stopped or finished job again, as an operator does.
	Rerun(name string)
	// ID is the queue's own id of a job.
	ID(name string) string
	// Record reads the job.
	Record(name string) Record
}

// Await waits until the job is in the state and returns its record. It fails
// the test when ten minutes of the bubble's time do not suffice.
func Await(t testing.TB, q Queue, name string, want State) Record {
	t.Helper()
	const limit = 10 * time.Minute
	var r Record
	step := 250 * time.Millisecond // finer than any retry delay of the harnesses
	for waited := time.Duration(0); waited < limit; waited += step {
		if r = q.Record(name); r.State == want {
			return r
		}
		if waited > 10*time.Second {
			step = 2 * time.Second // asking costs more than waiting
		}
		time.Sleep(step)
	}
	t.Fatalf("%s: job %s is %s (%s: %s) after %v, want %s", q.Name(), name, r.State, r.Word, r.Error, limit, want)
	return r
}

package riverharness

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
)

// QueueOf is River as an [adaptertest.Queue].
type QueueOf[TTx any] struct {
	*BenchOf[TTx]
	// Plugins of every client, inserting and working. None is River without
	// the adapter.
	Plugins []rivertype.Plugin
	// NoteKey is the key of the job's metadata under which the adapter leaves
	// its note.
	NoteKey string

	ids     map[string]int64
	worker  *river.Client[TTx]
	handler adaptertest.Handler
}

// Queue is the one on a SQLite file.
type Queue = QueueOf[Tx]

var _ adaptertest.Queue = (*Queue)(nil)

// NewQueue returns River on a bench of its own.
func NewQueue[TTx any](b *BenchOf[TTx], noteKey string, plugins ...rivertype.Plugin) *QueueOf[TTx] {
	return &QueueOf[TTx]{BenchOf: b, Plugins: plugins, NoteKey: noteKey, ids: map[string]int64{}}
}

// Name implements [adaptertest.Queue].
func (q *QueueOf[TTx]) Name() string { return "river" }

// ID implements [adaptertest.Queue].
func (q *QueueOf[TTx]) ID(name string) string { return strconv.FormatInt(q.RowID(name), 10) }

// RowID is River's id of a job.
func (q *QueueOf[TTx]) RowID(name string) int64 {
	q.T.Helper()
	id, ok := q.ids[name]
	if !ok {
		q.T.Fatalf("no job %s was enqueued", name)
	}
	return id
}

// worker is the worker of the scenarios: it sets each job's own timeout.
type worker struct {
	river.WorkerDefaults[Args]
	handler adaptertest.Handler
}

func (w *worker) Timeout(job *river.Job[Args]) time.Duration {
	var m struct {
		Timeout time.Duration `json:"timeout"`
	}
	_ = json.Unmarshal(job.Metadata, &m)
	return m.Timeout
}

func (w *worker) Work(ctx context.Context, job *river.Job[Args]) error {
	return w.handler(ctx, adaptertest.Delivery{Name: job.Args.Name, Payload: job.Args.Payload})
}

// Start implements [adaptertest.Queue].
func (q *QueueOf[TTx]) Start(h adaptertest.Handler) {
	q.T.Helper()
	q.handler = h
	q.worker = q.StartWorker(&river.Config{Plugins: slices.Clone(q.Plugins)}, &worker{handler: h})
}

// Enqueue implements [adaptertest.Queue].
func (q *QueueOf[TTx]) Enqueue(spec adaptertest.Spec) {
	q.T.Helper()
	metadata, err := json.Marshal(map[string]any{"timeout": cmp.Or(spec.Timeout, 10*time.Minute)})
	if err != nil {
		q.T.Fatal(err)
	}
	insert := q.Client
	if spec.Conversation == "" {
		insert = q.NewClient(nil) // somebody who does not have the adapter
	}
	result, err := insert.Insert(context.Background(), Args{
		Name:     spec.Name,
		Payload:  spec.Payload,
		Thread:   spec.Conversation,
		Messages: spec.Inbound,
	}, &river.InsertOpts{MaxAttempts: cmp.Or(spec.Tries, 20), Metadata: metadata})
	if err != nil {
		q.T.Fatalf("insert job %s: %v", spec.Name, err)
	}
	q.ids[spec.Name] = result.Job.ID
}

// Redeliver implements [adaptertest.Queue].
func (q *QueueOf[TTx]) Redeliver(name string) {
	q.T.Helper()
	old := q.worker
	go func() { _ = old.Stop(context.Background()) }() // waits for its handlers
	time.Sleep(time.Second)
	q.Release(q.RowID(name))
	q.Start(q.handler)
}

// Shutdown implements [adaptertest.Queue].
func (q *QueueOf[TTx]) Shutdown() {
	q.T.Helper()
	if err := q.worker.StopAndCancel(context.Background()); err != nil {
		q.T.Fatalf("stop river client: %v", err)
	}
}

// Rerun implements [adaptertest.Queue].
func (q *QueueOf[TTx]) Rerun(name string) {
	q.T.Helper()
	if _, err := q.Client.JobRetry(context.Background(), q.RowID(name)); err != nil {
		q.T.Fatalf("retry job %s: %v", name, err)
	}
}

// Record implements [adaptertest.Queue].
func (q *QueueOf[TTx]) Record(name string) adaptertest.Record {
	q.T.Helper()
	row := q.Row(q.RowID(name))
	if row == nil {
		return adaptertest.Record{State: adaptertest.Done, Word: "gone"}
	}
	r := adaptertest.Record{Word: string(row.State), Spent: row.Attempt}
	if n := len(row.Errors); n > 0 {
		r.Error = row.Errors[n-1].Error
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(row.Metadata, &m) == nil {
		_ = json.Unmarshal(m[q.NoteKey], &r.Note)
	}
	switch row.State {
	case rivertype.JobStateRunning:
		r.State = adaptertest.Running
	case rivertype.JobStateCompleted:
		r.State = adaptertest.Done
	case rivertype.JobStateCancelled, rivertype.JobStateDiscarded:
		r.State = adaptertest.Stopped
	default:
		r.State = adaptertest.Waiting
	}
	return r
}

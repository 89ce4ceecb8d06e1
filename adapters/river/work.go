package riverruns

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/envelope"
	"github.com/fencedrun/fencedrun/runs"
)

// queuePrefix and the schema are the queue part of a run's key. The queue's name
// is not: operators move jobs between queues, and ids are unique per schema.
const queuePrefix = "river:"

// inside marks the ctx of a worker: this job's run is open already.
type inside struct{}

// Work implements rivertype.WorkerMiddleware.
func (p *Plugin) Work(ctx context.Context, row *rivertype.JobRow, doInner func(context.Context) error) error {
	key := runs.RunKey{Queue: queuePrefix + p.config.Schema, ID: strconv.FormatInt(row.ID, 10)}
	if ctx.Value(inside{}) == key {
		return doInner(ctx) // installed twice
	}
	e, err := p.envelope(row)
	if err != nil {
		return err
	}
	if e.Conversation == "" {
		return doInner(ctx)
	}
	job, err := p.job(row, key, e)
	if err != nil {
		return err
	}
	p.warnAttempts(ctx, row)

	var fetchedAt time.Time
	if row.AttemptedAt != nil {
		fetchedAt = *row.AttemptedAt
	}
	if !p.at.enter(row.ID, fetchedAt) {
		return p.stale(ctx, job, errLate)
	}
	defer p.at.leave(row.ID, fetchedAt)

	entered := false
	v := p.deliver(ctx, row, job, func(ctx context.Context) error {
		entered = true
		err := doInner(context.WithValue(ctx, inside{}, key))
		if err == nil && !stepsDone(ctx) {
			return errSteps
		}
		return err
	})
	if v.Action == runs.ActionStale {
		return p.stale(ctx, job, v.Err)
	}
	note(ctx, row, v)
	if v.Action == runs.ActionReturn && errors.Is(v.Err, errSteps) {
		return nil // the worker's, of which River makes the step's error
	}
	err = result(v, p.config.CancelDropped)
	if err == nil && !entered {
		passSteps(ctx, row)
	}
	return err
}

func (p *Plugin) deliver(ctx context.Context, row *rivertype.JobRow, job runs.Job, worker func(context.Context) error) runs.Verdict {
	returned := false
	defer func() {
		if !returned {
			// A panic passes through, and what River makes of it happens to the
			// newer delivery if there is one.
			_ = p.keeper.WaitStale(ctx, job)
		}
	}()
	v := p.keeper.Deliver(ctx, job, runs.Delivery{
		Permanent:  func(err error) bool { return permanent(ctx, row, err) },
		ReplayOnly: p.config.ReplayOnly,
	}, worker)
	returned = true
	return v
}

// stale leaves the row to the newer delivery.
func (p *Plugin) stale(ctx context.Context, job runs.Job, err error) error {
	if !proven() || !outermost() {
		// The value may be hidden, or mean nothing. When the newer delivery has ended, an
		// ordinary error can at worst make one more, and that one finds the run
		// as it is.
		_ = p.keeper.WaitStale(ctx, job)
	}
	return &staleError{err}
}

var errLate = errors.New("fencedrun: riverruns: a delivery that was fetched later is at work already")

// envelope returns what was said about the job when it was inserted. No
// conversation means that the job may go without a run.
func (p *Plugin) envelope(row *rivertype.JobRow) (envelope.Envelope, error) {
	e, stamped, err := envelope.FromMetadata(row.Metadata)
	if err != nil {
		return e, err
	}
	if !stamped && p.config.Conversation != nil {
		e.Conversation = p.config.Conversation(row)
	}
	if e.Conversation == "" && !p.config.Unfenced {
		return e, fmt.Errorf("fencedrun: riverruns: job %d of kind %q has no conversation: give its args a method Conversation() string and the inserting client the plugin, set Config.Conversation, or let such jobs through with Config.Unfenced", row.ID, row.Kind)
	}
	return e, nil
}

// job returns the run's job.
func (p *Plugin) job(row *rivertype.JobRow, key runs.RunKey, e envelope.Envelope) (runs.Job, error) {
	job := runs.Job{
		Queue: key.Queue, ID: key.ID, QueueName: row.Queue,
		Conversation: e.Conversation,
		Order:        runs.Order{Source: e.Source, Number: e.Number},
		Digest:       envelope.Digest(row.Kind, row.EncodedArgs, e.Nonce),
		Reads:        p.config.Reads,
		Mode:         p.config.Mode,
	}
	if job.Order == (runs.Order{}) {
		job.Order = runs.Order{Source: key.Queue, Number: row.ID}
	}
	if job.Reads == runs.FromPayload {
		job.AsOf = e.AsOf
	}
	switch from := p.config.Inbound.(type) {
	case InboundSource:
		if from == FromArgs {
			if job.Inbound = e.Inbound; len(e.Inbound) == 0 && !e.NoInbound {
				// Its messages are unknown, and a newer job would supersede it
				// for good.
				return job, fmt.Errorf("fencedrun: riverruns: job %d of kind %q was inserted without the plugin, so its inbound ids are unknown: set Config.Inbound to an InboundFunc", row.ID, row.Kind)
			}
		}
	case InboundFunc:
		var err error
		if job.Inbound, err = from(row); err != nil {
			return job, fmt.Errorf("fencedrun: riverruns: Config.Inbound of job %d: %w", row.ID, err)
		}
	}
	job.NoInbound = len(job.Inbound) == 0
	return job, nil
}

// NoteKey is the key of a job's metadata under which the plugin leaves a line for
// people: why the run was dropped, or stopped.
const NoteKey = "fencedrun:note"

// note leaves v's note in the job's metadata, or takes an old one away.
func note(ctx context.Context, row *rivertype.JobRow, v runs.Verdict) {
	switch v.Action {
	case runs.ActionDrop, runs.ActionPark, runs.ActionDiscard:
		if v.Note != "" {
			_ = river.MetadataSet(ctx, NoteKey, v.Note)
		}
	case runs.ActionDone, runs.ActionReturn:
		if envelope.Has(row.Metadata, NoteKey) {
			_ = river.MetadataSet(ctx, NoteKey, nil)
		}
	}
}

// permanent reports whether River will never deliver the job again if the worker
// returns err.
func permanent(ctx context.Context, row *rivertype.JobRow, err error) bool {
	var snooze *river.JobSnoozeError
	var cancel *river.JobCancelError
	switch {
	case errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely):
		return true
	case errors.As(err, &snooze):
		return false
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return false // a soft stop, which River looks at before JobCancel
	case errors.As(err, &cancel):
		return true
	}
	return row.Attempt >= row.MaxAttempts
}

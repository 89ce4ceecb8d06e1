package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Delivery says how a queue would take what a handler returns.
type Delivery struct {
	// Permanent reports whether the queue would drop the job for good if the handler
	// returned err: on the last attempt, or for the queue's own cancel and skip. nil: never.
	Permanent func(err error) bool
	// ReplayOnly does not enter the handler of a redelivered run that already wrote, or may
	// have; the run ends instead, as soon as what it wrote is known. For handlers that cannot
	// name stable keys. A job that was edited after it wrote is entered once more, for its new
	// payload (rule S4.2).
	ReplayOnly bool
}

func (d Delivery) permanent(err error) bool { return d.Permanent != nil && d.Permanent(err) }

// Do begins a run for job, calls handler, and ends the run. It is Deliver for programs that
// have no adapter: nil means done or dropped, ActionReturn gives the handler's own error, and
// everything else is a *VerdictError. No queue is told anything.
func (k *Keeper) Do(ctx context.Context, job Job, handler func(ctx context.Context) error) error {
	return k.Deliver(ctx, job, Delivery{}, handler).Err
}

// Deliver runs one delivery of a job: Begin, the handler, End. handler is entered only when
// the rules allow it, in a ctx that carries the Run and is cancelled, with a cause, when the
// run loses its right to write. ctx must be the queue's own for this delivery: renewal of the
// lease ends with it. When ctx is done before the run begins, nothing is written and the
// verdict is ActionReturn with ctx's error.
//
// A panic or Goexit of handler passes through unchanged, after the lease was released.
func (k *Keeper) Deliver(ctx context.Context, job Job, d Delivery, handler func(ctx context.Context) error) Verdict {
	err := job.check()
	if handler == nil {
		err = errors.New("fencedrun: deliver: handler is nil")
	}
	if err != nil {
		return Verdict{Action: ActionDiscard, Reason: fence.ReasonInvalid}.because(err)
	}
	if err := k.open(); err != nil {
		return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(err)
	}
	k.enter()
	defer k.exit()
	job = job.own()
	r, verdict := k.begin(ctx, job, nil)
	if r == nil {
		if verdict.Action == ActionPark {
			k.tell(ctx, Event{Kind: fence.EventParked, Conversation: job.Conversation, Run: job.key(), Reason: verdict.Reason})
		}
		return k.told(ctx, job, verdict)
	}
	defer r.h.Close()
	return k.told(ctx, job, r.deliver(d, handler))
}

// broken is the verdict for a ctx that was done before anything was written. The queue knows
// best what its own ctx means.
func broken(ctx context.Context) Verdict {
	err, cause := ctx.Err(), context.Cause(ctx)
	if !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return Verdict{Action: ActionReturn, Err: err}
}

// told raises come_back and nothing else: the other verdicts have events of their own.
func (k *Keeper) told(ctx context.Context, job Job, v Verdict) Verdict {
	if v.Action == ActionComeBack {
		k.tell(ctx, Event{Kind: fence.EventComeBack, Conversation: job.Conversation, Run: job.key(), Reason: v.Reason, Text: v.After.Round(time.Millisecond).String()})
	}
	return v
}

// begin asks for the run's next delivery. Without a run, the verdict is the answer. before
// is what refused it before something was probed, nil the first time.
func (k *Keeper) begin(ctx context.Context, job Job, before *RefusedError) (*Run, Verdict) {
	sent := k.seam.Now()
	q := fence.BeginRequest{
		Run: job.key(), QueueName: job.QueueName, Order: job.Order, Inbound: job.Inbound, Digest: job.Digest,
		Mode: job.Mode, Reads: job.Reads, AsOf: job.AsOf,
	}
	q.Nonce = k.seam.NewID()
	h, v, now, err := k.ledger.Begin(ctx, job.Conversation, q)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, broken(ctx) // a lease that was taken all the same lapses
	case err != nil:
		// The handler never runs unfenced.
		return nil, Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(k.storeError(ctx, job, "begin", err))
	case v.Finished:
		return nil, Verdict{Action: ActionDone, Reason: fence.ReasonFinished, Note: "finished before"}
	case v.Refusal != nil:
		refused := k.refused(v.Refusal, EffectRef{}, now)
		if before == nil && k.probeFor(ctx, job.Conversation, refused, nil).known {
			return k.begin(ctx, job, refused)
		}
		refused.waitAs(before)
		return nil, k.verdictOf(refused).because(nil)
	}
	r := &Run{
		k: k, h: h, job: job, record: *v.Run, queue: ctx, lost: make(chan struct{}),
		progress: v.Run.Progress,
	}
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(ctx, runKey{}, r))
	r.watch(sent)
	if err := k.join(r); err != nil {
		r.finish()
		r.cancel(err)
		h.Close()
		return nil, Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(err)
	}
	return r, Verdict{}
}

// deliver enters the handler and concludes.
func (r *Run) deliver(d Delivery, handler func(ctx context.Context) error) Verdict {
	defer r.cancel(nil)
	if _, loss := r.state(); loss != nil {
		// Begin took so long that the watchdog comes before the handler.
		r.leave()
		if loss.Reason == fence.ReasonLeaseLost && !r.k.seam.Off.Has(sabotage.LateBeginReleases) {
			// It may have taken the lease from a delivery whose handler is at work. That one is
			// told at its next beat at the latest, and before the lease lapses: until then
			// nobody else may enter (rule S9.4).
			return r.k.comeBack(loss.Reason, soon).because(loss)
		}
		c, done := r.concluding(d)
		defer done()
		return c.lostTo(loss, nil)
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		// Panic or Goexit: release the lease and let it pass. recover would lose the stack.
		r.leave()
		c, done := r.concluding(d)
		defer done()
		c.abandon()
	}()
	if d.ReplayOnly && r.Delivery() > 1 {
		if v, wrote := r.replayOnly(d); wrote {
			returned = true
			return v
		}
	}
	err := handler(r.ctx)
	r.leave()
	c, done := r.concluding(d)
	defer done()
	v := c.verdict(err)
	returned = true // and not before: a probe on the way may panic as well
	return v
}

// leave stops the renewal: the handler has returned.
func (r *Run) leave() {
	r.k.leave(r)
	r.finish()
}

// replayOnly ends a redelivered run that wrote, or may have. What it wrote under another payload
// does not finish an edited job (rule S4.2): that one is entered.
func (r *Run) replayOnly(d Delivery) (Verdict, bool) {
	c, done := r.concluding(d)
	defer done()
	if !r.record.Wrote || r.record.Edited > 0 {
		if v, owned := c.owned(nil, nil); owned {
			r.leave()
			return v, true
		}
		// Asked again: what was unknown when it began may be known by now.
		switch wrote, err := c.wrote(); {
		case err != nil:
			r.leave()
			return c.final(Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}, err), true
		case !wrote:
			return Verdict{}, false
		}
	}
	r.leave()
	v := c.success(nil)
	if v.Action == ActionDone {
		v.Reason, v.Note = fence.ReasonReplayOnly, "it wrote before, and its handler is not entered twice (ReplayOnly)"
	}
	return c.final(v, nil), true
}

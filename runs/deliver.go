package runs

import (
	"context"
	"errors"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// Delivery says how a queue would take what a handler returns.
type Delivery struct {
	// Permanent reports whether the queue would drop the job for good if the handler
	// returned err: on the last attempt, or for the queue's own cancel and skip. nil: never.
	Permanent func(err error) bool
	// ReplayOnly does not enter the handler of a redelivered run that already wrote; the run
	// ends instead. For handlers that cannot name stable keys.
	ReplayOnly bool
}

// Do begins a run for job, calls handler, and ends the run. It is Deliver for programs that
// have no adapter: nil means done or dropped, ActionReturn gives the handler's own error, and
// everything else is a *VerdictError. No queue is told anything.
func (k *Keeper) Do(ctx context.Context, job Job, handler func(ctx context.Context) error) error {
	return k.Deliver(ctx, job, Delivery{}, handler).Err
}

// Deliver runs one delivery of a job: Begin, the handler, End. handler is entered only when
// the rules allow it, in a ctx that carries the Run and is cancelled, with a cause, when the
// run loses its right to write. ctx must be the queue's own for this delivery: renewal of the
// lease ends with it.
//
// A panic or Goexit of handler passes through unchanged, after the lease was released.
func (k *Keeper) Deliver(ctx context.Context, job Job, d Delivery, handler func(ctx context.Context) error) Verdict {
	if err := job.check(); err != nil {
		return Verdict{Action: ActionDiscard, Reason: fence.ReasonInvalid}.because(err)
	}
	if err := k.open(); err != nil {
		return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(err)
	}
	r, verdict := k.begin(ctx, job, d)
	if r == nil {
		return k.told(ctx, job, verdict)
	}
	defer r.h.Close()
	return k.told(ctx, job, r.deliver(d, handler))
}

// told raises come_back and nothing else: the other verdicts have events of their own.
func (k *Keeper) told(ctx context.Context, job Job, v Verdict) Verdict {
	if v.Action == ActionComeBack {
		k.tell(ctx, Event{Kind: fence.EventComeBack, Conversation: job.Conversation, Run: job.key(), Reason: v.Reason, Text: v.After.Round(time.Millisecond).String()})
	}
	return v
}

// begin asks for the run's next delivery. Without a run, the verdict is the answer.
func (k *Keeper) begin(ctx context.Context, job Job, d Delivery) (*Run, Verdict) {
	if job.Mode == "" {
		job.Mode = Supersede
	}
	sent := k.seam.Now()
	q := fence.BeginRequest{
		Run: job.key(), QueueName: job.QueueName, Order: job.Order, Inbound: job.Inbound, Digest: job.Digest,
		Mode: job.Mode, Reads: job.Reads, AsOf: job.AsOf,
	}
	q.Nonce = k.seam.NewID()
	h, v, now, err := k.ledger.Begin(ctx, job.Conversation, q)
	switch {
	case err != nil:
		// The handler never runs unfenced.
		return nil, Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(k.storeError(ctx, job, "begin", err))
	case v.Finished:
		return nil, Verdict{Action: ActionDone, Reason: fence.ReasonFinished, Note: "finished before"}
	case v.Refusal != nil:
		refused := k.refused(v.Refusal, EffectRef{}, now)
		verdict := k.verdictOf(refused)
		if verdict.Action == ActionRetry && d.permanent(refused) {
			verdict = Verdict{Action: ActionPark, Reason: refused.Reason, Note: verdict.Note}
		}
		return nil, verdict.because(nil)
	}
	r := &Run{
		k: k, h: h, job: job, record: *v.Run, queue: ctx, lost: make(chan struct{}),
		progress: v.Run.Progress,
	}
	if err := k.join(r); err != nil {
		h.Close()
		return nil, Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(err)
	}
	r.watch(sent)
	return r, Verdict{}
}

func (d Delivery) permanent(err error) bool { return d.Permanent != nil && d.Permanent(err) }

// deliver enters the handler and concludes.
func (r *Run) deliver(d Delivery, handler func(ctx context.Context) error) Verdict {
	ctx, cancel := context.WithCancelCause(context.WithValue(r.queue, runKey{}, r))
	r.cancel = cancel
	defer cancel(nil)
	if d.ReplayOnly && r.record.Wrote && r.Delivery() > 1 {
		r.leave()
		v := r.final(d, r.success(nil), nil)
		v.Note = "it wrote before, and its handler is not entered twice (ReplayOnly)"
		return v
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		// Panic or Goexit: release the lease and let it pass. recover would lose the stack.
		r.leave()
		r.abandon(d)
	}()
	err := handler(ctx)
	returned = true
	r.leave()
	return r.conclude(d, err)
}

// leave stops the renewal: the handler has returned.
func (r *Run) leave() {
	r.k.leave(r)
	r.finish()
}

// abandon gives up a run whose handler panicked.
func (r *Run) abandon(d Delivery) {
	if d.permanent(errPanicked) {
		_, _ = r.end(fence.EndDiscarded)
		return
	}
	r.release("")
}

// conclude finds the verdict for what the handler returned. It comes from the run's sticky
// state as well as from the error, because handlers swallow errors: superseded, cancelled,
// lease lost, and an unresolved effect that the run owns are sticky; everything else the
// handler may settle.
func (r *Run) conclude(d Delivery, err error) Verdict {
	if _, loss := r.state(); loss != nil {
		return r.lostVerdict(d, loss, err)
	}
	if err == nil {
		return r.final(d, r.success(nil), nil)
	}
	var ledgerDown *LedgerError
	if errors.As(err, &ledgerDown) {
		return r.final(d, Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}, err)
	}
	if refused := asRefused(err); refused != nil && refused.Refusal != nil {
		return r.final(d, r.refusedVerdict(refused), err)
	}
	if v, ok := r.owned(); ok {
		return r.final(d, v, err)
	}
	var outcome *OutcomeError
	if errors.As(err, &outcome) && outcome.Outcome != OutcomeFailed {
		// Recorded as unknown, or not recorded: resolved meanwhile, or the ledger is down.
		return r.final(d, Verdict{Action: ActionRetry, Reason: fence.ReasonAmbiguous}, err)
	}
	if d.permanent(err) {
		_, _ = r.end(fence.EndDiscarded)
	} else {
		r.release("")
	}
	return Verdict{Action: ActionReturn, Err: err}
}

// success ends the run with success, if the rules let it (rule S10.1).
func (r *Run) success(note error) Verdict {
	v, err := r.end(fence.EndSuccess)
	switch {
	case err != nil:
		return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(err)
	case v != nil:
		return r.k.verdictOf(v)
	}
	done := Verdict{Action: ActionDone}
	if note != nil {
		done.Note = "nothing left to do: " + note.Error()
	}
	return done
}

// refusedVerdict judges a refusal that the handler returned.
func (r *Run) refusedVerdict(e *RefusedError) Verdict {
	changed := e.Reason == fence.ReasonConversationChanged
	if !changed && e.Reason != fence.ReasonAlreadyAnswered || e.Refusal.ComeBack {
		return r.k.verdictOf(e)
	}
	if r.allClosed() {
		return r.success(e)
	}
	d := r.h.Delivery()
	switch {
	case d.Twice:
		return Verdict{Action: ActionPark, Reason: fence.ReasonRefusedTwice, Note: "refused twice for the same without a look in between: catch up, then read"}
	case changed && d.Reads == FromPayload && d.CaughtUp == 0:
		return Verdict{Action: ActionPark, Reason: fence.ReasonStalePayload, Note: "the payload's snapshot is out of date: enqueue a new job, or dismiss its messages"}
	}
	return r.k.verdictOf(e)
}

// allClosed reports whether every message of the job is closed.
func (r *Run) allClosed() bool {
	if len(r.job.Inbound) == 0 {
		return false
	}
	ctx, cancel := r.k.settleCtx(r.queue)
	defer cancel()
	rows := make([]string, len(r.job.Inbound))
	for i, id := range r.job.Inbound {
		rows[i] = fence.InboundRow(id)
	}
	v, err := r.k.ledger.Look(ctx, r.job.Conversation, rows...)
	if err != nil {
		return false
	}
	for _, row := range rows {
		if in, _ := v.Rows[row].(*fence.Inbound); in == nil || !in.Closed() {
			return false
		}
	}
	return true
}

// owned returns the verdict for a run that owns an unresolved effect, whatever its handler
// returned.
func (r *Run) owned() (Verdict, bool) {
	r.mu.Lock()
	unknown := r.unknown
	r.mu.Unlock()
	if !unknown {
		return Verdict{}, false
	}
	ctx, cancel := r.k.settleCtx(r.queue)
	defer cancel()
	ref, now, err := r.h.Unfinished(ctx)
	if err != nil {
		return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}, true
	}
	if ref == nil || ref.Reason == fence.ReasonTakenAgain {
		return Verdict{}, false
	}
	return r.k.verdictOf(r.k.refused(ref, EffectRef{}, now)), true
}

// lostVerdict judges a run that lost its right to write, anew: what superseded it may have
// ended.
func (r *Run) lostVerdict(d Delivery, loss *RefusedError, err error) Verdict {
	if loss.Reason == fence.ReasonLeaseLost {
		return r.final(d, r.k.verdictOf(loss), err)
	}
	ctx, cancel := r.k.settleCtx(r.queue)
	defer cancel()
	v, now, beatErr := r.h.Beat(ctx, false)
	switch {
	case beatErr != nil:
		return r.final(d, Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}, beatErr)
	case v.Refusal == nil:
		// Nobody stands in the way any more, and the job's work was interrupted.
		return r.final(d, r.k.comeBack(loss.Reason, time.Second), err)
	}
	again := r.k.refused(v.Refusal, EffectRef{}, now)
	if err == nil && again.Reason == fence.ReasonSuperseded && !v.Refusal.Stale && r.allClosed() {
		return r.final(d, r.success(again), nil)
	}
	return r.final(d, r.k.verdictOf(again), err)
}

// final does to the run what the verdict means for it, and hands the verdict out.
func (r *Run) final(d Delivery, v Verdict, cause error) Verdict {
	switch v.Action {
	case ActionDone, ActionStale:
	case ActionDrop:
		if v.Reason == fence.ReasonSuperseded {
			_, _ = r.end(fence.EndSuperseded)
		}
	case ActionDiscard:
		_, _ = r.end(fence.EndDiscarded)
	case ActionPark:
		r.release(v.Reason)
	case ActionRetry:
		if v.Err == nil {
			v = v.because(cause)
		}
		if d.permanent(v.Err) {
			_, _ = r.end(fence.EndDiscarded)
			return v
		}
		r.release("")
	default:
		r.release("")
	}
	if v.Err == nil {
		v = v.because(cause)
	}
	return v
}

// end ends the run; a refusal is returned as such.
func (r *Run) end(reason fence.EndReason) (*RefusedError, error) {
	ctx, cancel := r.k.settleCtx(r.queue)
	defer cancel()
	v, now, err := r.h.End(ctx, reason)
	if err != nil {
		return nil, r.k.storeError(ctx, r.job, "end", err)
	}
	if v.Refusal != nil {
		return r.k.refused(v.Refusal, EffectRef{}, now), nil
	}
	return nil, nil
}

// release gives the lease up. If the ledger cannot be asked, the lease lapses by itself.
func (r *Run) release(parked Reason) {
	ctx, cancel := r.k.settleCtx(r.queue)
	defer cancel()
	if _, err := r.h.Release(ctx, parked); err != nil {
		_ = r.k.storeError(ctx, r.job, "release", err)
	}
}

// WaitStale blocks until the newer delivery of the job has ended, or ctx is done; it returns
// ctx's cause then. It is for queues whose record of a job cannot be left alone.
func (k *Keeper) WaitStale(ctx context.Context, job Job) error {
	for pause := k.config.PollMin; ; pause = min(2*pause, k.config.PollMax) {
		alive, err := k.alive(ctx, job)
		if err == nil && !alive {
			return nil
		}
		if cause := k.seam.Sleep(ctx, pause/2+k.seam.Jitter(pause)); cause != nil {
			return cause
		}
	}
}

// alive reports whether a delivery of the job holds a lease.
func (k *Keeper) alive(ctx context.Context, job Job) (bool, error) {
	row := fence.RunRow(job.key())
	v, err := k.ledger.Look(ctx, job.Conversation, row)
	if err != nil {
		return false, err
	}
	for id, until := range v.Leases {
		if id.Run == row && until > v.Now {
			return true, nil
		}
	}
	return false, nil
}

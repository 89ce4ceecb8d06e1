package runs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// conclusion is a delivery whose handler has returned. Everything that is still asked and
// written has one bounded time together (rule S7.1), so that it holds up a shutdown no longer
// than that.
type conclusion struct {
	*Run
	d      Delivery
	ctx    context.Context
	cancel context.CancelFunc
	// undone says that a probe has found out that something did not happen.
	undone bool
}

func (r *Run) concluding(d Delivery) (c *conclusion, done func()) {
	c = &conclusion{Run: r, d: d}
	c.bound()
	return c, func() { c.cancel() }
}

// bound starts the time that is left for asking and writing.
func (c *conclusion) bound() {
	bound := c.k.config.SettleTimeout
	if c.ledgerAway() {
		bound /= 10 // an effect of this run has waited for the ledger that long already
	}
	c.ctx, c.cancel = c.k.detached(c.queue, bound)
}

// probeFor probes what keeps the run from ending, while the queue still gives the job time, and
// reports whether any of it is known now.
func (c *conclusion) probeFor(refused *RefusedError) bool {
	p := c.k.probeFor(c.queue, c.job.Conversation, refused, nil)
	if p.asked {
		c.cancel() // the provider took its time, and what is left to be written needs its own
		c.bound()
	}
	c.undone = c.undone || p.undone
	return p.known
}

// wrote asks whether the run owns a committed effect of its present payload.
func (c *conclusion) wrote() (bool, error) {
	row := fence.RunRow(c.job.key())
	v, err := c.k.ledger.Look(c.ctx, c.job.Conversation, row)
	if err != nil {
		return false, c.k.storeError(c.queue, c.job, "look", err)
	}
	run, _ := v.Rows[row].(*fence.Run)
	return run != nil && run.Wrote && run.Edited == 0, nil
}

// abandon gives up a run whose handler panicked or left its goroutine.
func (c *conclusion) abandon() {
	if c.d.permanent(errPanicked) {
		c.discard()
		return
	}
	c.release("")
}

// verdict finds the verdict for what the handler returned. It comes from the run's sticky
// state as well as from the error, because handlers swallow errors: superseded, cancelled,
// lease lost, and an unresolved effect that the run owns are sticky; everything else the
// handler may settle.
func (c *conclusion) verdict(err error) Verdict {
	if _, loss := c.state(); loss != nil {
		return c.lostTo(loss, err)
	}
	if err == nil {
		return c.final(c.success(nil), nil)
	}
	refused := asRefused(err)
	if refused != nil && refused.unknown() && refused.Reason != fence.ReasonAlreadyAnswered {
		return c.final(c.k.verdictOf(refused), err) // says more than that something is unresolved
	}
	if v, owned := c.owned(err, nil); owned {
		return v
	}
	if _, down := errors.AsType[*LedgerError](err); down {
		return c.final(Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}, err)
	}
	if refused != nil {
		return c.final(c.refusedBy(refused), err)
	}
	if outcome, ok := errors.AsType[*OutcomeError](err); ok && outcome.Outcome != OutcomeFailed {
		// It was recorded as unknown and has been resolved meanwhile, or it was not the run's.
		return c.final(Verdict{Action: ActionRetry, Reason: fence.ReasonAmbiguous}, err)
	}
	return c.final(Verdict{Action: ActionReturn, Err: err}, err)
}

// success ends the run with success, if the rules let it (rule S10.1). note is the refusal
// that leaves nothing to do, or nil.
func (c *conclusion) success(note error) Verdict {
	refused, err := c.end(fence.EndSuccess)
	if err == nil && c.probeFor(refused) {
		if c.undone {
			// Its handler has returned and does not know: ended now, nobody would be left to make it
			// (rule S10.1).
			return c.k.comeBack(fence.ReasonTakenAgain, time.Second)
		}
		before := refused
		refused, err = c.end(fence.EndSuccess)
		refused.waitAs(before)
	}
	switch {
	case err != nil:
		return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(err)
	case refused == nil:
	case refused.stale(), refused.Reason == fence.ReasonEnded, refused.Reason == fence.ReasonNoRun:
		return c.judgedAnew(refused, nil)
	default:
		return c.k.verdictOf(refused)
	}
	done := Verdict{Action: ActionDone}
	if note != nil {
		done.Note = "nothing left to do: " + note.Error()
	}
	return done
}

// owned returns the verdict for a run that owns an unresolved effect, whatever its handler
// returned. before is what was refused before something was probed, nil the first time.
func (c *conclusion) owned(err error, before *RefusedError) (Verdict, bool) {
	ref, now, failed := c.h.Owned(c.ctx)
	switch {
	case failed != nil:
		_ = c.k.storeError(c.queue, c.job, "owned", failed)
		return c.final(Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}, err), true
	case ref == nil:
		return Verdict{}, false
	}
	refused := c.k.refused(ref, EffectRef{}, now)
	if before == nil && c.probeFor(refused) {
		return c.owned(err, refused)
	}
	refused.waitAs(before)
	return c.final(c.k.verdictOf(refused), err), true
}

// refusedBy judges a refusal that the handler returned.
func (c *conclusion) refusedBy(e *RefusedError) Verdict {
	changed := e.Reason == fence.ReasonConversationChanged
	if !changed && e.Reason != fence.ReasonAlreadyAnswered || e.comeBack() {
		return c.k.verdictOf(e)
	}
	if c.allClosed() {
		return c.success(e)
	}
	d := c.h.Delivery()
	switch {
	case e.unknown() && len(e.Open) == 0 && (e.again() && !d.Twice || e.RetryAfter > 0):
		// An unknown holds every message that was to be answered: looking again cannot help
		// before it is known.
		return c.k.unknown(e)
	case d.Twice:
		return Verdict{Action: ActionPark, Reason: fence.ReasonRefusedTwice, Note: "refused twice for the same without a look in between: catch up, then read"}
	case changed && d.Reads == FromPayload && d.CaughtUp == 0:
		return Verdict{Action: ActionPark, Reason: fence.ReasonStalePayload, Note: "the payload's snapshot is out of date: catch up, enqueue a new job, or dismiss its messages"}
	}
	return c.k.verdictOf(e)
}

// allClosed reports whether the job brought messages and every one of them is closed.
func (c *conclusion) allClosed() bool {
	if len(c.job.Inbound) == 0 {
		return false
	}
	rows := make([]string, len(c.job.Inbound))
	for i, id := range c.job.Inbound {
		rows[i] = fence.InboundRow(id)
	}
	v, err := c.k.ledger.Look(c.ctx, c.job.Conversation, rows...)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(rows, func(row string) bool {
		in, _ := v.Rows[row].(*fence.Inbound)
		return in == nil || !in.Closed()
	})
}

// lostTo judges a run that lost its right to write.
func (c *conclusion) lostTo(loss *RefusedError, err error) Verdict {
	if loss.Reason == fence.ReasonLeaseLost {
		return c.final(c.k.verdictOf(loss), err)
	}
	return c.final(c.judgedAnew(loss, err), err)
}

// judgedAnew asks once more why the run may not write: what superseded it may have ended, and
// what ended it says what the queue is to be told. err is what the handler returned.
func (c *conclusion) judgedAnew(loss *RefusedError, err error) Verdict {
	v, now, failed := c.h.Beat(c.ctx, false)
	if failed != nil {
		return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(c.k.storeError(c.queue, c.job, "beat", failed))
	}
	if v.Refusal == nil {
		// Nobody stands in the way any more, and the job's work was interrupted.
		return c.k.comeBack(loss.Reason, time.Second)
	}
	again := c.k.refused(v.Refusal, EffectRef{}, now)
	switch {
	case again.stale():
	case again.Reason == fence.ReasonNoRun:
		// The ledger has lost the run, and its messages with it: Begin makes it again.
		return Verdict{Action: ActionRetry, Reason: again.Reason, Note: "the ledger does not know the run any more"}
	case again.Reason == fence.ReasonEnded:
		return c.endedBy(again)
	case again.Reason == fence.ReasonSuperseded && err == nil && c.allClosed():
		return c.success(again)
	}
	return c.k.verdictOf(again)
}

// endedBy is the verdict for a run that ended under its handler: a redelivery found that a
// newer run had taken care of it.
func (c *conclusion) endedBy(e *RefusedError) Verdict {
	row := fence.RunRow(c.job.key())
	v, err := c.k.ledger.Look(c.ctx, c.job.Conversation, row)
	if err != nil {
		return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(c.k.storeError(c.queue, c.job, "look", err))
	}
	if run, _ := v.Rows[row].(*fence.Run); run != nil && run.End == fence.EndSuperseded {
		return Verdict{Action: ActionDrop, Reason: fence.ReasonSuperseded, Note: notes[fence.ReasonSuperseded]}
	}
	return c.k.verdictOf(e)
}

// final does to the run what the verdict means for it, and hands the verdict out.
func (c *conclusion) final(v Verdict, cause error) Verdict {
	if v.Err == nil {
		v = v.because(cause)
	}
	ours := true
	switch v.Action {
	case ActionDone, ActionStale:
	case ActionDrop:
		if v.Reason == fence.ReasonSuperseded {
			if _, err := c.end(fence.EndSuperseded); err != nil {
				// The next delivery is refused, and its Begin ends the run.
				return Verdict{Action: ActionRetry, Reason: fence.ReasonLedger}.because(err)
			}
		}
	case ActionDiscard:
		ours = c.discard()
	case ActionRetry, ActionReturn:
		if c.d.permanent(v.Err) {
			ours = c.discard()
		} else {
			ours = c.release("")
		}
	case ActionPark:
		ours = c.release(v.Reason)
	default:
		ours = c.release("")
	}
	if !ours {
		return c.taken(v, cause)
	}
	return v
}

// taken judges a delivery that learns only at its end that the job is a later delivery's, or
// cancelled. Whatever it returns, the queue's record of the job is not its to move: queues
// apply it to the delivery that is at work.
func (c *conclusion) taken(v Verdict, cause error) Verdict {
	beat, now, err := c.h.Beat(c.ctx, false)
	if err != nil || beat.Refusal == nil || !beat.Refusal.Stale && beat.Refusal.Reason != fence.ReasonCancelled {
		return v
	}
	return c.k.verdictOf(c.k.refused(beat.Refusal, EffectRef{}, now)).because(cause)
}

// discard ends the run as discarded; false means that it was not this delivery's to end.
func (c *conclusion) discard() bool {
	refused, err := c.end(fence.EndDiscarded)
	return refused == nil || err != nil
}

// end ends the run; a refusal is returned as such.
func (c *conclusion) end(reason fence.EndReason) (*RefusedError, error) {
	var v fence.EndVerdict
	var now fence.Millis
	err := c.k.insist(c.ctx, func() (err error) {
		v, now, err = c.h.End(c.ctx, reason)
		return err
	})
	if err != nil {
		return nil, c.k.storeError(c.queue, c.job, "end", err)
	}
	if v.Refusal != nil {
		return c.k.refused(v.Refusal, EffectRef{}, now), nil
	}
	if v.Again {
		c.mu.Lock()
		untold := c.untold
		c.untold = nil
		c.mu.Unlock()
		c.k.emit(c.queue, c.job.Conversation, untold)
	}
	return nil, nil
}

// release gives the lease up; false means that there was none of this delivery's to give. If
// the ledger cannot be asked, the lease lapses by itself.
func (c *conclusion) release(parked Reason) bool {
	var released bool
	err := c.k.insist(c.ctx, func() (err error) {
		released, err = c.h.Release(c.ctx, parked)
		return err
	})
	if err != nil {
		_ = c.k.storeError(c.queue, c.job, "release", err)
	}
	return released || err != nil
}

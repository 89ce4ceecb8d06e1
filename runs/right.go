package runs

import (
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// A run's right to write, as far as this process knows it. What is lost here stays lost: the
// handler was told to stop, and it may have stopped half-way.

// lose makes the run lose its right to write: the handler's ctx is cancelled with the cause,
// and effects under way are told. Only the first loss counts.
func (r *Run) lose(cause *RefusedError) {
	if cause.Reason == fence.ReasonBusy {
		// In mode exclusive another holder means that the lease was lost (rule S9.4).
		copied := *cause
		copied.Reason = fence.ReasonLeaseLost
		cause = &copied
	}
	r.mu.Lock()
	if r.loss != nil || r.over {
		r.mu.Unlock()
		return
	}
	r.loss = cause
	r.mu.Unlock()
	close(r.lost)
	r.cancel(cause)
	r.k.tell(r.queue, Event{
		Kind: fence.EventLeaseLost, Conversation: r.job.Conversation, Run: r.job.key(),
		Delivery: r.Delivery(), Reason: cause.Reason,
	})
}

// refused keeps what a refusal by the ledger tells about the run itself.
func (r *Run) refused(e *RefusedError) {
	switch e.Refusal.Reason {
	case fence.ReasonSuperseded, fence.ReasonCancelled, fence.ReasonEnded, fence.ReasonNoRun, fence.ReasonBusy, fence.ReasonLeaseLost:
		lost := *e
		lost.Effect = EffectRef{}
		r.lose(&lost)
	}
}

// state returns whether the handler has returned, and why the run may no longer write.
func (r *Run) state() (over bool, loss *RefusedError) {
	r.mu.Lock()
	expires := r.expires
	over, loss = r.over, r.loss
	r.mu.Unlock()
	if over || loss != nil || expires.IsZero() || r.k.seam.Now().Before(expires) {
		return over, loss
	}
	// The process slept, and its watchdog is about to bite.
	r.bite(expires)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over, r.loss
}

// may returns why the run may write nothing any more, or nil.
func (r *Run) may() *RefusedError {
	switch over, loss := r.state(); {
	case loss != nil:
		return loss
	case over:
		return localRefusal(fence.ReasonEnded, EffectRef{})
	}
	return nil
}

// watch starts, or starts again, the watchdog of mode exclusive: it counts from the moment at
// which a renewal that landed was sent, and stops the handler before anybody else can take
// over (rule S9.4).
func (r *Run) watch(sent time.Time) {
	if r.job.Mode != Exclusive || r.k.seam.Off.Has(sabotage.NoWatchdog) {
		return
	}
	c := &r.k.config
	// The margin is for a clock that drifts and for what stopping takes. It never reaches back
	// to the beat.
	margin := min(c.Lease/10, (c.Lease-c.Beat)/2)
	expires := sent.Add(c.Lease - margin)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.loss != nil || !expires.After(r.expires) {
		return
	}
	if !r.expires.IsZero() && !r.k.seam.Now().Before(r.expires) {
		// The process slept, and a renewal came before the watchdog that is due. It proves
		// nothing: a Begin that saw the lease lapsed may be about to be written.
		return
	}
	if r.stop != nil {
		r.stop()
	}
	r.expires = expires
	r.stop = r.k.seam.AfterFunc(max(expires.Sub(r.k.seam.Now()), 0), func() { r.bite(expires) })
}

// bite is what the watchdog does, unless it was started again meanwhile.
func (r *Run) bite(expires time.Time) {
	r.mu.Lock()
	due := r.expires.Equal(expires)
	r.mu.Unlock()
	if due {
		r.lose(localRefusal(fence.ReasonLeaseLost, EffectRef{}))
	}
}

// finish marks the handler as returned and stops the watchdog.
func (r *Run) finish() {
	r.mu.Lock()
	r.over = true
	stop := r.stop
	r.stop = nil
	r.mu.Unlock()
	if stop != nil {
		stop()
	}
}

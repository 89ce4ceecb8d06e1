package runs

import (
	"errors"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// Action says what a queue is to do with a job after a delivery. The zero Action is none.
type Action string

// The actions of a Verdict.
const (
	// ActionDone: acknowledge. The job is done, was done before, or has nothing left to do.
	ActionDone Action = "done"
	// ActionDrop: acknowledge with a note. Superseded for good, or cancelled.
	ActionDrop Action = "drop"
	// ActionComeBack: deliver again after Verdict.After, without spending an attempt.
	ActionComeBack Action = "come_back"
	// ActionRetry: an error of ours; deliver again as after any error.
	ActionRetry Action = "retry"
	// ActionPark: stop the job visibly, for a person or a probe. The run stays active; running
	// the job again resumes it.
	ActionPark Action = "park"
	// ActionDiscard: stop the job visibly; its run has ended as discarded. Running the job
	// again re-opens it.
	ActionDiscard Action = "discard"
	// ActionStale: a newer delivery of the same job holds the right to write; leave the queue's
	// record of the job alone.
	ActionStale Action = "stale"
	// ActionReturn: the handler's own error, to be handed to the queue as it came.
	ActionReturn Action = "return"
)

// Verdict is what a delivery came to. Adapters translate it into their queue's words.
type Verdict struct {
	Action Action
	// Reason is the rules' word for it; "" when the handler decided.
	Reason Reason
	// After is how long to wait, for ActionComeBack.
	After time.Duration
	// Note is one line for people. It holds no key and no summary.
	Note string
	// Err is the handler's own error, exactly as it came, for ActionReturn; else nil when
	// the job is done or dropped, else a *VerdictError.
	Err error
}

// VerdictError is what a queue is handed when the verdict is the library's. It matches the
// sentinel of its reason with errors.Is. The user's own error is in its text and in Cause, but
// not in its chain: a verdict type of the queue, or a ctx error, deep in that chain would
// otherwise overrule the verdict.
type VerdictError struct {
	Action Action
	Reason Reason
	After  time.Duration
	Note   string
	// Cause is what the handler returned, or the ledger's error; nil if there was none.
	Cause error
}

// Error gives the note and the cause's text.
func (e *VerdictError) Error() string {
	s := "fencedrun: " + string(e.Action)
	if e.Reason != "" {
		s += ": " + string(e.Reason)
	}
	if e.Note != "" {
		s += ": " + e.Note
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Is reports whether target is the sentinel of the verdict's reason.
func (e *VerdictError) Is(target error) bool {
	r, ok := target.(reasonError)
	return ok && Reason(r) == e.Reason
}

func (v Verdict) because(cause error) Verdict {
	if v.Action != ActionDone && v.Action != ActionDrop {
		v.Err = &VerdictError{Action: v.Action, Reason: v.Reason, After: v.After, Note: v.Note, Cause: cause}
	}
	return v
}

// soon is the longest that a job waits before it asks again, however long what it waits for
// may take: the live run may end at any moment.
const soon = 5 * time.Second

// comeBack waits for left, at most soon, with jitter so that jobs that wait for the same do
// not come back at the same moment.
func (k *Keeper) comeBack(reason Reason, left time.Duration) Verdict {
	if left <= 0 || left > soon {
		left = soon
	}
	return Verdict{Action: ActionComeBack, Reason: reason, After: left + k.seam.Jitter(left/5+time.Millisecond)}
}

// unknown is the verdict for a job that an ambiguous effect holds up: come back while late
// evidence may still arrive, retry while the provider's key window is open, else park (rules
// S1 Parked, S8).
func (k *Keeper) unknown(e *RefusedError) Verdict {
	switch {
	case e.again():
		return Verdict{Action: ActionRetry, Reason: e.Reason, Note: "the effect may be called again while its provider honours the key"}
	case e.RetryAfter > 0:
		return Verdict{
			Action: ActionComeBack, Reason: e.Reason, After: e.RetryAfter + k.seam.Jitter(e.RetryAfter/20+time.Millisecond),
			Note: "the outcome of an effect is unknown; late evidence may still arrive",
		}
	}
	return Verdict{Action: ActionPark, Reason: e.Reason, Note: "the outcome of an effect is unknown: resolve it, then run the job again"}
}

// verdictOf translates a refusal that is not a matter of the run's own life.
func (k *Keeper) verdictOf(e *RefusedError) Verdict {
	switch {
	case e.stale():
		return Verdict{Action: ActionStale, Reason: e.Reason, Note: "a later delivery of this job holds the right to write"}
	case e.Reason == fence.ReasonCancelled:
		return Verdict{Action: ActionDrop, Reason: e.Reason, Note: notes[e.Reason]}
	case e.Reason == fence.ReasonSuperseded && !e.comeBack():
		return Verdict{Action: ActionDrop, Reason: e.Reason, Note: notes[e.Reason]}
	case e.Reason == fence.ReasonLeaseLost:
		return Verdict{Action: ActionRetry, Reason: e.Reason, Note: "the lease may have run out"}
	case e.comeBack() || e.Reason == fence.ReasonWaitTimeout:
		return k.comeBack(e.Reason, e.RetryAfter)
	case e.Reason == fence.ReasonAmbiguous || e.Reason == fence.ReasonUnresolved:
		return k.unknown(e)
	}
	switch e.Reason {
	case fence.ReasonConversationChanged, fence.ReasonAlreadyAnswered:
		return Verdict{Action: ActionRetry, Reason: e.Reason, Note: "the handler has to look again"}
	case fence.ReasonParamsChanged, fence.ReasonExhausted, fence.ReasonConversationMismatch, fence.ReasonNoRun,
		fence.ReasonEnded, fence.ReasonValueNotKept, fence.ReasonInvalid:
		return Verdict{Action: ActionDiscard, Reason: e.Reason, Note: notes[e.Reason]}
	}
	return Verdict{Action: ActionRetry, Reason: e.Reason}
}

var notes = map[Reason]string{
	fence.ReasonCancelled:            "cancelled",
	fence.ReasonSuperseded:           "superseded by a newer job that took care of it",
	fence.ReasonParamsChanged:        "the same effect was asked for with other params",
	fence.ReasonExhausted:            "too many calls are known not to have applied",
	fence.ReasonConversationMismatch: "the job is active on another conversation",
	fence.ReasonNoRun:                "an effect was asked for outside a run",
	fence.ReasonEnded:                "an effect was asked for after its run had ended",
	fence.ReasonValueNotKept:         "the effect is done, but the value that the handler needs could not be kept",
	fence.ReasonInvalid:              "the job cannot be run",
}

// errPanicked stands for a handler that panicked or left its goroutine, for Delivery.Permanent.
var errPanicked = errors.New("fencedrun: the handler panicked or left its goroutine")

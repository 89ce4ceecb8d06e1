package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// A refusal matches the sentinel of its reason with errors.Is.
var (
	// ErrSuperseded: a newer run, or a later delivery of the same job, holds the right to
	// write (rules S4.6, S5.2).
	ErrSuperseded = sentinel(fence.ReasonSuperseded)
	// ErrConversationChanged: something landed since this delivery last caught up (S5.3).
	ErrConversationChanged = sentinel(fence.ReasonConversationChanged)
	// ErrAlreadyAnswered: a message named in Answers is answered by something else (S5.4).
	ErrAlreadyAnswered = sentinel(fence.ReasonAlreadyAnswered)
	// ErrUnresolved: an effect of the same intent is pending or unknown (S5.3, S10.1).
	ErrUnresolved = sentinel(fence.ReasonUnresolved)
	// ErrParamsChanged: the effect was made, or is being made, with other params (S5.1).
	ErrParamsChanged = sentinel(fence.ReasonParamsChanged)
	// ErrInFlight: the effect is being called right now (S5.1).
	ErrInFlight = sentinel(fence.ReasonInFlight)
	// ErrAmbiguous: the effect's outcome is unknown (S5.1).
	ErrAmbiguous = sentinel(fence.ReasonAmbiguous)
	// ErrNoRun: there is no run in the ctx (S5.2).
	ErrNoRun = sentinel(fence.ReasonNoRun)
	// ErrCancelled: the run was cancelled (S10.3).
	ErrCancelled = sentinel(fence.ReasonCancelled)
	// ErrEnded: the run has ended, or its handler has returned (S10.2).
	ErrEnded = sentinel(fence.ReasonEnded)
	// ErrBusy: another run holds the conversation in mode exclusive (S4.7).
	ErrBusy = sentinel(fence.ReasonBusy)
	// ErrExhausted: too many calls are known not to have applied (S5.6).
	ErrExhausted = sentinel(fence.ReasonExhausted)
	// ErrConversationMismatch: the job is active on another conversation (S4.5).
	ErrConversationMismatch = sentinel(fence.ReasonConversationMismatch)
	// ErrWaitTimeout: an effect was still in flight when the wait for it was over (S5.1).
	ErrWaitTimeout = sentinel(fence.ReasonWaitTimeout)
	// ErrLeaseLost: in mode exclusive, the lease may have run out (S9.4).
	ErrLeaseLost = sentinel(fence.ReasonLeaseLost)
	// ErrValueNotKept: the effect is done, but its value could not be kept (S7.5).
	ErrValueNotKept = sentinel(fence.ReasonValueNotKept)
)

type reasonError Reason

func sentinel(r Reason) error { return reasonError(r) }

func (e reasonError) Error() string { return "fencedrun: " + string(e) }

// EffectRef names an effect for people and programs.
type EffectRef struct {
	ID     string // as keeper.Resolve takes it
	Intent string
	Key    string // canonical JSON
}

// RefusedError says that an effect was not called, and why. errors.Is finds the sentinel of
// its Reason.
type RefusedError struct {
	Reason Reason
	// Effect is what was refused; zero when a whole run was.
	Effect EffectRef
	// Conflicts are the effects and outside writes that stand in the way.
	Conflicts []Conflict
	// Answered says which of the named messages are answered, by what and in which state;
	// Open are those that still need an answer of their own (already_answered).
	Answered []Conflict
	Open     []string
	// StoredParams and AskedParams are the two sides of params_changed, as canonical JSON.
	StoredParams, AskedParams string
	// RetryAfter is how long waiting is known to be needed; 0 when waiting does not help by
	// itself.
	RetryAfter time.Duration
	// Refusal is the rules' own word, with times of the ledger's clock.
	Refusal *fence.Refusal
}

// refused translates a refusal of the rules. now is the ledger's clock, 0 if it is not known.
func (k *Keeper) refused(ref *fence.Refusal, effect EffectRef, now fence.Millis) *RefusedError {
	e := &RefusedError{
		Reason: ref.Reason, Effect: effect, Conflicts: ref.Conflicts, Answered: ref.Answered, Open: ref.Open,
		StoredParams: ref.Stored, AskedParams: ref.Asked, Refusal: ref,
	}
	if now > 0 && ref.At > now {
		e.RetryAfter = (ref.At - now).Duration()
	}
	return e
}

func localRefusal(reason Reason, effect EffectRef) *RefusedError {
	return &RefusedError{Reason: reason, Effect: effect, Refusal: &fence.Refusal{Reason: reason}}
}

// Error says what was refused and why, in one line, without keys or summaries.
func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString("fencedrun: ")
	if e.Effect.Intent != "" {
		b.WriteString(e.Effect.Intent + " ")
	}
	b.WriteString("refused: " + string(e.Reason))
	switch {
	case e.stale():
		b.WriteString(" by a later delivery of the same job")
	case e.Reason == fence.ReasonNoRun:
		b.WriteString(": there is no run in ctx; was the handler called outside its adapter?")
	}
	if n := len(e.Conflicts); n > 0 {
		fmt.Fprintf(&b, " (%d in the way)", n)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, "; try again in %v", max(e.RetryAfter.Round(time.Second), time.Second))
	}
	return b.String()
}

// A RefusedError that a user's test made has no Refusal.

func (e *RefusedError) stale() bool    { return e.Refusal != nil && e.Refusal.Stale }
func (e *RefusedError) comeBack() bool { return e.Refusal != nil && e.Refusal.ComeBack }
func (e *RefusedError) unknown() bool  { return e.Refusal != nil && e.Refusal.Unknown }
func (e *RefusedError) again() bool    { return e.Refusal != nil && e.Refusal.Again }

// Is reports whether target is the sentinel of e's reason.
func (e *RefusedError) Is(target error) bool {
	r, ok := target.(reasonError)
	return ok && Reason(r) == e.Reason
}

// Outcome says what became of a call whose effect was run and did not simply succeed.
type Outcome string

// The outcomes of an OutcomeError.
const (
	// OutcomeFailed: the call is known not to have applied. It may be tried again.
	OutcomeFailed Outcome = "failed"
	// OutcomeAmbiguous: nobody knows whether it applied. It is not tried again before
	// somebody does.
	OutcomeAmbiguous Outcome = "ambiguous"
	// OutcomeNotRecorded: it applied, and the ledger could not be told (rule S7.1). It will be
	// shown as unknown. The effect's value was returned beside the error.
	OutcomeNotRecorded Outcome = "committed_not_recorded"
)

// OutcomeError says that an effect was called and failed, or that its outcome is unknown. It
// wraps the effect's own error.
type OutcomeError struct {
	Outcome Outcome
	Effect  EffectRef
	Call    int
	// Recorded is false when the ledger does not know of this outcome yet.
	Recorded bool
	Err      error
}

// Error gives the outcome and the cause.
func (e *OutcomeError) Error() string {
	s := fmt.Sprintf("fencedrun: %s: call %d: %s", e.Effect.Intent, e.Call, e.Outcome)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the effect's own error.
func (e *OutcomeError) Unwrap() error { return e.Err }

// ErrNotStarted is the cause of an OutcomeError whose call was never made, because too little
// time was left when the claim was granted (rule S6.3).
var ErrNotStarted = errors.New("fencedrun: not started: too little time was left when the claim was granted")

// LedgerError says that the ledger could not be asked. What was asked for did not happen, or
// will be recognised when it is asked for again: an effect is not called without its claim.
type LedgerError struct {
	Verb string
	Err  error
}

// Error names what was tried.
func (e *LedgerError) Error() string { return "fencedrun: " + e.Err.Error() }

// Unwrap returns the ledger's own error.
func (e *LedgerError) Unwrap() error { return e.Err }

// failed is storeError, unless it was the caller's own ctx that ended the question.
func (k *Keeper) failed(ctx context.Context, job Job, verb string, err error) error {
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, cause)) {
		return cause
	}
	return k.storeError(ctx, job, verb, err)
}

// storeError wraps an error of the ledger and tells the observer.
func (k *Keeper) storeError(ctx context.Context, job Job, verb string, err error) error {
	wrapped := &LedgerError{Verb: verb, Err: err}
	k.tell(ctx, Event{Kind: fence.EventLedgerError, Conversation: job.Conversation, Run: job.key(), Text: verb, Err: err})
	return wrapped
}

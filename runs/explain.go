package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// Explanation is what to tell a model, or a person, about an error of this package.
type Explanation struct {
	// Message is one or two plain sentences that say what happened and what to do. It holds
	// no key and no summary.
	Message string
	// Terminal: asking again in this run cannot help, now or after another look; the handler
	// should return the error.
	Terminal bool
	// Retryable: asking for the same effect again, and for nothing else first, may succeed;
	// after RetryAfter if it is set. An unknown outcome is neither: it must not be repeated.
	Retryable  bool
	RetryAfter time.Duration
}

var explained = map[Reason]Explanation{
	fence.ReasonSuperseded:           {Message: "A newer job has taken over this conversation. Stop; it answers what is open.", Terminal: true},
	fence.ReasonCancelled:            {Message: "This job was cancelled. Stop.", Terminal: true},
	fence.ReasonEnded:                {Message: "This job has already ended. Nothing more can be done in it.", Terminal: true},
	fence.ReasonLeaseLost:            {Message: "The right to write may have passed to another worker. Stop.", Terminal: true},
	fence.ReasonBusy:                 {Message: "Another job holds this conversation. Stop; this job comes back.", Terminal: true},
	fence.ReasonNoRun:                {Message: "There is no job in this context, so nothing may be written.", Terminal: true},
	fence.ReasonConversationMismatch: {Message: "This job is active on another conversation.", Terminal: true},
	fence.ReasonConversationChanged:  {Message: "The conversation has changed since it was read. Read it again before doing anything."},
	fence.ReasonAlreadyAnswered:      {Message: "A message that this would answer is answered already. Read the conversation again and answer only what is open."},
	fence.ReasonUnresolved:           {Message: "An earlier action of this kind is still unresolved: it may or may not have happened. Do not repeat it, and do not do another of the kind before it is resolved."},
	fence.ReasonAmbiguous:            {Message: "Nobody knows whether this action happened. Do not repeat it; a person or a check will find out."},
	fence.ReasonParamsChanged:        {Message: "This action was done, or is being done, with other parameters. It is not done a second time."},
	fence.ReasonInFlight:             {Message: "This action is under way right now. Do not start it again.", Retryable: true},
	fence.ReasonWaitTimeout:          {Message: "This action is still under way. Do not start it again.", Retryable: true},
	fence.ReasonExhausted:            {Message: "This action failed too often and is not tried again.", Terminal: true},
	fence.ReasonLedger:               {Message: "The record of what was done cannot be reached, so nothing was started. Try again later.", Retryable: true},
	fence.ReasonTakenAgain:           {Message: "A message that was left to another action is open again. This job comes back for it.", Terminal: true},
	fence.ReasonStalePayload:         {Message: "The conversation has changed since this job was made, and the job cannot see how. It is stopped for a person.", Terminal: true},
	fence.ReasonRefusedTwice:         {Message: "This job was refused twice for the same, without having looked in between. It is stopped for a person.", Terminal: true},
	fence.ReasonInvalid:              {Message: "This job cannot be run as it is.", Terminal: true},
	fence.ReasonValueNotKept:         {Message: "This action is done. Its result was not kept; do not do it again.", Terminal: true},
}

// Explain says what an error of this package means, for a model that calls tools: a message,
// whether the run is over, and whether trying again can help. An error of somebody else's is
// explained by its own text, and is retryable only if it says NotApplied.
func Explain(err error) Explanation {
	if err == nil {
		return Explanation{Message: "Done."}
	}
	if outcome, ok := errors.AsType[*OutcomeError](err); ok {
		return explainOutcome(outcome.Outcome)
	}
	if refused := asRefused(err); refused != nil {
		return explainReason(refused.Reason, refused.RetryAfter)
	}
	if verdict, ok := errors.AsType[*VerdictError](err); ok && verdict.Reason != "" {
		e := explainReason(verdict.Reason, verdict.After)
		e.Terminal = true // the run is over, whatever comes of its job
		return e
	}
	_, down := errors.AsType[*LedgerError](err)
	switch {
	case down:
		return explained[fence.ReasonLedger]
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Explanation{Message: "The job was stopped before this action was started.", Terminal: true}
	case notApplied(err, nil):
		return explainOutcome(OutcomeFailed)
	}
	return Explanation{Message: "This action could not be started: " + err.Error()}
}

func explainOutcome(o Outcome) Explanation {
	switch o {
	case OutcomeFailed:
		return Explanation{Message: "This action failed and certainly did not happen. It may be tried again.", Retryable: true}
	case OutcomeNotRecorded:
		return Explanation{Message: "This action happened, but could not be written down. Do not repeat it.", Terminal: true}
	}
	return explained[fence.ReasonAmbiguous]
}

func explainReason(reason Reason, after time.Duration) Explanation {
	e, ok := explained[reason]
	if !ok {
		e = Explanation{Message: fmt.Sprintf("This action was refused: %s.", reason)}
	}
	if e.Retryable {
		e.RetryAfter = after
	}
	return e
}

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
	// Terminal: the run can do nothing more; the handler should return the error.
	Terminal bool
	// Retryable: asking for the same effect again may succeed, after RetryAfter if it is
	// set. An unknown outcome is neither: it must not be repeated.
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
	fence.ReasonValueNotKept:         {Message: "This action is done. Its result was not kept; do not do it again.", Terminal: true},
}

// Explain says what an error of this package means, for a model that calls tools: a message,
// whether the run is over, and whether trying again can help. Errors of others are explained
// as retryable failures of unknown cause only if they say NotApplied.
func Explain(err error) Explanation {
	if err == nil {
		return Explanation{Message: "Done."}
	}
	var outcome *OutcomeError
	if errors.As(err, &outcome) {
		switch outcome.Outcome {
		case OutcomeFailed:
			return Explanation{Message: "This action failed and certainly did not happen. It may be tried again.", Retryable: true}
		case OutcomeNotRecorded:
			return Explanation{Message: "This action happened, but could not be written down. Do not repeat it.", Terminal: true}
		default:
			return explained[fence.ReasonAmbiguous]
		}
	}
	var ledgerDown *LedgerError
	switch refused := asRefused(err); {
	case refused != nil:
		e, ok := explained[refused.Reason]
		if !ok {
			e = Explanation{Message: fmt.Sprintf("This action was refused: %s.", refused.Reason)}
		}
		e.RetryAfter = refused.RetryAfter
		return e
	case errors.As(err, &ledgerDown):
		return Explanation{Message: "The record of what was done cannot be reached, so nothing was started. Try again later.", Retryable: true}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Explanation{Message: "The job was stopped before this action was started.", Terminal: true}
	case notApplied(err, nil):
		return Explanation{Message: "This action failed and certainly did not happen. It may be tried again.", Retryable: true}
	}
	return Explanation{Message: "This action could not be started: " + err.Error()}
}

package fence

import (
	"strconv"
	"strings"
)

// eventTexts say what each kind of event means. Words in braces stand for the event's fields.
var eventTexts = map[EventKind]string{
	EventBegun:          "{run} was entered for the first time",
	EventResumed:        "{run} was entered, a later delivery of a known run",
	EventReopened:       "{run} had ended as {text} and is judged anew: somebody pressed retry",
	EventNewGeneration:  "{run} starts anew, its id was reused: {text}",
	EventDigestChanged:  "{run} has another payload than before: somebody edited the waiting job",
	EventFinishedAgain:  "{run} had ended and is acknowledged without being entered",
	EventTombstoneBound: "{run} had been cancelled before it arrived",
	EventRefused:        "{run} was refused{effect}: {reason}",
	EventClaimed:        "{call} was granted to {run}",
	EventReplayed:       "{call} was replayed to {run}",
	EventCommitted:      "{call} happened, made by {run}",
	EventFailed:         "{call} is known not to have happened, made by {run}",
	EventAmbiguous:      "{call} has an unknown outcome, made by {run}",
	EventLapsed:         "{call} outlived its deadline and is unknown now, made by {run}",
	EventLate:           "{call} was told late to be {text}, made by {run}",
	EventDuplicate:      "{call} may have happened beside another, or after somebody decided that it had not: a person must look",
	EventVanished:       "{call} was re-created from its outcome: its record was gone",
	EventCaughtUp:       "{run} takes what it reads from now on as current",
	EventDismissed:      "{inbound} was closed without an answer: {text}",
	EventUnanswered:     "{run} ended and left {inbound} open",
	EventReported:       "something else wrote{intent}: {text}",
	EventEcho:           "what was reported is one of our own effects{effect}",
	EventResolved:       "{call} was decided from {text}",
	EventProbed:         "the provider could not say what became of {call}: {text}",
	EventCancelled:      "{run} was cancelled by {text}",
	EventReleased:       "{run} returned without ending",
	EventParked:         "{run} was stopped for a person or a probe: {reason}",
	EventEnded:          "{run} ended: {text}",
	EventStaleEnd:       "{run} is not the latest delivery: its end changed nothing",
	EventInboundDropped: "{inbound} was open for longer than the retention and is forgotten",
	EventPurged:         "records past their retention were deleted",
	EventStamped:        "a ledger stamp was taken",
	EventLeaseLost:      "{run} may no longer write, its handler was told to stop: {reason}",
	EventComeBack:       "{run} went back to its queue and spent no attempt: {reason}",
	EventNotRecorded:    "{call} has an outcome that could not be written down, made by {run}",
	EventValueNotKept:   "{call} happened, but its value could not be kept",
	EventLedgerError:    "the ledger could not be asked: {text}",
	EventProgressSaved:  "{run} stored its progress",
	EventLeaseRejoined:  "{run} took its lapsed lease up again, nobody had used it",
}

// event says what happened. A field that is empty is left out, or named in general.
func (d *describer) event(e *Event) string {
	text, ok := eventTexts[e.Kind]
	if !ok {
		text = "{run}{effect}"
	}
	call, effect, intent, message := "a call", "", "", "a message"
	if e.Inbound != "" {
		message = "message " + e.Inbound
	}
	if e.Intent != "" {
		intent = " a " + e.Intent
		call = strings.TrimSpace(effectName(e.Intent, e.Key))
		effect = " " + call
	}
	if e.Call > 0 {
		call += " call " + strconv.Itoa(e.Call)
	}
	return string(e.Kind) + ": " + strings.NewReplacer(
		"{run}", runName(e.Run, e.Delivery),
		"{call}", call,
		"{effect}", effect,
		"{intent}", intent,
		"{inbound}", message,
		"{reason}", string(e.Reason),
		"{text}", orElse(e.Text, "nobody says more"),
	).Replace(text)
}

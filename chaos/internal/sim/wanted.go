package sim

import (
	"strings"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// What a campaign must have seen beside its faults and the edges of states.

// outcomes are what came of a call of Once beside a refusal.
var outcomes = []string{
	"executed", "replayed", "error", "outcome " + string(runs.OutcomeFailed), "outcome " + string(runs.OutcomeAmbiguous),
	"outcome " + string(runs.OutcomeNotRecorded),
}

var actions = []runs.Action{
	runs.ActionDone, runs.ActionDrop, runs.ActionComeBack, runs.ActionRetry,
	runs.ActionPark, runs.ActionDiscard, runs.ActionStale, runs.ActionReturn,
}

// reasons are those of refused effects and of verdicts.
var reasons = []fence.Reason{
	fence.ReasonSuperseded, fence.ReasonConversationChanged, fence.ReasonAlreadyAnswered, fence.ReasonUnresolved,
	fence.ReasonParamsChanged, fence.ReasonInFlight, fence.ReasonAmbiguous, fence.ReasonNoRun,
	fence.ReasonCancelled, fence.ReasonEnded, fence.ReasonBusy, fence.ReasonExhausted,
	fence.ReasonConversationMismatch, fence.ReasonNotStarted, fence.ReasonWaitTimeout, fence.ReasonStalePayload,
	fence.ReasonRefusedTwice, fence.ReasonLeaseLost, fence.ReasonReplayOnly, fence.ReasonTakenAgain,
	fence.ReasonFinished, fence.ReasonLedger, fence.ReasonValueNotKept, fence.ReasonInvalid,
}

var events = []fence.EventKind{
	fence.EventBegun, fence.EventResumed, fence.EventReopened, fence.EventNewGeneration, fence.EventDigestChanged,
	fence.EventFinishedAgain, fence.EventTombstoneBound, fence.EventRefused, fence.EventClaimed, fence.EventReplayed,
	fence.EventCommitted, fence.EventFailed, fence.EventAmbiguous, fence.EventLapsed, fence.EventLate,
	fence.EventDuplicate, fence.EventVanished, fence.EventCaughtUp, fence.EventDismissed, fence.EventUnanswered,
	fence.EventReported, fence.EventEcho, fence.EventResolved, fence.EventCancelled, fence.EventReleased,
	fence.EventParked, fence.EventEnded, fence.EventStaleEnd, fence.EventInboundDropped, fence.EventPurged,
	fence.EventStamped, fence.EventLeaseLost, fence.EventComeBack, fence.EventNotRecorded, fence.EventValueNotKept,
	fence.EventLedgerError, fence.EventProgressSaved, fence.EventLeaseRejoined, fence.EventProbed,
}

// missing lists which outcomes, refusals, verdicts, events and edges a campaign has never
// seen, without those that Unreachable and seldom excuse.
func (c *Coverage) missing() []string {
	var gaps []string
	have := c.have()
	for _, name := range wanted() {
		if have[name] == 0 && Unreachable[name] == "" && seldom[name] == "" {
			gaps = append(gaps, name)
		}
	}
	return gaps
}

// have counts what was seen, by the names of wanted.
func (c *Coverage) have() map[string]int {
	have := map[string]int{}
	for e, n := range c.Edges {
		have[e.String()] += n
	}
	for r, n := range c.Reasons {
		have["effect "+string(r)] += n
		have["reason "+string(r)] += n
	}
	for a, n := range c.Actions {
		action, reason, _ := strings.Cut(a, " ")
		have["verdict "+action] += n
		have["reason "+reason] += n
	}
	for e, n := range c.Events {
		have["event "+string(e)] += n
	}
	return have
}

// wanted is what a campaign must have seen beside faults.
func wanted() []string {
	var list []string
	for _, e := range edges {
		list = append(list, e.String())
	}
	for _, what := range outcomes {
		list = append(list, "effect "+what)
	}
	for _, what := range reasons {
		list = append(list, "reason "+string(what))
	}
	for _, what := range actions {
		list = append(list, "verdict "+string(what))
	}
	for _, what := range events {
		list = append(list, "event "+string(what))
	}
	return list
}

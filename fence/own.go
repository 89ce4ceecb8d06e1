package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// own is rule S5.1: the effect's own state comes before anything else, so that a stale, ended
// or cancelled run still gets its replay.
func (c *claim) own() *ClaimVerdict {
	if c.effect == nil {
		return nil
	}
	call := c.decides(c.effect)
	asked := c.asked()
	switch {
	case asked != nil && asked == call && call.State == Pending:
		c.callEvent(EventClaimed, c.effect, call, "")
		return &ClaimVerdict{Call: call, Effect: c.effect}
	case call.State == Failed && asked != nil:
		// It was granted, its answer was lost, and somebody has decided it since.
		return c.refuse(&Refusal{Reason: ReasonNotStarted, Conflicts: []Conflict{callConflict(c.effect, asked)}})
	case call.State == Failed:
		return nil
	}
	if call.Params != "" && c.q.Params != "" && call.Params != c.q.Params && !c.isOff(sabotage.ParamsIgnored) {
		return c.refuse(&Refusal{
			Reason: ReasonParamsChanged, Stored: call.Params, Asked: c.q.Params,
			Conflicts: []Conflict{callConflict(c.effect, call)},
		})
	}
	switch call.State {
	case Committed:
		return c.replay(call)
	case Pending:
		return c.inFlight(call)
	default:
		return c.unknown(call, asked != nil)
	}
}

// asked returns the call of this very claim, when it was granted before and its answer was
// lost. Its present state counts, not that it was granted (rule S5.7).
func (c *claim) asked() *Call {
	call := c.effect.call(c.q.Claim)
	if call != nil && c.isOff(sabotage.OwnClaimUnknown) {
		return nil
	}
	return call
}

func (c *claim) inFlight(call *Call) *ClaimVerdict {
	if c.isOff(sabotage.PendingRetried) {
		return nil
	}
	if c.isOff(sabotage.LeaseLossRetries) && !c.seated(&Delivery{Run: call.Run, ID: call.Delivery}) {
		return nil
	}
	c.wait(call.Claim)
	return c.refuse(&Refusal{
		Reason: ReasonInFlight, ComeBack: true, At: call.Deadline + 1,
		Conflicts: []Conflict{callConflict(c.effect, call)},
	})
}

func (c *claim) unknown(call *Call, asked bool) *ClaimVerdict {
	if !asked && (c.mayCallAgain(call) || c.isOff(sabotage.AmbiguousRetried)) {
		return nil
	}
	return c.refuse(&Refusal{
		Reason: ReasonAmbiguous, Unknown: true, At: c.effect.openUntil() + c.Quiet,
		Conflicts: []Conflict{callConflict(c.effect, call)}, Again: call.Again.Open(c.now),
	})
}

func callConflict(e *Effect, call *Call) Conflict {
	return Conflict{
		ID: e.ID, Intent: e.Intent, Key: e.Key, Summary: call.Summary, State: call.State, Run: call.Run,
		Delivery: call.Delivery.Number, Call: call.Number, Seq: call.Seq, Deadline: call.Deadline, Inbound: call.Answers,
	}
}

// mayCallAgain is rule S8's exception: the provider honours the key, for the same params and
// the same Answers, inside its window; or the effect is safe to repeat.
func (c *claim) mayCallAgain(call *Call) bool {
	return call.Again.Open(c.now) && call.Params == c.q.Params && sameIDs(call.Answers, c.answers)
}

// sameIDs compares two lists of inbound ids as sets.
func sameIDs(a, b []string) bool {
	notIn := func(list []string) func(string) bool {
		return func(id string) bool { return !slices.Contains(list, id) }
	}
	return !slices.ContainsFunc(a, notIn(b)) && !slices.ContainsFunc(b, notIn(a))
}

// replay gives the stored result, unless the caller names an open message that the stored
// effect does not answer: that one needs a key of its own.
func (c *claim) replay(call *Call) *ClaimVerdict {
	var open, answered []string
	for _, id := range c.q.Answers {
		if slices.Contains(call.Answers, id) {
			answered = append(answered, id)
			continue
		}
		if in := c.lookInbound(id); in != nil && in.Registered && !in.Closed() {
			open = append(open, id)
		}
	}
	if len(open) > 0 && !c.isOff(sabotage.ReplayCoversAll) {
		con := callConflict(c.effect, call)
		con.Inbound = answered
		ref := &Refusal{Reason: ReasonAlreadyAnswered, Conflicts: []Conflict{con}, Answered: []Conflict{con}, Open: open}
		c.twice(ref, append([]string{"replay", c.effect.ID}, open...)...)
		return c.refuse(ref)
	}
	if c.d != nil {
		c.d.seen(c.effect)
	}
	c.event(c.asking(Event{Kind: EventReplayed, Effect: c.effect.ID, Intent: c.q.Intent, Key: c.q.Key, Call: call.Number}))
	return &ClaimVerdict{Replay: call, Effect: c.effect}
}

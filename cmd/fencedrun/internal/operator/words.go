package operator

import (
	"fmt"
	"strings"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// The words for what records say, those of docs/semantics.md.

// stateName is a state of an effect for people: ambiguous is an unknown outcome (rule S2).
func stateName(s fence.State) string {
	if s == fence.Ambiguous {
		return "unknown outcome"
	}
	return string(s)
}

func (s *screen) state(is fence.State) string {
	switch is {
	case fence.Ambiguous:
		return s.red(stateName(is))
	case fence.Pending:
		return s.yellow(stateName(is))
	}
	return stateName(is)
}

// unresolved reports whether an effect is pending or of unknown outcome.
func unresolved(e *fence.Effect) bool {
	return e.State() == fence.Pending || e.State() == fence.Ambiguous
}

// inTime is the latest deadline of an open call that has not passed, else 0.
func inTime(e *fence.Effect, now fence.Millis) (until fence.Millis) {
	for i := range e.Calls {
		if c := &e.Calls[i]; (c.State == fence.Pending || c.State == fence.Ambiguous) && now <= c.Deadline {
			until = max(until, c.Deadline)
		}
	}
	return until
}

// whatToDo says what is to be done about an effect, in one line.
func whatToDo(e *fence.Effect, now fence.Millis) string {
	c := e.Deciding()
	left := span((inTime(e, now) - now).Duration())
	switch {
	case c.State == fence.Committed:
		return "nothing: it happened"
	case c.State == fence.Failed:
		return "nothing: it is known not to have happened, and may be tried again"
	case c.State == fence.Pending:
		return "wait: its call may be under way for another " + left
	case inTime(e, now) > 0:
		return "wait for late evidence, at most another " + left + ", then look it up and resolve it"
	case c.Again.Open(now):
		return "run its job again: the same call may be repeated; or look it up and resolve it"
	case e.Probing.Tries > 0 && nextProbe(e) > now:
		return "wait for the next probe, in " + span((nextProbe(e) - now).Duration()) + "; or look it up and resolve it"
	}
	return "look it up at the provider, then resolve it"
}

// runName is a run as arguments of a command: queue and id.
func runName(k fence.RunKey) string {
	if k == (fence.RunKey{}) {
		return "no job"
	}
	return shell.Word(k.Queue) + " " + shell.Word(k.ID)
}

// runState says in a few words where a run is in its life.
func runState(r *fence.Run, live map[fence.RunKey]ledger.LiveRun, now fence.Millis) string {
	seat, isLive := live[r.Key]
	switch {
	case r.State == fence.RunEnded && r.End == fence.EndSuccess:
		return "ended with success"
	case r.State == fence.RunEnded:
		return "ended: " + string(r.End)
	case r.State == fence.RunCancelled:
		text := "cancelled"
		if r.CancelBy != "" {
			text += " by " + line(r.CancelBy)
		}
		if r.CancelWhy != "" {
			text += ": " + line(r.CancelWhy)
		}
		return text
	case r.Parked != "":
		return "parked: " + string(r.Parked)
	case isLive:
		return "at work, lease " + span((seat.Until - now).Duration())
	}
	return "active, nobody at work"
}

// owner is who made a call.
func owner(c *fence.Call) string {
	text := line(c.By)
	if c.Run == (fence.RunKey{}) {
		return text + ", without a job"
	}
	return fmt.Sprintf("%s, run %s, delivery %d", text, runName(c.Run), c.Delivery.Number)
}

// outcome is how a call ended, for people.
func outcome(c *fence.Call) string {
	var parts []string
	switch {
	case c.NotStarted:
		parts = append(parts, "never started")
	case c.Denied:
		parts = append(parts, "did not happen")
	}
	if c.Echo {
		parts = append(parts, "the provider's own report said so")
	}
	if c.ResolvedBy != "" {
		parts = append(parts, "resolved by "+line(c.ResolvedBy))
	}
	if c.Late {
		parts = append(parts, "late")
	}
	return strings.Join(parts, ", ")
}

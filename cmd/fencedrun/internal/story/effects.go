package story

import (
	"fmt"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
)

// effect tells of every call of an effect: that it was claimed, and what became of it.
func (t *teller) effect(e *fence.Effect) {
	for i := range e.Calls {
		c := &e.Calls[i]
		t.claimed(e, c)
		if c.State != fence.Pending {
			t.outcome(e, c)
		}
	}
}

func (t *teller) ofCall(e *fence.Effect, c *fence.Call, entry Entry) {
	entry.Queue, entry.Job, entry.Delivery = c.Run.Queue, c.Run.ID, c.Delivery.Number
	entry.Effect, entry.Call, entry.fence = e.ID, c.Number, c.Fence
	if entry.Who == "" {
		entry.Who = t.job(c.Run)
	}
	t.add(entry)
}

func (t *teller) claimed(e *fence.Effect, c *fence.Call) {
	var b strings.Builder
	fmt.Fprintf(&b, "claimed %s: %s may start", named(e.Intent, e.Key), callName(c))
	if c.By != "" {
		b.WriteString(" (on " + c.By + ")")
	}
	if len(c.Answers) > 0 && !(len(c.Answers) == 1 && c.Answers[0] == readable(e.Key)) {
		b.WriteString(", to answer " + listed(c.Answers))
	}
	if c.Summary != "" {
		b.WriteString(": " + quoted(c.Summary))
	}
	if c.Vanished {
		b.WriteString(". This record was lost and is written again from the worker's own word")
	}
	t.ofCall(e, c, Entry{At: c.At.Time(), Kind: KindClaimed, Text: b.String(), seq: c.Fence, Alarm: c.Vanished})
}

// outcome tells what is known of a call. Its record has the last outcome only, so an earlier one
// shows by what it left behind.
func (t *teller) outcome(e *fence.Effect, c *fence.Call) {
	t.unknownBefore(e, c)
	switch {
	case c.State == fence.Ambiguous:
		return
	case c.Echo && t.echoed(e, c):
		// The report's own entry says so; what it contradicts is to be told.
		if !duplicate(e, c) {
			return
		}
	}
	entry := Entry{At: c.Settled.Time(), seq: c.Seq}
	name := named(e.Intent, e.Key)
	var text string
	switch {
	case c.State == fence.Committed && duplicate(e, c):
		entry.Kind, entry.Alarm = KindDuplicate, true
		text = t.twice(e, c, name)
	case c.State == fence.Committed && c.ResolvedBy != "" && !c.Echo:
		entry.Kind, entry.Who = KindResolved, c.ResolvedBy
		text = verdict(c) + name + " happened" + note(c.Note) + t.reference(c) + t.later(c)
	case c.State == fence.Committed && c.Echo:
		entry.Kind, entry.Who = KindHappened, orElse(c.ResolvedBy, "outside")
		text = name + " happened: the provider's own report says so" + t.reference(c)
	case c.State == fence.Committed:
		entry.Kind = KindHappened
		text = name + " happened" + late(c) + t.reference(c)
		if c.NoValue {
			text += "; its result could not be kept"
		}
	case c.Denied:
		entry.Kind, entry.Who = KindResolved, orElse(c.ResolvedBy, "somebody")
		text = verdict(c) + name + " did not happen" + note(c.Note) + ". It may be called again" + t.later(c)
	case c.NotStarted:
		entry.Kind = KindFailed
		text = name + " was not called: too little time was left. It may be tried again"
	default:
		entry.Kind = KindFailed
		text = name + " did not happen" + late(c) + because(c.Error) + ". It may be tried again"
	}
	entry.Text = text
	t.ofCall(e, c, entry)
}

// verdict says how somebody came to know: a probe has asked the provider, a person has decided.
func verdict(c *fence.Call) string {
	if strings.HasPrefix(c.ResolvedBy, "probe") {
		return "asked the provider: "
	}
	return "decided: "
}

// unknownBefore tells that a call was unknown for a time: nobody said what became of it by its
// deadline, or the worker said that it did not know.
func (t *teller) unknownBefore(e *fence.Effect, c *fence.Call) {
	name := named(e.Intent, e.Key)
	entry := Entry{Kind: KindUnknown, Alarm: true, seq: c.Seq}
	switch {
	case c.State == fence.Ambiguous && c.Settled > 0:
		entry.At = c.Settled.Time()
		entry.Text = "does not know whether " + name + " happened" + because(c.Error)
	case c.State == fence.Ambiguous:
		entry.At, entry.Who = c.Deadline.Time(), "deadline"
		entry.Text = "nobody had said by now whether " + name + " happened: it is unknown"
	case c.Error != "" && (c.ResolvedBy != "" || c.Late) && c.State == fence.Committed, c.Denied && c.Error != "":
		// The verdict overwrote when the worker said so; it did before the deadline, or at it.
		entry.At, entry.Inferred = min(c.Deadline, c.Settled).Time(), true
		entry.Text = "did not know whether " + name + " happened" + because(c.Error) + ", by its own words; when it said so is not kept"
	case c.Settled > c.Deadline:
		entry.At, entry.Who, entry.Inferred = c.Deadline.Time(), "deadline", true
		entry.Text = "nobody had said by now whether " + name + " happened: it became unknown"
	default:
		return
	}
	t.ofCall(e, c, entry)
}

// echoed reports whether the report that settled c is on record and told at the same time.
func (t *teller) echoed(e *fence.Effect, c *fence.Call) bool {
	for _, r := range t.h.Reports {
		if r.Echo == e.ID && r.At == c.Settled {
			return true
		}
	}
	return false
}

// duplicate reports whether c's success may be a second one (rule S7.3).
func duplicate(e *fence.Effect, c *fence.Call) bool {
	if c.State != fence.Committed {
		return false
	}
	if c.Denied {
		return true
	}
	for i := range e.Calls {
		if other := &e.Calls[i]; other.State == fence.Committed && other.Seq < c.Seq {
			return true
		}
	}
	return false
}

func (t *teller) twice(e *fence.Effect, c *fence.Call, name string) string {
	says := fmt.Sprintf("says late: %s happened after all, by %s%s", name, callName(c), t.reference(c))
	if c.Echo {
		says = fmt.Sprintf("%s happened after all, by %s%s: the provider's own report says so", name, callName(c), t.reference(c))
	}
	if c.Denied {
		who := orElse(c.ResolvedBy, "somebody")
		if c.Echo {
			who = "somebody"
		}
		says += ". Before, " + who + " had decided that it did not" + note(c.Note) + " (when, is not kept)"
	}
	var others []string
	for i := range e.Calls {
		if other := &e.Calls[i]; other.State == fence.Committed && other.Claim != c.Claim {
			others = append(others, callName(other)+t.reference(other))
		}
	}
	if len(others) > 0 {
		says += ". IT HAPPENED TWICE: " + listed(others) + " did too"
	}
	return says
}

func (*teller) reference(c *fence.Call) string {
	if c.Reference == "" {
		return ""
	}
	return " (the provider calls it " + c.Reference + ")"
}

func (t *teller) later(c *fence.Call) string {
	if !c.Late {
		return ""
	}
	return ". Later the worker itself said the same"
}

func late(c *fence.Call) string {
	if !c.Late {
		return ""
	}
	return ", as the worker said late"
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + quoted(text)
}

func note(text string) string {
	if text == "" {
		return ""
	}
	return ", with the note " + quoted(text)
}

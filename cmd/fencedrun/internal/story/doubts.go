package story

import (
	"fmt"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// doubts tells what is doubtful about an effect, and what to do.
func (t *teller) doubts(e *fence.Effect) []Doubt {
	c := e.Deciding()
	var problem Problem
	switch c.State {
	case fence.Pending:
		problem = ProblemUnderWay
	case fence.Ambiguous:
		problem = ProblemUnknown
	default:
		if c = second(e); c == nil {
			return nil
		}
		problem = ProblemDuplicate
	}
	d := Doubt{
		Effect: e.ID, Intent: e.Intent, Key: e.Key, State: e.State(), Problem: problem,
		Since: c.At.Time().In(t.o.Location), Deadline: c.Deadline.Time().In(t.o.Location),
		Summary: c.Summary, Queue: c.Run.Queue, Job: c.Run.ID, Worker: c.By, Error: c.Error,
		IdempotencyKey: key.IdempotencyKey(e.ID), Reference: c.Reference, Params: c.Params, Answers: c.Answers,
	}
	switch problem {
	case ProblemUnderWay:
		d.Text, d.Do = t.underWay(e, c)
	case ProblemUnknown:
		d.Text, d.Do = t.unknown(e, c)
	case ProblemDuplicate:
		d.Text, d.Do = t.happenedTwice(e, c)
	}
	return []Doubt{d}
}

// second returns the call that may have done the effect a second time, or nil.
func second(e *fence.Effect) *fence.Call {
	for i := range e.Calls {
		if c := &e.Calls[i]; duplicate(e, c) {
			return c
		}
	}
	return nil
}

func (t *teller) underWay(e *fence.Effect, c *fence.Call) (string, []Step) {
	text := fmt.Sprintf("%s has claimed it %s and may be calling right now. It must say by %s what became of it.",
		upper(t.job(c.Run)), t.ago(c.At), t.clock(c.Deadline))
	return text, []Step{
		{Text: "Wait until " + t.clock(c.Deadline) + ". Nobody else calls it before"},
		{"Then look again", t.command("status", []string{short(e.ID)})},
	}
}

func (t *teller) unknown(e *fence.Effect, c *fence.Call) (string, []Step) {
	text := "Nobody knows whether it happened. It is not called again before somebody does."
	do := []Step{}
	if early := lastDeadline(e); !t.past(early) {
		do = append(do, Step{Text: "Wait until " + t.clock(early) + ": the call may still be on its way, and a verdict is refused until then"})
	}
	if probing := t.probing(e); probing != "" {
		text += " " + probing
	}
	if c.Again.Open(fence.Millis(t.now.UnixMilli())) {
		until := ""
		if !c.Again.Repeatable {
			until = " until " + t.clock(c.Again.Until)
		}
		text += " It was declared safe to call again" + until + ": the next delivery of its job does, and nothing else need be done."
	}
	look := "Find out at the provider whether it happened: by the idempotency key if it was handed over, else by what it is and when"
	if c.Reference != "" {
		look = "Find out at the provider whether it happened: by its reference there, or by the idempotency key"
	}
	happened := []string{"--note " + placeholder}
	if c.Reference == "" {
		happened = append(happened, "--ref "+placeholder)
	}
	do = append(do,
		Step{Text: look},
		Step{"Everything that is on record about it", t.command("status", []string{short(e.ID)})},
		Step{"If it happened (--ref, the provider's own id of it, may be left out; add --value 'JSON' if the job uses its value)", t.command("resolve", []string{short(e.ID), "happened"}, happened...)},
		Step{"If it certainly did not (this allows one more call)", t.command("resolve", []string{short(e.ID), "did-not-happen"}, "--note "+placeholder)},
	)
	return text, append(do, t.then(c))
}

// then says what becomes of the job once the doubt is settled.
func (t *teller) then(c *fence.Call) Step {
	r := t.runs[c.Run]
	name := t.job(c.Run)
	switch {
	case c.Run == fence.RunKey{}:
		return Step{Text: "Then call it again, if it did not happen, as it was called before: " + name + " made this call"}
	case r == nil:
		return Step{Text: "Its job (" + name + " of queue " + c.Run.Queue + ") has no record any more: nothing goes on by itself"}
	case r.Parked != "":
		return Step{Text: "Then run " + name + " of queue " + c.Run.Queue + " again by hand: it stands still until somebody does"}
	case r.State == fence.RunActive:
		return Step{Text: "Then nothing: " + name + " of queue " + c.Run.Queue + " comes back by itself"}
	}
	return Step{Text: "Its job (" + name + " of queue " + c.Run.Queue + ") is over. If it did not happen and is still wanted, run the job again by hand"}
}

func (t *teller) happenedTwice(e *fence.Effect, c *fence.Call) (string, []Step) {
	text := "Two calls of it are known to have happened. A provider that honours the idempotency key may have done it once all the same; else it is done twice."
	if c.Denied && committedCalls(e) < 2 {
		text = "It happened although somebody had decided that it did not. If it was done by hand since, it is done twice."
	}
	return text + " Nothing here can undo that.", []Step{
		{Text: "Count at the provider how often it is there"},
		{"Everything that is on record about it", t.command("status", []string{short(e.ID)}, "--conversation "+shell.Word(t.conversation))},
		{Text: "If it is there twice, take one back there, and tell the customer if need be"},
	}
}

func committedCalls(e *fence.Effect) int {
	n := 0
	for i := range e.Calls {
		if e.Calls[i].State == fence.Committed {
			n++
		}
	}
	return n
}

// lastDeadline returns the latest deadline of an open call.
func lastDeadline(e *fence.Effect) (until fence.Millis) {
	for i := range e.Calls {
		if c := &e.Calls[i]; c.State == fence.Pending || c.State == fence.Ambiguous {
			until = max(until, c.Deadline)
		}
	}
	return until
}

// probing says how often the provider was asked, and when it is next.
func (t *teller) probing(e *fence.Effect) string {
	p := e.Probing
	if p.Tries == 0 {
		return ""
	}
	text := "The provider was asked once"
	if p.Tries > 1 {
		text = "The provider was asked " + plural(p.Tries, "time")
	}
	switch {
	case p.Nonce != "" && !t.past(p.Until):
		return text + "; " + orElse(p.By, "a worker") + " is asking right now."
	case p.Last > 0:
		text += ", last at " + t.clock(p.Last)
	}
	if p.Note != "" {
		text += ", and gave no clear answer: " + quoted(p.Note)
	}
	if p.Next > 0 {
		next := "from " + t.clock(p.Next) + " on"
		if t.past(p.Next) {
			next = "now"
		}
		text += ". It may be asked again " + next + ", by a sweep or by the job"
	}
	return text + "."
}

func upper(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

package story

import (
	"slices"
	"strings"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
)

// message tells how the ledger heard of a customer's message, and what became of it as far as no
// effect or report tells that.
func (t *teller) message(in *fence.Inbound) {
	e := Entry{At: in.FirstAt.Time(), Kind: KindMessage, Who: "customer", Message: in.ID, seq: in.Seq}
	runs := t.bringing[in.ID]
	switch {
	case !in.Registered:
		e.Who = "ledger"
		e.Text = "heard of message " + in.ID + ", which no job has brought"
	case len(runs) == 0:
		e.Text = "message " + in.ID + " came. The job that brought it left no record: it was turned away" + t.atWork(in.FirstAt)
		e.Inferred = true
	case !begunBy(runs, in.FirstAt):
		e.Text = "message " + in.ID + " came. Its job (" + t.jobs(runs) + ") was turned away at first" + t.atWork(in.FirstAt)
		e.Inferred = true
	default:
		e.Text = "message " + in.ID + " came, brought by " + t.jobs(runs)
	}
	t.add(e)
	t.namedAgain(in, runs)
	if in.Dismissed != "" && len(in.Answered) == 0 {
		t.add(Entry{
			At: in.ClosedAt.Time(), Kind: KindDismissed, Who: "somebody", Message: in.ID,
			Text: "closed message " + in.ID + " without an answer: " + quoted(in.Dismissed),
		})
	}
}

// begunBy reports whether one of the runs may have begun when the ledger heard of their message. A
// run of a later generation does not know when the first one began.
func begunBy(runs []*fence.Run, at fence.Millis) bool {
	return slices.ContainsFunc(runs, func(r *fence.Run) bool {
		return r.BegunAt <= at && r.BegunAt > 0 || r.Generation > 1 || r.FirstSeq == 0
	})
}

// namedAgain tells of the last time that a job brought the message, if its run does not: whoever
// is let in touches its run, so a later naming was turned away.
func (t *teller) namedAgain(in *fence.Inbound, runs []*fence.Run) {
	if in.NamedAt <= in.FirstAt {
		return
	}
	if slices.ContainsFunc(runs, func(r *fence.Run) bool { return r.TouchedAt >= in.NamedAt || r.BegunAt == in.NamedAt }) {
		return
	}
	who := "a job"
	if len(runs) == 1 {
		who = t.job(runs[0].Key)
	}
	text := "came with message " + in.ID + " and was turned away"
	switch {
	case slices.ContainsFunc(runs, (*fence.Run).Finished):
		text = "was delivered again although it had ended: it is acknowledged, and its code is not run"
	case in.ClosedAt > 0 && in.ClosedAt < in.NamedAt:
		text += ": the message is taken care of"
	default:
		text += t.atWork(in.NamedAt, runs...)
	}
	e := Entry{
		At: in.NamedAt.Time(), Kind: KindTurnedAway, Who: who, Message: in.ID, Inferred: true,
		Text: text + ". Tries before this one are not kept",
	}
	if len(runs) == 1 {
		e.Queue, e.Job = runs[0].Key.Queue, runs[0].Key.ID
	}
	t.add(e)
}

// atWork says which other jobs had begun and not ended at a time, which is why one is turned away.
func (t *teller) atWork(at fence.Millis, but ...*fence.Run) string {
	var runs []*fence.Run
	for _, r := range t.h.Runs {
		if r.BegunAt > 0 && r.BegunAt < at && !slices.Contains(but, r) && (r.State == fence.RunActive || r.TouchedAt > at) {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return ""
	}
	const most = 3
	return ", while " + t.jobs(runs[max(0, len(runs)-most):]) + " had not ended"
}

// report tells of an outside write, or of the echo of one of our own.
func (t *teller) report(r *fence.Report) {
	e := Entry{At: r.At.Time(), Kind: KindReport, Who: orElse(r.By, "outside"), seq: r.Seq, Effect: r.Echo}
	var b strings.Builder
	if r.Echo != "" {
		e.Kind = KindEcho
		name := "an effect of ours that is not on record any more"
		if own := t.effects[r.Echo]; own != nil {
			name = named(own.Intent, own.Key)
		}
		b.WriteString("confirms that " + name + " happened: report " + r.ID + " carries its mark")
	} else {
		b.WriteString("wrote to the conversation, not through a job (report " + r.ID)
		if r.Intent != "" {
			b.WriteString(", a " + r.Intent)
		}
		b.WriteString(")")
	}
	if len(r.Answers) > 0 {
		b.WriteString(", which answers " + listed(r.Answers))
	}
	if r.Summary != "" {
		b.WriteString(": " + quoted(r.Summary))
	}
	e.Text = b.String()
	t.add(e)
}

// open tells why a message is open and what becomes of it.
func (t *teller) open(in *fence.Inbound) Message {
	m := Message{ID: in.ID, Since: in.FirstAt.Time().In(t.o.Location), Named: in.NamedAt.Time().In(t.o.Location), Do: []Step{}}
	if e := t.holding(in.ID); e != nil {
		m.Text = "Held by " + named(e.Intent, e.Key) + ", which is in doubt: settle that first. If it happened, the message is answered."
		if e.State() == fence.Pending {
			m.Text = "Nothing to do yet: " + named(e.Intent, e.Key) + ", which answers it, may be under way."
		}
		return m
	}
	runs := t.bringing[in.ID]
	for _, r := range runs {
		switch {
		case r.State == fence.RunActive && r.Parked == "":
			m.Text = "Nothing to do yet: " + t.job(r.Key) + " brings it and has not ended."
			return m
		case r.Parked != "":
			m.Text = "Its job (" + t.job(r.Key) + ") stands still, see above."
			if r.Parked == fence.ReasonRefusedTwice {
				m.Do = t.byHand(in.ID) // the job needs new code first
			}
			return m
		}
	}
	const coming = 10 * 60 * 1000
	if len(runs) == 0 && !t.past(in.NamedAt+coming) {
		m.Text = "A job brought it " + t.ago(in.NamedAt) + " and was turned away; it is expected to come back."
		return m
	}
	switch {
	case len(runs) == 0:
		m.Text = "A job last brought it " + t.ago(in.NamedAt) + " and was turned away. No job on record will answer it. Look for it in the queue."
	case runs[len(runs)-1].State == fence.RunCancelled:
		m.Text = "Its job (" + t.jobs(runs) + ") was cancelled. No job on record will answer it."
	case in.Unanswered:
		m.Text = "Its job (" + t.jobs(runs) + ") ended without answering it. No job on record will."
	default:
		m.Text = "Its job (" + t.jobs(runs) + ") is over. No job on record will answer it."
	}
	if len(runs) > 0 {
		last := runs[len(runs)-1]
		if !last.Finished() && last.State == fence.RunEnded {
			m.Do = append(m.Do, Step{Text: "To have it answered, " + t.again(last)})
		}
	}
	m.Do = append(m.Do, t.byHand(in.ID)...)
	return m
}

// byHand are the ways to close a message without a job.
func (t *teller) byHand(id string) []Step {
	return []Step{
		{"If it needs no answer", t.command("dismiss", []string{t.conversation, id}, "--why "+placeholder)},
		{"If a person has answered it (ID is the name of that answer in the help desk)", t.command("report", []string{t.conversation, "ID"}, "--intent reply", "--answers "+shell.Item(id))},
	}
}

// holding returns the unresolved effect that answers message id, or nil.
func (t *teller) holding(id string) *fence.Effect {
	for _, e := range t.h.Effects {
		c := e.Deciding()
		if (c.State == fence.Pending || c.State == fence.Ambiguous) && slices.Contains(c.Answers, id) {
			return e
		}
	}
	return nil
}

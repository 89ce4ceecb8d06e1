package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// unanswered is rule S5.4: no inbound message is answered twice, whatever the keys say.
func (c *claim) unanswered() *ClaimVerdict {
	var hits []Conflict
	var open []string
	var pending []Conflict
	unknown, again := false, false
	for _, id := range c.answers {
		if con, ok := c.answeredBy(id); ok {
			con = withInbound(con, id)
			hits = append(hits, con)
			switch con.State {
			case Pending:
				pending = append(pending, con)
			case Ambiguous:
				unknown = true
				u := c.head.Unresolved[c.unresolved(con.ID)]
				again = again || u.Again.Open(c.now)
			}
			continue
		}
		open = append(open, id)
	}
	if len(hits) == 0 || c.isOff(sabotage.AnswersIgnored) {
		return nil
	}
	ref := &Refusal{Reason: ReasonAlreadyAnswered, Answered: hits, Open: open, Conflicts: hits, Unknown: unknown, Again: again}
	switch {
	case len(pending) > 0:
		ref.ComeBack, ref.At = true, earliestDeadline(pending)+1
		for _, p := range pending {
			if i := c.unresolved(p.ID); i >= 0 {
				c.wait(c.head.Unresolved[i].Claim)
			}
		}
		return c.refuse(ref)
	case unknown:
		ref.At = c.quietEnd(hits)
	}
	parts := make([]string, len(hits))
	for i, h := range hits {
		parts[i] = h.ID + "=" + h.Inbound[0]
	}
	// While late evidence about an unknown may arrive, nothing is parked (rule S1).
	if !unknown || ref.At < c.now {
		c.twice(ref, parts...)
	}
	return c.refuse(ref)
}

// answeredBy returns the effect or report of the same intent that answers message id: an
// unresolved one from the head, else a committed one from the message's own row.
func (c *claim) answeredBy(id string) (Conflict, bool) {
	var found *Unresolved
	for i := range c.head.Unresolved {
		u := &c.head.Unresolved[i]
		if u.Effect != c.q.Effect && u.Intent == c.q.Intent && slices.Contains(u.Answers, id) && (found == nil || u.State == Pending) {
			found = u
		}
	}
	if found != nil {
		return found.conflict(), true
	}
	in := c.lookInbound(id)
	if in == nil {
		return Conflict{}, false
	}
	for _, a := range in.Answered {
		if a.ID == c.q.Effect && !a.Report || a.Intent != c.q.Intent && a.Intent != "" {
			continue
		}
		return Conflict{ID: a.ID, Report: a.Report, Intent: a.Intent, Key: a.Key, State: Committed, Run: a.Run}, true
	}
	return Conflict{}, false
}

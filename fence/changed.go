package fence

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// unchanged is rule S5.3: has the conversation changed since this delivery last caught up, or
// is something unresolved in the way? Unresolved is judged first.
func (c *claim) unchanged() *ClaimVerdict {
	if ref := c.nothingUnresolved(); ref != nil {
		return c.refuse(ref)
	}
	if c.q.Policy == NoChange {
		return nil
	}
	pending := c.pendingOfOthers()
	landed, more := c.landedSince()
	if !c.needs.Empty() || len(landed) == 0 && len(pending) == 0 || c.isOff(sabotage.NoConversationCheck) {
		return nil
	}
	ref := &Refusal{Reason: ReasonConversationChanged, Conflicts: slices.Concat(landed, pending), More: more}
	if len(landed) == 0 {
		// Re-reading cannot help before these have ended.
		ref.ComeBack, ref.At = true, earliestDeadline(pending)+1
		for i := range c.head.Unresolved {
			if u := &c.head.Unresolved[i]; c.isPendingConflict(u) {
				c.wait(u.Claim)
			}
		}
		return c.refuse(ref)
	}
	// What has landed only grows: the newest stands for all of it.
	c.twice(ref, strconv.FormatInt(landed[len(landed)-1].Seq, 36))
	if c.d != nil && c.isOff(sabotage.RefusalCatchesUp) {
		c.d.Seen, c.d.CaughtUp = c.head.Seq, c.head.Seq
	}
	return c.refuse(ref)
}

// nothingUnresolved: a pending effect of another delivery, or an ambiguous one of any, of the
// same intent, conflicts however recently this delivery caught up. Catching up proves nothing
// about a send that may still be on its way. No policy waives it.
func (c *claim) nothingUnresolved() *Refusal {
	if c.q.AfterUnresolved {
		return nil
	}
	var pending, ambiguous []Conflict
	again := false
	for i := range c.head.Unresolved {
		u := &c.head.Unresolved[i]
		if u.Effect == c.q.Effect || u.Intent != c.q.Intent || c.q.Distinct {
			continue
		}
		if c.bothName(u.Named) {
			continue // rule S5.4 decides
		}
		if c.d != nil && u.Seq <= c.d.Seen && c.isOff(sabotage.UnresolvedBySeqOnly) {
			continue
		}
		switch {
		case u.State == Ambiguous:
			ambiguous = append(ambiguous, u.conflict())
			again = again || u.Again.Open(c.now)
		case !c.mine(u.Delivery, u.Run):
			pending = append(pending, u.conflict())
			c.wait(u.Claim)
		}
	}
	switch {
	case len(ambiguous)+len(pending) > 0 && c.isOff(sabotage.UnresolvedIgnored):
	case len(ambiguous) > 0:
		return &Refusal{
			Reason: ReasonUnresolved, Unknown: true, At: c.quietEnd(ambiguous),
			Conflicts: append(ambiguous, pending...), Again: again,
		}
	case len(pending) > 0:
		return &Refusal{Reason: ReasonUnresolved, ComeBack: true, At: earliestDeadline(pending) + 1, Conflicts: pending}
	}
	return nil
}

// bothName reports whether this claim and another effect both name their Answers, so that
// rule S5.4 can decide by them.
func (c *claim) bothName(other bool) bool { return other && len(c.q.Answers) > 0 }

// mine reports whether a write was made by this very delivery.
func (c *claim) mine(d DeliveryID, run RunKey) bool {
	return c.d != nil && run == c.d.Run && (d == c.d.ID || c.isOff(sabotage.ViewSharedByDeliveries))
}

// concerns reports whether the caller's policy looks at writes of this intent. A report whose
// intent nobody said might be of any.
func (c *claim) concerns(intent string) bool {
	return c.q.Policy != SameIntent || intent == c.q.Intent || intent == ""
}

func (c *claim) isPendingConflict(u *Unresolved) bool {
	return u.State == Pending && u.Effect != c.q.Effect && c.concerns(u.Intent) && !c.mine(u.Delivery, u.Run) &&
		!(u.Intent == c.q.Intent && c.bothName(u.Named))
}

func (c *claim) pendingOfOthers() []Conflict {
	var found []Conflict
	for i := range c.head.Unresolved {
		if u := &c.head.Unresolved[i]; c.isPendingConflict(u) {
			found = append(found, u.conflict())
		}
	}
	return found
}

// landedSince returns what landed after this delivery last caught up and is news to it, oldest
// first: committed and ambiguous effects, and reports, of everybody else; and those of earlier
// deliveries of its own run as far as only an explicit CatchUp covers them.
//
// The head decides as long as it remembers a conflict; more says that there may be older ones.
// Only when it remembers none, and not far enough, are rows looked up by their seq.
func (c *claim) landedSince() (found []Conflict, more bool) {
	if c.d == nil {
		return nil, false // a write without a job has seen nothing and need not have
	}
	for i := range c.head.Unresolved {
		u := &c.head.Unresolved[i]
		if u.State == Ambiguous && u.Effect != c.q.Effect && c.news(u.Seq, u.Run, u.Delivery, u.Intent, u.Named) {
			found = append(found, u.conflict())
		}
	}
	judge := func(l *Landed) {
		if (l.Report || l.ID != c.q.Effect) && c.news(l.Seq, l.Run, l.Delivery, l.Intent, l.Named) {
			found = append(found, l.conflict())
		}
	}
	for _, l := range c.head.Landed {
		judge(l)
	}
	for _, l := range c.d.Earlier {
		// An effect that landed again since then is in the head.
		if !isIn(c.head.Landed, l) {
			judge(l)
		}
	}
	from := c.d.unread()
	var older []*Landed
	switch {
	case from >= c.head.Floor:
	case len(found) > 0:
		more = true
	default:
		older = slices.DeleteFunc(c.landedAfter(from), func(l *Landed) bool { return l.Seq > c.head.Floor })
		if !c.needs.Empty() {
			return nil, false
		}
		for _, l := range older {
			judge(l)
		}
	}
	if len(found) == 0 {
		c.lookBack(c.d, older)
		return nil, false
	}
	slices.SortStableFunc(found, func(a, b Conflict) int { return cmp.Compare(a.Seq, b.Seq) })
	return found, more
}

// news reports whether a landing is something this delivery has not seen. An earlier delivery
// of the same run needs an explicit CatchUp when the new effect has the same intent and not
// both name Answers: a reworded repeat must not pass just because the job was redelivered.
func (c *claim) news(seq int64, run RunKey, d DeliveryID, intent string, named bool) bool {
	if c.mine(d, run) || !c.concerns(intent) || c.d.replayed(seq) {
		return false
	}
	if c.d.isEarlier(seq, run, d) && intent == c.q.Intent && !c.bothName(named) && !c.isOff(sabotage.OwnEarlierCovered) {
		return true
	}
	return seq > c.d.Seen
}

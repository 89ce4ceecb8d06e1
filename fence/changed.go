package fence

import (
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
	if c.isOff(sabotage.NoConversationCheck) || c.q.Policy == NoChange {
		return nil
	}
	pending := c.pendingOfOthers()
	landed := c.landedSince()
	if len(landed) == 0 && len(pending) == 0 {
		return nil
	}
	ref := &Refusal{Reason: ReasonConversationChanged, Conflicts: append(landed, pending...)}
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
	parts := make([]string, len(landed))
	for i, l := range landed {
		parts[i] = strconv.FormatInt(l.Seq, 36)
	}
	c.twice(ref, parts)
	if c.isOff(sabotage.RefusalCatchesUp) && c.d != nil {
		c.d.Seen, c.d.CaughtUp = c.head.Seq, c.head.Seq
	}
	return c.refuse(ref)
}

// nothingUnresolved: a pending effect of another delivery, or an ambiguous one of any, of the
// same intent, conflicts however recently this delivery caught up. Catching up proves nothing
// about a send that may still be on its way. No policy waives it.
func (c *claim) nothingUnresolved() *Refusal {
	if c.q.AfterUnresolved || c.isOff(sabotage.UnresolvedIgnored) {
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
		if c.isOff(sabotage.UnresolvedBySeqOnly) && c.d != nil && u.Seq <= c.d.Seen {
			continue
		}
		switch {
		case u.State == Ambiguous:
			ambiguous = append(ambiguous, u.conflict())
			again = again || u.Again.Repeatable || c.now <= u.Again.Until
		case !c.mine(u.Delivery, u.Run):
			pending = append(pending, u.conflict())
			c.wait(u.Claim)
		}
	}
	switch {
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
	if c.d == nil {
		return false
	}
	if c.isOff(sabotage.ViewSharedByDeliveries) {
		return run == c.d.Run
	}
	return run == c.d.Run && d == c.d.ID
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

// landedSince returns what landed after this delivery last caught up and is news to it:
// committed and ambiguous effects, and reports, of everybody else; and those of earlier
// deliveries of its own run as far as only an explicit CatchUp covers them.
func (c *claim) landedSince() []Conflict {
	if c.d == nil {
		return nil // a write without a job has seen nothing and need not have
	}
	var found []Conflict
	for i := range c.head.Unresolved {
		u := &c.head.Unresolved[i]
		if u.State != Ambiguous || u.Effect == c.q.Effect {
			continue
		}
		if c.news(u.Seq, u.Run, u.Delivery, u.Intent, u.Named) {
			found = append(found, u.conflict())
		}
	}
	for _, l := range c.tail() {
		if l.ID == c.q.Effect && !l.Report {
			continue
		}
		if c.news(l.Seq, l.Run, l.Delivery, l.Intent, l.Named) {
			found = append(found, l.conflict())
		}
	}
	return found
}

// news reports whether a landing is something this delivery has not seen.
func (c *claim) news(seq int64, run RunKey, d DeliveryID, intent string, named bool) bool {
	if c.mine(d, run) || !c.concerns(intent) || slices.Contains(c.d.Replayed, seq) {
		return false
	}
	return seq > c.limit(run, intent, named)
}

// limit is the seq up to which landings of a run and intent are covered. An earlier delivery
// of the same run needs an explicit CatchUp when the new effect has the same intent and not
// both name Answers: a reworded repeat must not pass just because the job was redelivered.
func (c *claim) limit(run RunKey, intent string, named bool) int64 {
	if run == c.d.Run && run != (RunKey{}) && intent == c.q.Intent && !c.bothName(named) && !c.isOff(sabotage.OwnEarlierCovered) {
		return c.d.CaughtUp
	}
	return c.d.Seen
}

// tail returns the landings that may be news: those the head remembers, or rows looked up by
// their seq when this delivery has not caught up for longer than that.
func (c *claim) tail() []Landed {
	return c.landedAfter(c.d.seenOfOwn())
}

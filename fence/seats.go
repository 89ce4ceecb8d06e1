package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Who is alive: rules S4.6, S4.7 and S9.3.

// leaseLeft returns how long the seat's lease still runs; 0 or less means that it lapsed.
func (s *step) leaseLeft(seat *Seat) Millis {
	until, ok := s.view.Leases[LeaseID{RunRow(seat.Run), seat.Delivery.Nonce}]
	if !ok {
		return 0
	}
	return until - s.now
}

// seat puts a delivery in its run's place and drops the seats whose lease has lapsed: they
// supersede nobody and hold nothing, and whoever still sits there can take a lease again.
func (s *step) seat(seat Seat) {
	kept := make([]Seat, 0, len(s.head.Seats)+1)
	for i := range s.head.Seats {
		old := &s.head.Seats[i]
		if old.Run != seat.Run && s.leaseLeft(old) > 0 {
			kept = append(kept, *old)
			continue
		}
		if old.Delivery.Nonce != seat.Delivery.Nonce {
			s.change.Lease = append(s.change.Lease, LeaseChange{ID: LeaseID{RunRow(old.Run), old.Delivery.Nonce}})
		}
	}
	kept = append(kept, seat)
	s.head.Seats = kept
	s.change.Lease = append(s.change.Lease, LeaseChange{ID: LeaseID{RunRow(seat.Run), seat.Delivery.Nonce}, For: s.Lease})
}

// unseat takes a run's delivery from its place and gives its lease up.
func (s *step) unseat(run RunKey) {
	for i := range s.head.Seats {
		if seat := &s.head.Seats[i]; seat.Run == run {
			s.change.Lease = append(s.change.Lease, LeaseChange{ID: LeaseID{RunRow(run), seat.Delivery.Nonce}})
		}
	}
	s.head.Seats = without(s.head.Seats, func(seat *Seat) bool { return seat.Run == run })
}

// busy is rule S4.7: in mode exclusive one live lease at a time.
func (s *step) busy(me RunKey) *Refusal {
	var left Millis
	var holder *Seat
	for i := range s.head.Seats {
		seat := &s.head.Seats[i]
		if l := s.leaseLeft(seat); seat.Run != me && l > left {
			left, holder = l, seat
		}
	}
	if holder == nil || s.isOff(sabotage.ExclusiveNotExclusive) {
		return nil
	}
	return &Refusal{Reason: ReasonBusy, ComeBack: true, At: s.now + left + 1, Conflicts: []Conflict{{Run: holder.Run, Delivery: holder.Delivery.Number}}}
}

// superseded is rule S4.6, the relation that Begin, every claim and every beat use: is there
// a newer run on the conversation that takes over from this one? entering is a Begin.
func (s *step) superseded(me RunKey, order Order, inbound []string, entering bool) *Refusal {
	var left Millis
	for i := range s.head.Seats {
		seat := &s.head.Seats[i]
		if seat.Run == me || !s.newer(seat.Order, order) {
			continue
		}
		left = max(left, s.leaseLeft(seat))
		if left <= 0 && s.isOff(sabotage.LapsedLeaseSupersedes) {
			left = 1
		}
	}
	if left > 0 {
		if s.isOff(sabotage.NoSupersede) {
			return nil
		}
		return &Refusal{Reason: ReasonSuperseded, ComeBack: true, At: s.now + left + 1}
	}
	wrote := func(w Wrote) bool { return s.newer(w.Order, order) }
	if !slices.ContainsFunc(s.head.Wrote, wrote) || s.isOff(sabotage.NoSupersede) {
		return nil
	}
	// A newer run ended and wrote. It took care of this job unless messages that the job
	// brings are still open, or were taken care of by this run itself: a reply of its own
	// must not cost it the rest of its work.
	open, pending, ambiguous := s.inboundState(inbound)
	own := s.answersItself(me, inbound, entering)
	if !s.needs.Empty() {
		return nil
	}
	switch {
	case own && !s.isOff(sabotage.OwnAnswerSupersedes) && !s.isOff(sabotage.SupersededIsFinal):
		return nil
	case len(open)+len(pending)+len(ambiguous) > 0 && s.isOff(sabotage.SupersededIsFinal):
	case len(open) > 0:
		return nil
	case len(pending) > 0:
		return &Refusal{Reason: ReasonSuperseded, ComeBack: true, At: earliestDeadline(pending) + 1, Conflicts: pending}
	case len(ambiguous) > 0:
		return &Refusal{Reason: ReasonUnresolved, Unknown: true, Conflicts: ambiguous, At: s.quietEnd(ambiguous)}
	}
	// Somebody else has answered meanwhile, and this run's own answer is not known yet. If it
	// turns out to have been made, the rest of the job's work is this run's.
	switch pending, ambiguous = s.heldBy(me, inbound); {
	case s.isOff(sabotage.OwnAnswerSupersedes), s.isOff(sabotage.SupersededIsFinal):
	case len(pending) > 0:
		return &Refusal{Reason: ReasonSuperseded, ComeBack: true, At: earliestDeadline(pending) + 1, Conflicts: pending}
	case len(ambiguous) > 0:
		return &Refusal{Reason: ReasonUnresolved, Unknown: true, Conflicts: ambiguous, At: s.quietEnd(ambiguous)}
	}
	return &Refusal{Reason: ReasonSuperseded}
}

// heldBy lists run me's own unresolved effects that answer one of these messages.
func (s *step) heldBy(me RunKey, ids []string) (pending, ambiguous []Conflict) {
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		at := slices.IndexFunc(ids, func(id string) bool { return slices.Contains(u.Answers, id) })
		switch {
		case at < 0 || !u.ownedBy(me):
		case u.State == Pending:
			pending = append(pending, withInbound(u.conflict(), ids[at]))
		default:
			ambiguous = append(ambiguous, withInbound(u.conflict(), ids[at]))
		}
	}
	return pending, ambiguous
}

// answersItself reports whether run me answered one of these messages, or holds one with an
// unresolved effect of its own. A Begin waits for such an effect, unless it may be called
// again: the handler would only pay for being told that it is unknown.
func (s *step) answersItself(me RunKey, ids []string, entering bool) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		if in, _ := s.mustInbound(id); in != nil && slices.ContainsFunc(in.Answered, func(a Answer) bool { return a.Run == me }) {
			return true
		}
		return slices.ContainsFunc(s.head.Unresolved, func(u Unresolved) bool {
			return u.ownedBy(me) && slices.Contains(u.Answers, id) && (!entering || u.State == Ambiguous && u.Again.Open(s.now))
		})
	})
}

// newer is the relation between orders (rule S3.4).
func (s *step) newer(a, b Order) bool {
	return a.Newer(b) || a.Number > b.Number && s.isOff(sabotage.PeersSupersede)
}

func earliestDeadline(conflicts []Conflict) Millis {
	at := conflicts[0].Deadline
	for _, c := range conflicts[1:] {
		at = min(at, c.Deadline)
	}
	return at
}

func latestDeadline(conflicts []Conflict) Millis {
	var at Millis
	for _, c := range conflicts {
		at = max(at, c.Deadline)
	}
	return at
}

// quietEnd is when late evidence about these effects is no longer waited for (rules S1 Parked,
// S8): one quiet period after the latest claim's deadline.
func (s *step) quietEnd(conflicts []Conflict) Millis {
	return latestDeadline(conflicts) + s.Quiet
}

// inboundState sorts the open ones among the given messages: free, taken by a pending
// effect, taken by an ambiguous one (rules S4.6, S4.9). Closed and unknown ones are in none.
func (s *step) inboundState(ids []string) (free []string, pending, ambiguous []Conflict) {
	for _, id := range ids {
		in, ok := s.mustInbound(id)
		if !ok || in == nil || !in.Registered || in.Closed() {
			continue
		}
		taker := s.taker(id)
		switch {
		case taker == nil:
			free = append(free, id)
		case taker.State == Pending:
			pending = append(pending, withInbound(taker.conflict(), id))
		default:
			ambiguous = append(ambiguous, withInbound(taker.conflict(), id))
		}
	}
	return free, pending, ambiguous
}

func withInbound(c Conflict, id string) Conflict {
	c.Inbound = []string{id}
	return c
}

// taker returns the unresolved effect that answers message id, a pending one before an
// ambiguous one, or nil.
func (s *step) taker(id string) *Unresolved {
	var found *Unresolved
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		if slices.Contains(u.Answers, id) && (found == nil || u.State == Pending) {
			found = u
		}
	}
	return found
}

func (s *step) takenOf(ids []string) []string {
	var taken []string
	for _, id := range ids {
		if s.taker(id) != nil {
			taken = append(taken, id)
		}
	}
	return taken
}

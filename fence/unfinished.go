package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Unfinished asks what would refuse this delivery's End with success (rule S10.1), without
// ending anything.
func (r Rules) Unfinished(v View, q EndRequest) (*Refusal, Change) {
	s := r.start(new(step), v, q.Identity)
	if s.mustAll(q.Delivery.Inbound) {
		return nil, s.done()
	}
	ref := s.unfinished(q.Delivery)
	if !s.needs.Empty() {
		return nil, s.done()
	}
	return ref, Change{}
}

// unfinished is rule S10.1: a run does not end with success while it owns an unresolved
// effect, or while one has taken a message of its job. Resolved as failed later, nobody would
// be left to answer.
func (s *step) unfinished(d *Delivery) *Refusal {
	var pending, ambiguous []Conflict
	again := false
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		if !s.keepsOpen(u, d) {
			continue
		}
		if u.State == Pending {
			pending = append(pending, u.conflict())
		} else {
			ambiguous = append(ambiguous, u.conflict())
			again = again || u.Again.Open(s.now)
		}
	}
	switch {
	case len(ambiguous)+len(pending) > 0 && s.isOff(sabotage.EndUnchecked):
		return nil
	case len(ambiguous) > 0:
		return &Refusal{Reason: ReasonUnresolved, Unknown: true, At: s.quietEnd(ambiguous), Conflicts: ambiguous, Again: again}
	case len(pending) > 0:
		return &Refusal{Reason: ReasonInFlight, ComeBack: true, At: earliestDeadline(pending) + 1, Conflicts: pending}
	}
	var open []string
	for _, id := range d.Taken {
		in, _ := s.mustInbound(id)
		if in != nil && in.Registered && !in.Closed() {
			open = append(open, id) // and free: nothing has taken it any more
		}
	}
	if len(open) > 0 && !s.isOff(sabotage.TakenForgotten) {
		return &Refusal{Reason: ReasonTakenAgain, ComeBack: true, Open: open}
	}
	return nil
}

// keepsOpen reports whether an unresolved effect is d's own run's, or has taken a message of
// its job.
func (s *step) keepsOpen(u *Unresolved, d *Delivery) bool {
	return u.ownedBy(d.Run) || s.takes(u, d.Inbound)
}

// unfinishedClaims are the claims for which a refused End has to wait.
func (s *step) unfinishedClaims(d *Delivery) (claims []string) {
	for i := range s.head.Unresolved {
		if u := &s.head.Unresolved[i]; u.State == Pending && s.keepsOpen(u, d) {
			claims = append(claims, u.Claim)
		}
	}
	return claims
}

func (s *step) takes(u *Unresolved, inbound []string) bool {
	return slices.ContainsFunc(inbound, func(id string) bool {
		if !slices.Contains(u.Answers, id) {
			return false
		}
		in, _ := s.mustInbound(id)
		return in == nil || !in.Closed()
	})
}

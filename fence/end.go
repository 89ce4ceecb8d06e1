package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// EndRequest ends a run (rule S10).
type EndRequest struct {
	Identity
	Delivery *Delivery
	Reason   EndReason
}

// EndVerdict answers an EndRequest. When Refusal is nil the run has ended, now or before.
type EndVerdict struct {
	Refusal *Refusal
	// Again says that the run had ended so before: the answer to the first End was lost, or it
	// was part of somebody's transaction.
	Again bool
	// Unanswered are the inbound ids of the job that are open though it ended.
	Unanswered []string
}

// End decides rule S10.1 and S10.2.
func (r Rules) End(v View, q EndRequest) (EndVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	d := q.Delivery
	run, ok := s.mustRun(d.Run)
	if !ok || s.mustAll(d.Inbound) {
		return EndVerdict{}, s.done()
	}
	if run == nil {
		s.event(Event{Kind: EventRefused, Run: d.Run, Delivery: d.ID.Number, Reason: ReasonNoRun})
		return EndVerdict{Refusal: &Refusal{Reason: ReasonNoRun}}, s.idle()
	}
	if run.Delivery != d.ID && !s.isOff(sabotage.OldEndEndsNew) {
		s.event(Event{Kind: EventStaleEnd, Run: d.Run, Delivery: d.ID.Number})
		return EndVerdict{Refusal: &Refusal{Reason: ReasonSuperseded, Stale: true}}, s.idle()
	}
	switch run.State {
	case RunCancelled:
		return EndVerdict{Refusal: &Refusal{Reason: ReasonCancelled}}, s.idle()
	case RunEnded:
		if run.End == q.Reason {
			return EndVerdict{Again: true}, s.idle()
		}
		return EndVerdict{Refusal: &Refusal{Reason: ReasonEnded}}, s.idle()
	}
	if q.Reason == EndSuccess {
		if ref := s.unfinished(d); ref != nil {
			s.event(Event{Kind: EventRefused, Run: d.Run, Delivery: d.ID.Number, Reason: ref.Reason})
			s.waitFor(run, s.unfinishedClaims(d))
			return EndVerdict{Refusal: ref}, s.idle()
		}
	}
	var verdict EndVerdict
	for _, id := range d.Inbound {
		in, _ := s.mustInbound(id)
		if in == nil || in.Closed() {
			continue
		}
		// Open, be it taken: whatever becomes of what has taken it, this job will not answer.
		verdict.Unanswered = append(verdict.Unanswered, id)
		if !in.Unanswered && !s.isOff(sabotage.UnansweredSilently) {
			s.editInbound(in).Unanswered = true
			s.event(Event{Kind: EventUnanswered, Run: d.Run, Inbound: id})
		}
	}
	s.unseat(d.Run)
	s.finish(s.editRun(run), q.Reason)
	s.change.Durable = true
	return verdict, s.done()
}

// finish marks an editable run as ended.
func (s *step) finish(run *Run, reason EndReason) {
	run.State, run.End, run.TouchedAt = RunEnded, reason, s.now
	run.Waits, run.Parked, run.Refused = nil, "", ""
	s.superseder(run)
	s.event(Event{Kind: EventEnded, Run: run.Key, Delivery: run.Delivery.Number, Text: string(reason)})
}

// ReleaseRequest gives a delivery's lease up without ending its run (rule S10.2): every
// return of a handler does.
type ReleaseRequest struct {
	Identity
	Delivery *Delivery
	Parked   Reason // the queue's job is stopped for this reason; "" it is not
}

// Release remembers, for the run's next delivery, what refused this one.
func (r Rules) Release(v View, q ReleaseRequest) (released bool, c Change) {
	s := r.start(new(step), v, q.Identity)
	d := q.Delivery
	run, ok := s.mustRun(d.Run)
	if !ok {
		return false, s.done()
	}
	if run == nil || run.Delivery != d.ID || run.State != RunActive {
		return false, s.idle()
	}
	s.unseat(d.Run)
	run = s.waitFor(s.editRun(run), append(slices.Clip(d.Waits), s.ownPending(d.Run)...))
	run.TouchedAt = s.now
	run.Refused, run.Parked = d.Refused, q.Parked
	kind := EventReleased
	if q.Parked != "" {
		kind = EventParked
	}
	s.event(Event{Kind: kind, Run: d.Run, Delivery: d.ID.Number, Reason: q.Parked})
	return true, s.done()
}

// ownPending are the pending claims that the run made itself: until they are settled, or lapse,
// another delivery would only be told so.
func (s *step) ownPending(run RunKey) (claims []string) {
	for i := range s.head.Unresolved {
		if u := &s.head.Unresolved[i]; u.State == Pending && u.Run == run {
			claims = append(claims, u.Claim)
		}
	}
	return claims
}

// waitFor adds to the claims that run waits for, as far as they are still pending (rule S4.6).
func (s *step) waitFor(run *Run, claims []string) *Run {
	var waits []string
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		if u.State == Pending && (slices.Contains(run.Waits, u.Claim) || slices.Contains(claims, u.Claim)) {
			waits = append(waits, u.Claim)
		}
	}
	if !slices.Equal(waits, run.Waits) {
		run = s.editRun(run)
		run.Waits = waits
	}
	return run
}

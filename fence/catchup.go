package fence

import "slices"

// CatchUpRequest marks what a delivery reads from now on as current (rule S5, catching up).
type CatchUpRequest struct {
	Identity
	Delivery *Delivery
}

// CatchUpVerdict says what happened since the delivery last caught up, and which inbound
// messages wait.
type CatchUpVerdict struct {
	// Happened are the writes of others, and of earlier deliveries of this run, that landed
	// since this delivery last caught up, oldest first.
	Happened []Conflict
	// Open are the open and free messages, newest first, at most MaxOpen; OpenCount counts
	// all that are open, free or taken.
	Open      []*Inbound
	OpenCount int
	// Taken are the unresolved effects that answer a message, or that may be called again.
	Taken []Taken
	// Refusal is set when this delivery may no longer write; it has not caught up then: only
	// the current delivery moves what it has seen.
	Refusal  *Refusal
	Delivery *Delivery
}

// Taken is an unresolved effect as CatchUp hands it over.
type Taken struct {
	Conflict
	Answers []string
	Params  string // canonical JSON
	Again   bool   // it may be called again with the same key, params and Answers (rule S8)
}

// CatchUp decides what a delivery learns by looking.
func (r Rules) CatchUp(v View, q CatchUpRequest) (CatchUpVerdict, Change) {
	s := r.start(v, q.Identity)
	run, ok := s.mustRun(q.Delivery.Run)
	if v.Head != nil && !v.Opened {
		s.needs.Open = true
	}
	happened := s.landedAfter(q.Delivery.seenOfOwn())
	taken := s.takenEffects()
	if !ok || !s.needs.Empty() {
		return CatchUpVerdict{}, s.done()
	}
	d := *q.Delivery
	verdict := CatchUpVerdict{Taken: taken, OpenCount: v.OpenCount, Delivery: &d}
	if run == nil || stale(s, run, &d) || run.State != RunActive {
		verdict.Refusal = s.rights(run, &d)
		return verdict, s.idle()
	}
	news := func(run RunKey, by DeliveryID, seq int64) bool {
		if run == d.Run {
			return by != d.ID && seq > d.seenOfOwn()
		}
		return seq > d.Seen
	}
	for _, l := range happened {
		if news(l.Run, l.Delivery, l.Seq) {
			verdict.Happened = append(verdict.Happened, l.conflict())
		}
	}
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		if u.State == Ambiguous && news(u.Run, u.Delivery, u.Seq) {
			verdict.Happened = append(verdict.Happened, u.conflict())
		}
	}
	for _, in := range v.Open {
		if s.taker(in.ID) == nil {
			verdict.Open = append(verdict.Open, in)
		}
	}
	d.Taken = s.takenOf(d.Inbound)
	d.Seen, d.CaughtUp = s.head.Seq, s.head.Seq
	d.Replayed, d.Refused, d.Twice = nil, "", false
	s.event(Event{Kind: EventCaughtUp, Run: d.Run, Delivery: d.ID.Number})
	return verdict, s.idle()
}

// seenOfOwn is the seq up to which d knows what earlier deliveries of its run wrote. Begin's
// catching up does not cover those (rule S5.3), so the first look must show them.
func (d *Delivery) seenOfOwn() int64 {
	if d.ID.Number > 1 && d.CaughtUp < d.Seen {
		return min(d.Seen, max(d.CaughtUp, d.FirstSeq-1))
	}
	return d.Seen
}

// takenEffects lists the unresolved effects that hold a message or may be called again. The
// params of the latter are in their rows.
func (s *step) takenEffects() []Taken {
	var found []Taken
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		again := u.State == Ambiguous && (u.Again.Repeatable || s.now <= u.Again.Until)
		if len(u.Answers) == 0 && !again {
			continue
		}
		t := Taken{Conflict: u.conflict(), Answers: slices.Clone(u.Answers), Again: again}
		t.Inbound = t.Answers
		if again {
			if e, ok := s.mustEffect(u.Effect); ok && e != nil {
				t.Params = e.Deciding().Params
			}
		}
		found = append(found, t)
	}
	return found
}

package fence

import (
	"cmp"
	"slices"
)

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
	s := r.start(new(step), v, q.Identity)
	d := *q.Delivery
	run, ok := s.mustRun(d.Run)
	if v.Head != nil && !v.Opened {
		s.needs.Open = true
	}
	happened := s.happened(&d)
	taken := s.takenEffects()
	if !ok || !s.needs.Empty() {
		return CatchUpVerdict{}, s.done()
	}
	verdict := CatchUpVerdict{Taken: taken, OpenCount: v.OpenCount, Delivery: &d}
	if run == nil || stale(s, run, &d) || run.State != RunActive {
		verdict.Refusal = s.rights(run, &d)
		return verdict, s.idle()
	}
	verdict.Happened = happened
	for _, in := range v.Open {
		if s.taker(in.ID) == nil {
			verdict.Open = append(verdict.Open, in)
		}
	}
	d.Taken = s.takenOf(d.Inbound)
	d.Seen, d.CaughtUp = s.head.Seq, s.head.Seq
	d.Earlier, d.Looked, d.Replayed, d.Refused, d.Twice = nil, 0, nil, "", false
	if run.Refused != "" {
		// Should this delivery die without a word, the next one has looked all the same.
		s.editRun(run).Refused = ""
	}
	s.event(Event{Kind: EventCaughtUp, Run: d.Run, Delivery: d.ID.Number})
	return verdict, s.idle()
}

// happened lists what is news to d whatever it goes on to do, oldest first.
func (s *step) happened(d *Delivery) []Conflict {
	var found []Conflict
	news := func(seq int64, run RunKey, id DeliveryID) bool {
		return (run != d.Run || id != d.ID) && (seq > d.Seen || d.isEarlier(seq, run, id)) && !d.replayed(seq)
	}
	landed := s.landedAfter(d.unread())
	for _, l := range d.Earlier {
		if !isIn(landed, l) {
			found = append(found, l.conflict())
		}
	}
	for _, l := range landed {
		if news(l.Seq, l.Run, l.Delivery) {
			found = append(found, l.conflict())
		}
	}
	for i := range s.head.Unresolved {
		if u := &s.head.Unresolved[i]; u.State == Ambiguous && news(u.Seq, u.Run, u.Delivery) {
			found = append(found, u.conflict())
		}
	}
	slices.SortStableFunc(found, func(a, b Conflict) int { return cmp.Compare(a.Seq, b.Seq) })
	return found
}

// takenEffects lists the unresolved effects that hold a message or may be called again. The
// params of the latter are in their rows.
func (s *step) takenEffects() []Taken {
	var found []Taken
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		again := u.State == Ambiguous && u.Again.Open(s.now)
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

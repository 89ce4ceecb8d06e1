package fence

import (
	"cmp"
	"slices"
)

// landedAfter returns every landing with a seq above from, oldest first: from the head when it
// remembers that far, else from rows looked up by their seq.
func (s *step) landedAfter(from int64) []*Landed {
	if from >= s.head.Floor {
		return after(s.head.Landed, from)
	}
	if s.view.Head != nil && (!s.view.Tailed || s.view.Since > from) {
		s.needs.Tail = true
		s.needs.Since = from
		return nil
	}
	found := make([]*Landed, 0, len(s.view.Tail)+len(s.head.Landed))
	for _, rec := range s.view.Tail {
		if l := landing(rec); l != nil && l.Seq > from {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *Landed) int { return cmp.Compare(a.Seq, b.Seq) })
	return found
}

// unread is the seq up to which nothing can be news to d: what it has seen, except that an
// earlier delivery of its own run may have landed something that only an explicit CatchUp
// covers (rule S5.3).
func (d *Delivery) unread() int64 { return min(d.Seen, max(d.Looked, d.CaughtUp, d.FirstSeq)) }

// isEarlier reports whether a landing is one of an earlier delivery of d's own run.
func (d *Delivery) isEarlier(seq int64, run RunKey, id DeliveryID) bool {
	return run == d.Run && id != d.ID && seq > max(d.CaughtUp, d.FirstSeq)
}

// lookBack keeps what earlier deliveries of d's run landed, as of now, and looks no further back
// from then on. older are the landings that the head does not remember any more.
func (s *step) lookBack(d *Delivery, older []*Landed) {
	var earlier []*Landed
	for _, landings := range [...][]*Landed{d.Earlier, older, s.head.Landed} {
		for _, l := range landings {
			if l.Report || !d.isEarlier(l.Seq, l.Run, l.Delivery) || d.replayed(l.Seq) {
				continue
			}
			// Of an effect that landed twice the newer landing counts, in the older one's place.
			if k := slices.IndexFunc(earlier, func(h *Landed) bool { return h.ID == l.ID }); k >= 0 {
				earlier[k] = l
				continue
			}
			earlier = append(earlier, l)
		}
	}
	d.Earlier, d.Looked = earlier, s.head.Seq
}

// replayed reports whether the landing with this seq was replayed to d.
func (d *Delivery) replayed(seq int64) bool {
	_, ok := slices.BinarySearch(d.Replayed, seq)
	return ok
}

// seen notes that effect e was replayed to d: what landed of it is no news any more.
func (d *Delivery) seen(e *Effect) {
	d.Earlier = without(d.Earlier, func(l **Landed) bool { return (*l).ID == e.ID })
	seq := e.landed().Seq
	if at, ok := slices.BinarySearch(d.Replayed, seq); !ok {
		d.Replayed = slices.Insert(slices.Clone(d.Replayed), at, seq)
	}
}

// isIn reports whether the landings hold one of l's effect.
func isIn(landings []*Landed, l *Landed) bool {
	return slices.ContainsFunc(landings, func(h *Landed) bool { return !h.Report && h.ID == l.ID })
}

func after(landed []*Landed, from int64) []*Landed {
	i := slices.IndexFunc(landed, func(l *Landed) bool { return l.Seq > from })
	if i < 0 {
		return nil
	}
	return landed[i:]
}

// landing describes a row that landed: a committed effect, or a report that is not the echo
// of one.
func landing(rec Record) *Landed {
	switch rec := rec.(type) {
	case *Effect:
		c := rec.landed()
		if c == nil {
			return nil
		}
		return &Landed{
			Seq: c.Seq, ID: rec.ID, Intent: rec.Intent, Key: rec.Key, Summary: short(c.Summary),
			Run: c.Run, Delivery: c.Delivery, Named: c.Named,
		}
	case *Report:
		if rec.Echo != "" {
			return nil
		}
		return &Landed{Seq: rec.Seq, ID: rec.ID, Report: true, Intent: rec.Intent, Summary: short(rec.Summary), Named: len(rec.Answers) > 0}
	}
	return nil
}

// land puts a write that happened at the end of the head's tail, in place of an older landing
// of the same, and keeps the tail short.
func (s *step) land(rec Record) {
	l := landing(rec)
	if l == nil {
		return
	}
	s.tailWithout(l.ID, l.Report, 1)
	s.head.Landed = append(s.head.Landed, l)
	if over := len(s.head.Landed) - MaxLanded; over > 0 {
		s.head.Floor = s.head.Landed[over-1].Seq
		s.head.Landed = s.head.Landed[over:]
	}
}

func (s *step) unland(id string, report bool) { s.tailWithout(id, report, 0) }

// tailWithout replaces the tail by one without a landing, with room for more.
func (s *step) tailWithout(id string, report bool, room int) {
	tail := make([]*Landed, 0, len(s.head.Landed)+room)
	for _, l := range s.head.Landed {
		if l.ID != id || l.Report != report {
			tail = append(tail, l)
		}
	}
	s.head.Landed = tail
}

// maxSummary keeps the head small; the whole summary is in the effect's row.
const maxSummary = 80

func short(summary string) string {
	if len(summary) <= maxSummary {
		return summary
	}
	cut := maxSummary
	for cut > 0 && summary[cut]&0xC0 == 0x80 { // not inside a rune
		cut--
	}
	return summary[:cut] + "…"
}

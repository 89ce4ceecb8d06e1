package fence

import "slices"

// landedAfter returns every landing with a seq above from, oldest first: from the head when it
// remembers that far, else from rows looked up by their seq.
func (s *step) landedAfter(from int64) []Landed {
	if from >= s.head.Floor {
		return after(s.head.Landed, from)
	}
	if s.view.Head != nil && (!s.view.Tailed || s.view.Since > from) {
		s.needs.Tail = true
		s.needs.Since = from
		return nil
	}
	found := make([]Landed, 0, len(s.view.Tail)+len(s.head.Landed))
	for _, rec := range s.view.Tail {
		if l, ok := landing(rec); ok && l.Seq > from {
			found = append(found, l)
		}
	}
	// What landed in this very step is in the head only.
	for _, l := range s.head.Landed {
		if l.Seq > from && !slices.ContainsFunc(found, func(f Landed) bool { return f.Seq == l.Seq }) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b Landed) int { return int(a.Seq - b.Seq) })
	return found
}

func after(landed []Landed, from int64) []Landed {
	i := slices.IndexFunc(landed, func(l Landed) bool { return l.Seq > from })
	if i < 0 {
		return nil
	}
	return landed[i:]
}

// landing describes a row that landed: a committed effect, or a report that is not the echo
// of one.
func landing(rec Record) (Landed, bool) {
	switch rec := rec.(type) {
	case *Effect:
		c := rec.Deciding()
		if c.State != Committed {
			return Landed{}, false
		}
		return Landed{
			Seq: c.Seq, ID: rec.ID, Intent: rec.Intent, Key: rec.Key, Summary: short(c.Summary),
			Run: c.Run, Delivery: c.Delivery, Named: c.Named,
		}, true
	case *Report:
		if rec.Echo != "" {
			return Landed{}, false
		}
		return Landed{Seq: rec.Seq, ID: rec.ID, Report: true, Intent: rec.Intent, Summary: short(rec.Summary), Named: len(rec.Answers) > 0}, true
	}
	return Landed{}, false
}

// land puts a write that happened at the end of the head's tail, in place of an older landing
// of the same, and keeps the tail short.
func (s *step) land(rec Record) {
	l, ok := landing(rec)
	if !ok {
		return
	}
	s.unland(l.ID, l.Report)
	s.head.Landed = append(s.head.Landed, l)
	for len(s.head.Landed) > MaxLanded {
		s.head.Floor = s.head.Landed[0].Seq
		s.head.Landed = s.head.Landed[1:]
	}
}

func (s *step) unland(id string, report bool) {
	s.head.Landed = slices.DeleteFunc(s.head.Landed, func(l Landed) bool { return l.ID == id && l.Report == report })
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

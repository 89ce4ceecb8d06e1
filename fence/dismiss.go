package fence

// DismissRequest closes inbound messages without an answer (rule S4.9).
type DismissRequest struct {
	Identity
	IDs []string
	Why string
	// Delivery is set when a run dismisses; it must still have the right to write.
	Delivery *Delivery
}

// DismissVerdict says which messages are closed now that were not before.
type DismissVerdict struct {
	Dismissed []string
	Refusal   *Refusal
}

// Dismiss decides rule S4.9's closing without an answer. A message that is closed already, by
// an answer or before, stays as it is.
func (r Rules) Dismiss(v View, q DismissRequest) (DismissVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	missing := s.mustAll(q.IDs)
	if q.Delivery != nil {
		run, ok := s.mustRun(q.Delivery.Run)
		if ok && !missing {
			if ref := s.rights(run, q.Delivery); ref != nil {
				s.event(Event{Kind: EventRefused, Run: q.Delivery.Run, Reason: ref.Reason})
				return DismissVerdict{Refusal: ref}, s.idle()
			}
		}
		missing = missing || !ok
	}
	if missing || !s.needs.Empty() {
		return DismissVerdict{}, s.done()
	}
	verdict := DismissVerdict{Dismissed: s.dismiss(q.IDs, q.Why)}
	if len(verdict.Dismissed) == 0 {
		return verdict, s.idle()
	}
	s.change.Durable = true
	return verdict, s.done()
}

func (s *step) dismiss(ids []string, why string) (dismissed []string) {
	for _, id := range ids {
		in, _ := s.mustInbound(id)
		if in != nil && in.Closed() {
			continue
		}
		if in == nil {
			in = &Inbound{ID: id, FirstAt: s.now, Retention: s.Retention}
		}
		in = s.editInbound(in)
		in.Dismissed, in.ClosedAt = orElse(why, "no reason given"), s.now
		s.seq()
		dismissed = append(dismissed, id)
		s.event(Event{Kind: EventDismissed, Inbound: id, Text: why})
	}
	return dismissed
}

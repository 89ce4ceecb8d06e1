package fence

import "slices"

// What follows from a call's new outcome, however it became known.

// settled does what follows from a call's new state: for the head, for the messages that the
// effect answers, for its run, for its provider reference, for the observer.
func (s *step) settled(e *Effect, call *Call) {
	s.resolveHead(e)
	s.refer(call.Reference, e)
	switch call.State {
	case Committed:
		s.land(e)
		for _, id := range call.Answers {
			s.answer(id, Answer{ID: e.ID, Intent: e.Intent, Key: e.Key, Run: call.Run})
		}
		for i := range e.Calls {
			s.wrote(&e.Calls[i])
		}
		s.callEvent(EventCommitted, e, call, "")
	case Failed:
		s.callEvent(EventFailed, e, call, "")
	case Ambiguous:
		s.callEvent(EventAmbiguous, e, call, "")
	}
}

func (s *step) callEvent(kind EventKind, e *Effect, call *Call, text string) {
	s.event(Event{
		Kind: kind, Run: call.Run, Delivery: call.Delivery.Number, Effect: e.ID, Intent: e.Intent, Key: e.Key,
		Call: call.Number, Text: text,
	})
}

// echoed notes that the evidence for a success is the provider's own report.
func (s *step) echoed(call *Call, echo bool, by string) {
	if echo {
		call.Echo, call.ResolvedBy = true, orElse(by, "echo")
	}
}

// resolveHead brings the head's list of unresolved effects in line with e.
func (s *step) resolveHead(e *Effect) {
	i := s.unresolved(e.ID)
	call := s.decides(e)
	if call.State != Ambiguous {
		e.Probing = Probing{}
	}
	if call.State != Pending && call.State != Ambiguous {
		if i >= 0 {
			s.head.Unresolved = without(s.head.Unresolved, func(u *Unresolved) bool { return u.Effect == e.ID })
		}
		return
	}
	u := Unresolved{
		Effect: e.ID, Intent: e.Intent, Key: e.Key, Summary: short(call.Summary), State: call.State, Claim: call.Claim, Call: call.Number,
		Run: call.Run, Delivery: call.Delivery, Deadline: call.Deadline, Since: call.At, Seq: call.Seq,
		Distinct: e.Distinct, Named: call.Named, Answers: call.Answers, Again: call.Again,
	}
	if latest := e.openUntil(); latest > call.Deadline {
		u.Latest = latest
	}
	for c := range e.Calls {
		other := &e.Calls[c]
		if other.State == Ambiguous && other.Run != call.Run && other.Run != (RunKey{}) && !slices.Contains(u.Owners, other.Run) {
			u.Owners = append(u.Owners, other.Run)
		}
	}
	if i >= 0 {
		s.head.Unresolved = slices.Clone(s.head.Unresolved)
		s.head.Unresolved[i] = u
		return
	}
	s.head.Unresolved = append(slices.Clip(s.head.Unresolved), u)
}

// answer closes an inbound message (rule S4.9), also one that no job has named yet.
func (s *step) answer(id string, by Answer) {
	in, ok := s.mustInbound(id)
	if !ok || in != nil && in.answered(by) {
		return
	}
	if in == nil {
		in = &Inbound{ID: id, FirstAt: s.now, Retention: s.Retention}
	}
	in = s.editInbound(in)
	in.Answered = append(in.Answered, by)
	if in.ClosedAt == 0 {
		in.ClosedAt = s.now
	}
}

// wrote notes that the run of a call owns a committed effect, unless the call is known to have
// failed (rule S4.6).
func (s *step) wrote(call *Call) {
	if call.Run == (RunKey{}) || call.State == Failed {
		return
	}
	run, ok := s.mustRun(call.Run)
	if !ok || run == nil || !call.of(run) {
		return
	}
	edited := run.Edited > 0 && call.Delivery.Number >= run.Edited
	if run.Wrote && !edited {
		return
	}
	run = s.editRun(run)
	run.Wrote = true
	if edited {
		run.Edited = 0
	}
	s.superseder(run)
}

// of reports whether the call was made by this generation of run, which may have been purged
// and begun anew since.
func (c *Call) of(run *Run) bool {
	return c.Run == run.Key && run.FirstDelivery > 0 && c.Delivery.Number >= run.FirstDelivery && c.At >= run.BegunAt
}

// superseder keeps, per source, the newest order of the runs that ended with success and wrote.
func (s *step) superseder(run *Run) {
	if !run.Finished() || !run.Wrote || run.Order.Source == "" {
		return
	}
	due := run.Index().Due
	s.head.Wrote = slices.Clone(s.head.Wrote)
	for i := range s.head.Wrote {
		if w := &s.head.Wrote[i]; w.Source == run.Order.Source {
			w.Number, w.Until = max(w.Number, run.Order.Number), max(w.Until, due)
			return
		}
	}
	s.head.Wrote = append(s.head.Wrote, Wrote{Order: run.Order, Until: due})
}

// reported reports whether an outside write was reported under this provider reference.
func (s *step) reported(ref string) bool {
	if ref == "" {
		return false
	}
	known, _ := s.look(ReferenceRow(ref)).(*Reference)
	return known != nil && known.Report != ""
}

// refer makes effect e findable by the provider's reference. A report that came first under
// the same reference was this effect's echo, and no news to anybody.
func (s *step) refer(ref string, e *Effect) {
	if ref == "" {
		return
	}
	known, _ := s.look(ReferenceRow(ref)).(*Reference)
	switch {
	case known == nil:
	case known.Effect == e.ID:
		return
	case known.Report != "":
		rec, ok := s.must(ReportRow(known.Report))
		if !ok {
			return
		}
		if rep, _ := rec.(*Report); rep != nil && rep.Echo == "" {
			echo := *rep
			echo.Echo = e.ID
			s.put(&echo)
			s.unland(rep.ID, true)
			s.event(Event{Kind: EventEcho, Effect: e.ID, Intent: e.Intent, Key: e.Key, Text: "reported before it was settled"})
		}
	}
	s.put(&Reference{Ref: ref, Effect: e.ID, At: s.now, Retention: s.Retention})
}

// advance moves what a delivery has seen past its own landings when nobody else's lie
// between: the verdicts are the same, and the head need not remember them for it.
func (s *step) advance(d *Delivery) *Delivery {
	if d == nil || d.Seen < s.head.Floor {
		return d
	}
	for _, l := range after(s.head.Landed, d.Seen) {
		if (l.Run != d.Run || l.Delivery != d.ID) && !d.replayed(l.Seq) {
			return d
		}
	}
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		if u.State == Ambiguous && u.Seq > d.Seen && (u.Run != d.Run || u.Delivery != d.ID) {
			return d
		}
	}
	moved := *d
	moved.Seen = s.head.Seq
	return &moved
}

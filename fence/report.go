package fence

import "github.com/fencedrun/fencedrun/internal/sabotage"

// ReportRequest says that something else wrote to the conversation (rule S5, outside writes).
type ReportRequest struct {
	Identity
	ID        string // a redelivered webhook has the same id and is one report
	Intent    string
	Answers   []string
	Reference string // the provider's, if known
	Effect    string // the id behind one of our own idempotency keys, if the write carried one
	Summary   string
	By        string
}

// ReportVerdict says what the report was.
type ReportVerdict struct {
	Report *Report
	Known  bool   // it was reported before
	Echo   string // the effect of our own whose echo it is, "" if none
}

// Report decides the rule on outside writes: news for every run, or the echo of an effect of
// our own, which conflicts with nobody and settles it if its outcome was open.
func (r Rules) Report(v View, q ReportRequest) (ReportVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	rec, ok := s.must(ReportRow(q.ID))
	missing := s.mustAll(q.Answers)
	effect := q.Effect
	if q.Reference != "" {
		ref, known := s.must(ReferenceRow(q.Reference))
		missing = missing || !known
		if found, _ := ref.(*Reference); found != nil && effect == "" {
			effect = found.Effect
		}
	}
	var own *Effect
	if effect != "" {
		var known bool
		own, known = s.mustEffect(effect)
		missing = missing || !known
	}
	if !ok || missing {
		return ReportVerdict{}, s.done()
	}
	if rep, _ := rec.(*Report); rep != nil && !s.isOff(sabotage.ReportsRepeat) {
		return ReportVerdict{Report: rep, Known: true, Echo: rep.Echo}, s.idle()
	}
	rep := &Report{
		ID: q.ID, Intent: q.Intent, Answers: q.Answers, Reference: q.Reference, Summary: q.Summary, By: q.By,
		Seq: s.seq(), At: s.now, Retention: s.Retention,
	}
	s.put(rep)
	s.change.Durable = true
	if own != nil && !s.isOff(sabotage.EchoIsNews) {
		rep.Echo = own.ID
		s.event(Event{Kind: EventEcho, Effect: own.ID, Intent: own.Intent, Key: own.Key})
		s.settleByEcho(own, q)
	}
	// An echo, too, closes what it says it answers.
	for _, id := range q.Answers {
		s.answer(id, Answer{ID: q.ID, Report: true, Intent: q.Intent})
	}
	if rep.Echo != "" {
		return ReportVerdict{Report: rep, Echo: rep.Echo}, s.done()
	}
	s.land(rep)
	if q.Reference != "" {
		s.put(&Reference{Ref: q.Reference, Report: q.ID, At: s.now, Retention: s.Retention})
	}
	s.event(Event{Kind: EventReported, Intent: q.Intent, Text: q.By})
	return ReportVerdict{Report: rep}, s.done()
}

// settleByEcho commits the call whose outcome was open: the provider itself says so. The call
// that carries the reference is meant, else the one that decides.
func (s *step) settleByEcho(e *Effect, q ReportRequest) {
	call := s.decides(e)
	for i := range e.Calls {
		if c := &e.Calls[i]; q.Reference != "" && c.Reference == q.Reference {
			call = c
		}
	}
	if call.State == Committed {
		s.refer(q.Reference, e)
		return
	}
	late := s.now > call.Deadline || call.ResolvedBy != "" || call.State == Failed
	duplicate := s.isDuplicate(e, call)
	claim := call.Claim
	e = s.editEffect(e)
	call = e.call(claim)
	call.Late = call.Late || late
	call.State, call.Settled, call.Seq = Committed, s.now, s.seq()
	call.NoValue, call.NotStarted = true, false
	s.echoed(call, true, q.By)
	if q.Reference != "" {
		call.Reference = q.Reference
	}
	s.settled(e, call)
	if late {
		s.callEvent(EventLate, e, call, string(Committed))
	}
	if duplicate {
		s.callEvent(EventDuplicate, e, call, "")
	}
}

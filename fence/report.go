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
	s := r.start(v, q.Identity)
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
		if !s.needs.Empty() {
			return ReportVerdict{}, s.done()
		}
		return ReportVerdict{Report: rep, Echo: own.ID}, s.done()
	}
	s.land(rep)
	for _, id := range q.Answers {
		s.answer(id, Answer{ID: q.ID, Report: true, Intent: q.Intent})
	}
	if q.Reference != "" {
		s.put(&Reference{Ref: q.Reference, Report: q.ID, At: s.now, Retention: s.Retention})
	}
	s.event(Event{Kind: EventReported, Intent: q.Intent, Text: q.By})
	return ReportVerdict{Report: rep}, s.done()
}

// settleByEcho commits the call whose outcome was open: the provider itself says so.
func (s *step) settleByEcho(e *Effect, q ReportRequest) {
	call := e.Deciding()
	if call.State == Committed {
		return
	}
	claim := call.Claim
	denied := call.State == Failed && call.Denied
	e = s.editEffect(e)
	call = e.call(claim)
	call.Late = call.State != Pending || s.now > call.Deadline
	call.State, call.Settled, call.Seq, call.NoValue = Committed, s.now, s.seq(), true
	call.ResolvedBy = orElse(q.By, "echo")
	if q.Reference != "" {
		call.Reference = q.Reference
	}
	s.settled(e, call)
	if denied {
		s.event(Event{Kind: EventDuplicate, Run: call.Run, Effect: e.ID, Intent: e.Intent, Key: e.Key, Call: call.Number})
	}
}

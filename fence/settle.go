package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// SettleRequest records what became of a claimed call (rule S7). It is accepted by claim id,
// not by the run's rights: a superseded or ended run may still tell the truth about its own
// claim.
type SettleRequest struct {
	Identity
	Effect string // id
	Claim  string
	State  State // Committed, Failed or Ambiguous

	Result     []byte // byte-exact (rule S7.5)
	NoValue    bool   // it happened, but the value could not be kept
	Reference  string // the provider's
	Error      string
	NotStarted bool // Failed without having reached the provider (rule S6.3)
	Echo       bool // the evidence is the provider's own report of the write

	// Delivery is the claimer's, when it settles its own claim; nil otherwise.
	Delivery *Delivery
	// Granted is the effect as the claim left it, to re-create a record that vanished (rule
	// S7.4); nil when the settle comes from a process that does not know it.
	Granted *Effect
}

// SettleVerdict says what the settle did.
type SettleVerdict struct {
	// Effect is the record as it now is; nil when the claim is not known.
	Effect *Effect
	// Recorded says that the outcome is in the ledger, now or from before.
	Recorded bool
	// Late says that it came after the claim's deadline or after a verdict; Duplicate that a
	// person must know: the effect may have happened twice (rule S7.3).
	Late, Duplicate bool
	// Vanished says that the record was gone and was re-created (rule S7.4).
	Vanished bool
	Delivery *Delivery
}

// Settle decides rule S7.
func (r Rules) Settle(v View, q SettleRequest) (SettleVerdict, Change) {
	s := r.start(v, q.Identity)
	e, ok := s.mustEffect(q.Effect)
	if !ok {
		return SettleVerdict{}, s.done()
	}
	var verdict SettleVerdict
	if e == nil || e.call(q.Claim) == nil {
		if q.Granted == nil {
			return verdict, s.idle()
		}
		e = s.recreate(e, q.Granted, q.Claim)
		verdict.Vanished = true
		s.event(Event{Kind: EventVanished, Effect: e.ID, Intent: e.Intent, Key: e.Key})
	}
	before := e.call(q.Claim)
	late := before.State != Pending || s.now > before.Deadline
	if !s.accepts(before, q) {
		verdict.Effect, verdict.Recorded = e, before.State == q.State
		if q.State != before.State && q.State != Ambiguous {
			verdict.Late = true
			s.event(Event{Kind: EventLate, Run: before.Run, Effect: e.ID, Intent: e.Intent, Key: e.Key, Call: before.Number, Text: string(q.State) + " after " + string(before.State)})
		}
		verdict.Delivery = q.Delivery
		return verdict, s.idle()
	}
	verdict.Duplicate = q.State == Committed && s.isDuplicate(e, before)
	verdict.Late = late && !verdict.Vanished
	if s.isOff(sabotage.LateOverwrites) && verdict.Late {
		before = &e.Calls[len(e.Calls)-1]
	}
	e = s.editEffect(e)
	call := e.call(before.Claim)
	call.State, call.Settled, call.Seq = q.State, s.now, s.seq()
	call.NotStarted = q.NotStarted
	call.Late = call.Late || verdict.Late
	call.Error = q.Error
	if q.State == Committed {
		call.Result, call.NoValue = q.Result, q.NoValue
	}
	if q.Reference != "" {
		call.Reference = q.Reference
	}
	s.settled(e, call)
	if verdict.Late {
		s.event(Event{Kind: EventLate, Run: call.Run, Effect: e.ID, Intent: e.Intent, Key: e.Key, Call: call.Number, Text: string(q.State)})
	}
	if verdict.Duplicate {
		s.event(Event{Kind: EventDuplicate, Run: call.Run, Effect: e.ID, Intent: e.Intent, Key: e.Key, Call: call.Number})
	}
	verdict.Effect, verdict.Recorded = e, true
	verdict.Delivery = s.advance(q.Delivery)
	return verdict, s.done()
}

// accepts says whether evidence changes what is known of a call. A success always does, once:
// committed is final (rules S2, S7.3, S7.6).
func (s *step) accepts(call *Call, q SettleRequest) bool {
	switch call.State {
	case Pending:
		return true
	case Ambiguous:
		return q.State != Ambiguous
	case Failed:
		return q.State == Committed
	default:
		return q.State == Failed && s.isOff(sabotage.CommittedNotFinal)
	}
}

// isDuplicate: a success for a call that was resolved as "did not happen", or beside another
// committed call (rule S7.3).
func (s *step) isDuplicate(e *Effect, call *Call) bool {
	if call.State == Failed && call.Denied {
		return true
	}
	return slices.ContainsFunc(e.Calls, func(c Call) bool { return c.State == Committed && c.Claim != call.Claim })
}

// recreate makes the record of a claim that vanished (rule S7.4).
func (s *step) recreate(e, granted *Effect, claim string) *Effect {
	if e == nil {
		e = granted
		c := s.editEffect(granted)
		c.Calls = slices.DeleteFunc(c.Calls, func(call Call) bool { return call.Claim != claim })
		return c
	}
	c := s.editEffect(e)
	c.Calls = append(c.Calls, *granted.call(claim))
	return c
}

// settled does what follows from a call's new state: for the head, for the messages that the
// effect answers, for its run, for its provider reference, for the observer.
func (s *step) settled(e *Effect, call *Call) {
	s.resolveHead(e)
	ev := Event{Run: call.Run, Delivery: call.Delivery.Number, Effect: e.ID, Intent: e.Intent, Key: e.Key, Call: call.Number}
	switch call.State {
	case Committed:
		ev.Kind = EventCommitted
		s.land(e)
		for _, id := range call.Answers {
			s.answer(id, Answer{ID: e.ID, Intent: e.Intent})
		}
		if call.Run != (RunKey{}) {
			s.wrote(call.Run)
		}
		s.refer(call.Reference, e.ID)
		if call.NoValue {
			s.event(Event{Kind: EventValueNotKept, Run: call.Run, Delivery: call.Delivery.Number, Effect: e.ID, Intent: e.Intent, Key: e.Key, Call: call.Number})
		}
	case Failed:
		ev.Kind = EventFailed
	case Ambiguous:
		ev.Kind = EventAmbiguous
	}
	s.event(ev)
}

// resolveHead brings the head's list of unresolved effects in line with e.
func (s *step) resolveHead(e *Effect) {
	i := s.unresolved(e.ID)
	call := e.Deciding()
	if call.State != Pending && call.State != Ambiguous {
		if i >= 0 {
			s.head.Unresolved = slices.Delete(s.head.Unresolved, i, i+1)
		}
		return
	}
	u := Unresolved{
		Effect: e.ID, Intent: e.Intent, Key: e.Key, Summary: short(call.Summary), State: call.State, Claim: call.Claim,
		Run: call.Run, Delivery: call.Delivery, Deadline: call.Deadline, Since: call.At, Seq: call.Seq,
		Distinct: e.Distinct, Named: call.Named, Answers: call.Answers, Again: call.Again,
	}
	for c := range e.Calls {
		other := &e.Calls[c]
		if other.State == Ambiguous && other.Run != call.Run && other.Run != (RunKey{}) && !slices.Contains(u.Owners, other.Run) {
			u.Owners = append(u.Owners, other.Run)
		}
	}
	if i >= 0 {
		s.head.Unresolved[i] = u
		return
	}
	s.head.Unresolved = append(s.head.Unresolved, u)
}

// answer closes an inbound message (rule S4.9), also one that no job has named yet.
func (s *step) answer(id string, by Answer) {
	in, ok := s.mustInbound(id)
	if !ok || in != nil && slices.Contains(in.Answered, by) {
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

// wrote notes that a run has a committed effect (rule S4.6).
func (s *step) wrote(key RunKey) {
	run, ok := s.mustRun(key)
	if !ok || run == nil || run.Wrote {
		return
	}
	run = s.editRun(run)
	run.Wrote = true
	s.superseder(run)
}

// superseder keeps the newest run per source that ended with success and wrote.
func (s *step) superseder(run *Run) {
	if !run.Finished() || !run.Wrote || run.Order.Source == "" {
		return
	}
	for i := range s.head.Wrote {
		if w := &s.head.Wrote[i]; w.Source == run.Order.Source {
			w.Number = max(w.Number, run.Order.Number)
			return
		}
	}
	s.head.Wrote = append(s.head.Wrote, run.Order)
}

// refer makes effect id findable by the provider's reference. A report that came first under
// the same reference was this effect's echo, and no news to anybody.
func (s *step) refer(ref, id string) {
	if ref == "" {
		return
	}
	known, _ := s.look(ReferenceRow(ref)).(*Reference)
	if known != nil && known.Report != "" {
		rec, ok := s.must(ReportRow(known.Report))
		if !ok {
			return
		}
		if rep, _ := rec.(*Report); rep != nil && rep.Echo == "" {
			echo := *rep
			echo.Echo = id
			s.put(&echo)
			s.unland(rep.ID, true)
			s.event(Event{Kind: EventEcho, Effect: id, Text: "reported before it was settled"})
		}
	}
	s.put(&Reference{Ref: ref, Effect: id, At: s.now, Retention: s.Retention})
}

// advance moves what a delivery has seen past its own landings when nobody else's lie
// between: the verdicts are the same, and the head need not remember them for it.
func (s *step) advance(d *Delivery) *Delivery {
	if d == nil || d.Seen < s.head.Floor {
		return d
	}
	for _, l := range after(s.head.Landed, d.Seen) {
		if (l.Run != d.Run || l.Delivery != d.ID) && !slices.Contains(d.Replayed, l.Seq) {
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

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

	// Durable asks for a flush: whoever brings this outcome, such as a provider's webhook, is
	// acknowledged and will not bring it again. A claimer's own settle needs none (rule S2).
	Durable bool

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
	s := r.start(new(step), v, q.Identity)
	verdict := SettleVerdict{Delivery: q.Delivery}
	rec, ok := s.must(s.rowOf(q.Effect))
	e, _ := s.mustEffect(q.Effect)
	if !ok {
		return verdict, s.done()
	}
	if rec == nil || e.call(q.Claim) == nil {
		if q.Granted == nil && (e == nil || e.call(q.Claim) == nil) || s.isOff(sabotage.VanishedIgnored) {
			return verdict, s.idle()
		}
		verdict.Vanished = true
		e = s.recreate(e, q.Granted, q.Claim)
		s.event(Event{Kind: EventVanished, Effect: e.ID, Intent: e.Intent, Key: e.Key, Call: e.call(q.Claim).Number})
	}
	call := e.call(q.Claim)
	if s.isOff(sabotage.SettleNeedsRight) && !s.current(call) {
		verdict.Effect = e
		return verdict, s.idle()
	}
	if q.State != Committed && s.reported(q.Reference) {
		// The report that carries this reference came before its call was settled: the write
		// happened, whatever the caller saw of it.
		q.State, q.NoValue, q.Echo = Committed, true, true
	}
	// Late is after the deadline, after a resolve, or against the claimer's own word.
	late := s.now > call.Deadline || call.ResolvedBy != "" && !call.Echo || call.State == Failed && q.State == Committed
	if !s.accepts(call, q) {
		verdict.Effect, verdict.Recorded = e, call.State == q.State
		return s.confirm(verdict, e, call, q, late)
	}
	verdict.Duplicate = q.State == Committed && s.isDuplicate(e, call)
	verdict.Late = late && !verdict.Vanished
	e = s.editEffect(e)
	call = e.call(q.Claim)
	if verdict.Late && s.isOff(sabotage.LateOverwrites) {
		call = &e.Calls[len(e.Calls)-1]
	}
	call.State, call.Settled, call.Seq = q.State, s.now, s.seq()
	call.NotStarted, call.Error = q.NotStarted, q.Error
	call.Late = call.Late || verdict.Late
	if q.State == Committed {
		call.Result, call.NoValue = q.Result, q.NoValue
		s.echoed(call, q.Echo, "")
	}
	if q.Reference != "" {
		call.Reference = q.Reference
	}
	s.settled(e, call)
	s.change.Durable = q.Durable
	if q.State == Committed && q.NoValue && !q.Echo {
		s.callEvent(EventValueNotKept, e, call, "")
	}
	if verdict.Late {
		s.callEvent(EventLate, e, call, string(q.State))
	}
	if verdict.Duplicate {
		s.callEvent(EventDuplicate, e, call, "")
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
		return q.State == Failed && s.isOff(sabotage.CommittedNotFinal) || q.State == Committed && s.isOff(sabotage.SettledTwice)
	}
}

// confirm is a settle that does not change what is known: the same one again, which is one
// settle (rule S7.6); the claimer's own word after a person, a probe or an echo said the same,
// which is kept because only the claimer has the value; or one that says the opposite of what
// is known, which is told and changes nothing (rule S7.3).
func (s *step) confirm(verdict SettleVerdict, e *Effect, call *Call, q SettleRequest, late bool) (SettleVerdict, Change) {
	switch {
	case q.State == Ambiguous:
	case q.State != call.State:
		verdict.Late = true
		s.callEvent(EventLate, e, call, string(q.State)+" after "+string(call.State))
	case call.ResolvedBy != "" && (late && !call.Late || call.NoValue && !q.NoValue):
		verdict.Late = late
		e = s.editEffect(e)
		call = e.call(q.Claim)
		if late && !call.Late {
			call.Late = true
			s.callEvent(EventLate, e, call, string(q.State))
		}
		if call.State == Committed && call.NoValue {
			call.Result, call.NoValue = q.Result, q.NoValue
		}
		call.Error = orElse(call.Error, q.Error)
		if q.Reference != "" {
			if q.State == Committed && call.Echo && call.Reference != "" && call.Reference != q.Reference {
				// What was echoed was not this call: two references are two deeds.
				verdict.Duplicate = true
				s.callEvent(EventDuplicate, e, call, "")
			}
			call.Reference = q.Reference
			s.refer(call.Reference, e)
		}
		verdict.Effect = e
		s.change.Durable = q.Durable
		return verdict, s.done()
	}
	return verdict, s.idle()
}

// isDuplicate: a success for a call that was resolved as "did not happen", or beside another
// committed call, unless rule S8 allowed the second (rule S7.3).
func (s *step) isDuplicate(e *Effect, call *Call) bool {
	if call.State == Failed && call.Denied {
		return true
	}
	return slices.ContainsFunc(e.Calls, func(c Call) bool {
		return c.State == Committed && c.Claim != call.Claim && (s.isOff(sabotage.OneKeyIsTwoDeeds) || !oneDeed(&c, call))
	})
}

// oneDeed reports whether two successes are one deed, or as good as one: the later call was
// made inside the earlier one's key window, or of an effect that is safe to repeat, for the
// same params and the same Answers (rule S8).
func oneDeed(a, b *Call) bool {
	first, second := a, b
	if b.Number < a.Number {
		first, second = b, a
	}
	return first.Again.Open(second.At) && first.Params == second.Params && sameIDs(first.Answers, second.Answers)
}

// recreate makes the record of a claim that vanished (rule S7.4), from what its claimer knows.
// The numbers that it carries are handed out again by nobody.
func (s *step) recreate(e, granted *Effect, claim string) *Effect {
	switch {
	case granted == nil:
	case e == nil:
		e = granted
	default:
		kept := s.editEffect(e)
		call := *granted.call(claim)
		kept.Calls = slices.DeleteFunc(kept.Calls, func(c Call) bool { return c.Claim == claim })
		if len(kept.Calls) > 0 && call.Number <= kept.Calls[len(kept.Calls)-1].Number {
			call.Number = nextNumber(kept)
		}
		kept.Calls = append(kept.Calls, call)
		e = kept
	}
	e = s.editEffect(e)
	e.call(claim).Vanished = true
	for i := range e.Calls {
		s.head.Seq = max(s.head.Seq, e.Calls[i].Seq)
		s.head.Fence = max(s.head.Fence, e.Calls[i].Fence)
	}
	return e
}

// current reports whether the claimer of a call may still write. No rule asks: see rule S7.2.
func (s *step) current(call *Call) bool {
	run, ok := s.mustRun(call.Run)
	return !ok || run != nil && run.State == RunActive && run.Delivery == call.Delivery
}

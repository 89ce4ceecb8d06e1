package fence

import "github.com/fencedrun/fencedrun/internal/sabotage"

// ResolveRequest is a person's verdict on an unknown outcome (rule S8).
type ResolveRequest struct {
	Identity
	Effect    string
	Happened  bool
	By, Note  string
	Reference string
	Result    []byte
	HasResult bool
	Force     bool // also while the claim's deadline has not passed
}

// ResolveVerdict says what was decided. Refused is "" when the verdict was taken.
type ResolveVerdict struct {
	Before, After *Effect
	Refused       string // for people: why not
	Early         bool   // refused because the claim's deadline has not passed
	Deadline      Millis
}

// Resolve decides rule S8: an unknown outcome becomes known. Committed never becomes failed.
func (r Rules) Resolve(v View, q ResolveRequest) (ResolveVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	e, ok := s.mustEffect(q.Effect)
	if !ok {
		return ResolveVerdict{}, s.done()
	}
	verdict := ResolveVerdict{Before: e, After: e}
	if e == nil {
		verdict.Refused = "no such effect"
		return verdict, s.idle()
	}
	call := s.decides(e)
	switch {
	case call.State == Committed && q.Happened && q.HasResult:
		return s.lateValue(e, call, q)
	case call.State == Committed && q.Happened:
		return verdict, s.idle()
	case call.State == Committed && !s.isOff(sabotage.CommittedNotFinal):
		verdict.Refused = "it is committed: committed never becomes failed"
		return verdict, s.idle()
	case call.State == Failed && !q.Happened:
		return verdict, s.idle()
	case call.State == Failed && !q.Force:
		verdict.Refused = "every call is known not to have applied; force it if you know better"
		return verdict, s.idle()
	}
	if until := s.underWay(e); until > 0 && !q.Force && !s.isOff(sabotage.ResolveWhilePending) {
		verdict.Refused = "the claim's deadline has not passed: the call may still be under way"
		verdict.Early, verdict.Deadline = true, until
		return verdict, s.idle()
	}
	verdict.After = s.decide(e, call, q)
	if !q.Happened {
		verdict.After.Grants++ // rule S5.6
	}
	return verdict, s.done()
}

// lateValue gives a committed effect the value that it lacks, or with force another one than was
// given to it: without it the jobs that ask for the value could never end (rule S7.5). What happened
// is not touched, nor a value that the claimer got.
func (s *step) lateValue(e *Effect, call *Call, q ResolveRequest) (ResolveVerdict, Change) {
	switch {
	case call.NoValue:
	case call.ResolvedBy == "":
		return ResolveVerdict{Before: e, After: e, Refused: "it is committed with the value that its claimer got, which is never replaced"}, s.idle()
	case !q.Force:
		return ResolveVerdict{Before: e, After: e, Refused: "it is committed and was given a value; force it to replace that"}, s.idle()
	}
	claim := call.Claim
	before := e
	e = s.editEffect(e)
	call = e.call(claim)
	call.Result, call.NoValue = q.Result, false
	call.ResolvedBy, call.Note = q.By, q.Note
	if q.Reference != "" {
		call.Reference = q.Reference
		s.refer(call.Reference, e)
	}
	s.change.Durable = true
	s.callEvent(EventResolved, e, call, "committed without this value to committed with it")
	return ResolveVerdict{Before: before, After: e}, s.done()
}

// decide writes a verdict on e, whose state call decides.
func (s *step) decide(e *Effect, call *Call, q ResolveRequest) *Effect {
	before := call.State
	claim := call.Claim
	e = s.editEffect(e)
	call = e.call(claim)
	if q.Happened {
		s.resolveCall(call, Committed, q)
		call.NoValue, call.NotStarted = !q.HasResult, false
		call.Result = q.Result
	} else {
		// Every open call gets the verdict; one whose claimer then reports a success raises
		// duplicate.
		for i := range e.Calls {
			if c := &e.Calls[i]; c.State == Pending || c.State == Ambiguous || c == call {
				s.resolveCall(c, Failed, q)
				c.Denied = true
			}
		}
	}
	s.settled(e, call)
	s.change.Durable = true
	s.callEvent(EventResolved, e, call, string(before)+" to "+string(call.State))
	return e
}

// underWay returns the latest deadline of an open call that has not passed, else 0. An outcome
// that is unknown before its deadline may still be a send on its way.
func (s *step) underWay(e *Effect) (until Millis) {
	if until = e.openUntil(); s.now > until {
		return 0
	}
	return until
}

func (s *step) resolveCall(c *Call, state State, q ResolveRequest) {
	c.State, c.Settled, c.Seq = state, s.now, s.seq()
	c.ResolvedBy, c.Note = q.By, q.Note
	if q.Reference != "" {
		c.Reference = q.Reference
	}
}

package fence

import "github.com/fencedrun/fencedrun/internal/sabotage"

// Finding is what a probe found out about an effect. The zero Finding is no answer.
type Finding string

// The findings of rule S8.
const (
	FoundApplied    Finding = "applied"     // the provider shows it
	FoundNotApplied Finding = "not_applied" // the provider does not show it
	FoundRejected   Finding = "rejected"    // the provider shows that it has refused it, for good
	FoundNothing    Finding = "unknown"     // the provider could not say
)

// ProbeRequest asks for the right to put one question about an unknown outcome to the
// provider (rule S8).
type ProbeRequest struct {
	Identity
	Effect string
	Nonce  string // of this question: one whose answer was lost is recognised by it
	By     string // the worker
	For    Millis // how long the question may take; nobody else asks meanwhile
}

// ProbeVerdict answers a ProbeRequest.
type ProbeVerdict struct {
	Granted bool
	Effect  *Effect // as it is; nil: no such effect
	// Next is when asking again may be granted, 0 when there is nothing to ask: the outcome is
	// known.
	Next Millis
}

// Probe decides who may ask, and when: only after the quiet period, because "not found" while
// the send is on its way is no answer, and one at a time over all processes.
func (r Rules) Probe(v View, q ProbeRequest) (ProbeVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	e, ok := s.mustEffect(q.Effect)
	if !ok {
		return ProbeVerdict{}, s.done()
	}
	if e == nil || !s.unknown(e) {
		return ProbeVerdict{Effect: e}, s.idle()
	}
	if e.Probing.Nonce == q.Nonce {
		return ProbeVerdict{Granted: true, Effect: e}, s.idle()
	}
	if next := s.probeAt(e); next > s.now {
		return ProbeVerdict{Effect: e, Next: next}, s.idle()
	}
	e = s.editEffect(e)
	e.Probing.Nonce, e.Probing.By, e.Probing.Until = q.Nonce, q.By, s.now+q.For
	e.Probing.Tries++
	// A crash that loses this lets somebody else ask too, which changes nothing at the provider:
	// it need not be durable.
	return ProbeVerdict{Granted: true, Effect: e}, s.done()
}

// unknown reports whether the outcome of e is ambiguous, or would be after its deadline.
func (s *step) unknown(e *Effect) bool {
	state := s.decides(e).State
	return state == Pending || state == Ambiguous
}

// probeAt returns when the next question may be put.
func (s *step) probeAt(e *Effect) Millis {
	next := e.Probing.Next
	if e.Probing.Last > s.now {
		next = 0 // the ledger's clock was ahead when that was written
	}
	if e.Probing.Nonce != "" && !s.isOff(sabotage.ProbesCrowd) {
		next = max(next, e.Probing.Until)
	}
	for i := range e.Calls {
		c := &e.Calls[i]
		switch {
		case c.State == Pending:
			next = max(next, c.Deadline+max(s.Quiet, 1))
		case c.State == Ambiguous && !s.isOff(sabotage.ProbesEarly):
			next = max(next, c.Deadline+s.Quiet)
		}
	}
	return next
}

// ProbedRequest hands in the answer to a question that Probe granted.
type ProbedRequest struct {
	Identity
	Effect, Nonce string
	Finding       Finding
	// ReadYourWrites is declared by the intent: the provider shows at once what it has accepted.
	// Only then "not applied" is an answer.
	ReadYourWrites bool
	// Unasked says, with FoundNothing, that the question was not put or its answer not waited for:
	// it does not count.
	Unasked   bool
	By, Note  string
	Reference string
	Result    []byte
	HasResult bool
}

// ProbedVerdict says what became of an answer.
type ProbedVerdict struct {
	Before, After *Effect // nil: no such effect
	Decided       bool    // the outcome is known now, by this answer or otherwise
	Next          Millis  // when asking again may be granted, if not
}

// Probed decides rule S8: what a probe's answer is worth. An answer is about the calls that
// there were when the question was put: it is dropped when another was made since, or when
// somebody else has taken over the question.
func (r Rules) Probed(v View, q ProbedRequest) (ProbedVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	e, ok := s.mustEffect(q.Effect)
	if !ok {
		return ProbedVerdict{}, s.done()
	}
	verdict := ProbedVerdict{Before: e, After: e}
	switch {
	case e == nil:
		return verdict, s.idle()
	case !s.unknown(e):
		verdict.Decided = true
		return verdict, s.idle()
	case e.Probing.Nonce != q.Nonce && !s.isOff(sabotage.OldProbeCounts):
		verdict.Next = s.probeAt(e)
		return verdict, s.idle()
	}
	notApplied := q.Finding == FoundRejected ||
		q.Finding == FoundNotApplied && (q.ReadYourWrites || s.isOff(sabotage.NotFoundBelieved))
	if q.Finding == FoundApplied || notApplied {
		verdict.Decided = true
		verdict.After = s.decide(e, s.decides(e), ResolveRequest{
			Effect: q.Effect, Happened: !notApplied, By: orElse(q.By, "probe"), Note: q.Note,
			Reference: q.Reference, Result: q.Result, HasResult: q.HasResult,
		})
		return verdict, s.done()
	}
	e = s.editEffect(e)
	p := &e.Probing
	if q.Unasked {
		p.Nonce, p.Until, p.Tries = "", 0, p.Tries-1
		verdict.After, verdict.Next = e, s.probeAt(e)
		return verdict, s.done()
	}
	p.Nonce, p.Until, p.Last, p.Note = "", 0, s.now, q.Note
	p.Next = s.now + s.backOff(p.Tries)
	s.callEvent(EventProbed, e, s.decides(e), q.Note)
	verdict.After, verdict.Next = e, p.Next
	return verdict, s.done()
}

// The pause after a probe that could not say doubles from one quiet period, or a second, to an
// hour, or one quiet period if that is longer.
const (
	minProbePause Millis = 1_000
	maxProbePause Millis = 3_600_000
)

func (s *step) backOff(tries int) Millis {
	pause := max(s.Quiet, minProbePause)
	for range tries - 1 {
		if pause >= maxProbePause {
			break
		}
		pause = min(2*pause, maxProbePause)
	}
	return pause
}

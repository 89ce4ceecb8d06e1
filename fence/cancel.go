package fence

// CancelRequest cancels a run from any process (rule S10.3).
type CancelRequest struct {
	Identity
	Run     RunKey
	By, Why string
	// Dismiss also closes the open messages of its job without an answer (rule S4.9).
	Dismiss bool
}

// CancelVerdict says what was found.
type CancelVerdict struct {
	Run       *Run // as it now is; nil: not known here
	Cancelled bool // now or before
	Dismissed []string
}

// Cancel decides rule S10.3. A run that has ended stays ended.
func (r Rules) Cancel(v View, q CancelRequest) (CancelVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	run, ok := s.mustRun(q.Run)
	if !ok {
		return CancelVerdict{}, s.done()
	}
	if run == nil {
		// The directory knows the run and this conversation does not: a Begin that died
		// between the two writes. The tombstone waits here for its next delivery.
		run = &Run{Key: q.Run, Generation: 1, State: RunActive, Retention: s.Retention}
	}
	if run.State == RunEnded || run.State == RunCancelled {
		return CancelVerdict{Run: run, Cancelled: run.State == RunCancelled}, s.idle()
	}
	if q.Dismiss && s.mustAll(run.Inbound) {
		return CancelVerdict{}, s.done()
	}
	run = s.editRun(run)
	run.State, run.CancelBy, run.CancelWhy, run.TouchedAt = RunCancelled, q.By, q.Why, s.now
	run.Waits, run.Parked = nil, ""
	s.unseat(q.Run)
	verdict := CancelVerdict{Run: run, Cancelled: true}
	if q.Dismiss {
		verdict.Dismissed = s.dismiss(run.Inbound, orElse(q.Why, "its job was cancelled"))
	}
	s.change.Durable = true
	s.event(Event{Kind: EventCancelled, Run: q.Run, Text: q.By})
	return verdict, s.done()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

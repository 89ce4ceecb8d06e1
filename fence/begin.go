package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// BeginRequest asks for a run's next delivery (rule S4).
type BeginRequest struct {
	Identity
	Run       RunKey
	QueueName string // data for people
	Order     Order
	Inbound   []string // the messages the job brings, registered whatever the answer (rule S4.9)
	Digest    string   // of the payload
	Mode      Mode
	Reads     Reads
	AsOf      int64 // FromPayload: the ledger stamp of the snapshot; 0: nothing is seen
	// Elsewhere is the run's record on another conversation, when the directory says that it
	// lives there (rule S4.5).
	Elsewhere *Run
}

// BeginVerdict answers a BeginRequest. Exactly one of Delivery, Refusal and Finished is set.
type BeginVerdict struct {
	// Delivery is granted: the handler may be entered.
	Delivery *Delivery
	// Run is the record as it was found or made, for what a handler may want of it: its
	// progress, whether it wrote before.
	Run *Run
	// Finished: the run ended with success before; acknowledge without entering the handler.
	Finished bool
	Refusal  *Refusal
}

// Begin decides rule S4: whether a delivered job is entered, and as what.
func (r Rules) Begin(v View, q BeginRequest) (BeginVerdict, Change) {
	s := r.start(v, q.Identity)
	// Rule S4.9: registered whatever Begin answers.
	for _, id := range q.Inbound {
		s.register(id)
	}
	run, known := s.mustRun(q.Run)
	if !known || s.mustAll(q.Inbound) {
		return BeginVerdict{}, s.done()
	}
	if run == nil {
		run = s.settleIn(q)
		if run == nil {
			return s.refuseBegin(q, nil, &Refusal{Reason: ReasonConversationMismatch})
		}
	}
	if v := s.knownRun(q, run); v != nil {
		return *v, s.done()
	}
	run, _ = s.rows[run.RowKey()].(*Run)

	if ref := s.judge(q, run); ref != nil {
		return s.refuseBegin(q, run, ref)
	}
	return s.grant(q, run), s.done()
}

// register notes that a job named inbound message id (rule S4.9).
func (s *step) register(id string) {
	rec, ok := s.must(InboundRow(id))
	if !ok {
		return
	}
	in, _ := rec.(*Inbound)
	if in == nil {
		in = &Inbound{ID: id, FirstAt: s.now, Retention: s.Retention}
	}
	in = s.editInbound(in)
	if !in.Registered {
		in.Registered = true
		in.Seq = s.seq()
	}
	in.NamedAt = s.now
}

// mustAll reports whether one of the inbound rows still has to be looked up.
func (s *step) mustAll(ids []string) (missing bool) {
	for _, id := range ids {
		if _, ok := s.mustInbound(id); !ok {
			missing = true
		}
	}
	return missing
}

// settleIn makes the record of a run that this conversation does not know: a new one, the
// next generation of one that ended elsewhere (rule S4.5), or a tombstone that has met its
// job (rule S4.4). nil means conversation_mismatch.
func (s *step) settleIn(q BeginRequest) *Run {
	run := &Run{Key: q.Run, Generation: 1, State: RunActive, Retention: s.Retention}
	home := s.view.Home
	switch {
	case home.Found && home.Where == "":
		run.State = RunCancelled
		run.CancelBy, run.CancelWhy = home.Tombstone.By, home.Tombstone.Why
	case q.Elsewhere != nil:
		if q.Elsewhere.State == RunActive && !s.isOff(sabotage.RunsAnywhere) {
			return nil
		}
		run.Generation = q.Elsewhere.Generation + 1
		run.Delivery.Number = q.Elsewhere.Delivery.Number
		s.event(Event{Kind: EventNewGeneration, Run: q.Run, Delivery: run.Delivery.Number, Text: "on another conversation"})
	}
	return run
}

// knownRun applies rules S4.2 to S4.4 to the run's own record. It returns a verdict when that
// settles the matter, else it leaves an editable record in s.rows.
func (s *step) knownRun(q BeginRequest, run *Run) *BeginVerdict {
	sameDigest := run.Digest == q.Digest
	switch run.State {
	case RunCancelled:
		if run.Digest == "" || sameDigest {
			if s.isOff(sabotage.CancelForgotten) {
				break
			}
			if run.Digest == "" && q.Digest != "" {
				bound := s.editRun(run)
				bound.Digest, bound.TouchedAt = q.Digest, s.now
				bound.Order, bound.Mode, bound.QueueName, bound.Inbound = q.Order, q.Mode, q.QueueName, q.Inbound
				s.home(q)
				s.event(Event{Kind: EventTombstoneBound, Run: q.Run})
			}
			return s.refusedBegin(q, &Refusal{Reason: ReasonCancelled})
		}
		s.generation(q, run)
		return nil
	case RunEnded:
		if run.End == EndSuccess {
			if sameDigest && !s.isOff(sabotage.FinishedRunsAgain) {
				s.event(Event{Kind: EventFinishedAgain, Run: q.Run, Delivery: run.Delivery.Number})
				return &BeginVerdict{Finished: true, Run: run}
			}
			if !s.isOff(sabotage.DigestIgnored) || sameDigest {
				s.generation(q, run)
				return nil
			}
			return &BeginVerdict{Finished: true, Run: run}
		}
		next := s.editRun(run)
		if run.End == EndDiscarded {
			next.Grants++ // rule S5.6
		}
		next.Digest = q.Digest
		s.event(Event{Kind: EventReopened, Run: q.Run, Delivery: run.Delivery.Number, Text: string(run.End)})
		return nil
	}
	next := s.editRun(run)
	if run.Delivery.Number > 0 && !sameDigest {
		next.Digest = q.Digest
		s.event(Event{Kind: EventDigestChanged, Run: q.Run, Delivery: run.Delivery.Number})
	}
	return nil
}

// generation starts the run anew for other work under the same id.
func (s *step) generation(q BeginRequest, run *Run) {
	s.put(&Run{
		Key: run.Key, Generation: run.Generation + 1, State: RunActive, Retention: s.Retention,
		Delivery: DeliveryID{Number: run.Delivery.Number},
	})
	s.event(Event{Kind: EventNewGeneration, Run: q.Run, Delivery: run.Delivery.Number, Text: "another payload"})
}

// judge applies rules S4.6 and S4.7 to a run that may otherwise be entered.
func (s *step) judge(q BeginRequest, run *Run) *Refusal {
	if q.Mode == Exclusive {
		if ref := s.busy(run.Key); ref != nil {
			return ref
		}
	} else if ref := s.superseded(run.Key, orderOf(q, run), q.Inbound); ref != nil {
		return ref
	}
	return s.waits(run)
}

// orderOf returns the order by which the run is judged: as stored (rule S4.2), except for a
// record that has none yet.
func orderOf(q BeginRequest, run *Run) Order {
	if run.FirstSeq == 0 {
		return q.Order
	}
	return run.Order
}

// waits refuses a run while an effect that refused it earlier is still pending (rule S4.6): it
// would only pay for another refusal.
func (s *step) waits(run *Run) *Refusal {
	if s.isOff(sabotage.WaitsForgotten) {
		return nil
	}
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		if u.State == Pending && slices.Contains(run.Waits, u.Claim) {
			return &Refusal{Reason: ReasonInFlight, ComeBack: true, At: u.Deadline + 1, Conflicts: []Conflict{u.conflict()}}
		}
	}
	return nil
}

// refuseBegin ends a refused Begin: a run that is not known yet leaves no record (rule S4.1),
// one that is superseded for good ends (rule S10.2), any other keeps what it has.
func (s *step) refuseBegin(q BeginRequest, run *Run, ref *Refusal) (BeginVerdict, Change) {
	key := RunRow(q.Run)
	stored, _ := s.view.Rows[key].(*Run)
	if stored == nil || run == nil {
		delete(s.rows, key)
		s.order = slices.DeleteFunc(s.order, func(k string) bool { return k == key })
	} else {
		// The generation or re-opening that was prepared does not take place.
		kept := s.editRun(stored)
		if stored.Delivery.Nonce == q.Nonce {
			s.unseat(q.Run) // its own lost Begin: the delivery is refused after all
		}
		if ref.Reason == ReasonSuperseded && !ref.ComeBack && stored.State == RunActive {
			s.unseat(q.Run)
			s.finish(kept, EndSuperseded)
		}
	}
	v := s.refusedBegin(q, ref)
	return *v, s.done()
}

func (s *step) refusedBegin(q BeginRequest, ref *Refusal) *BeginVerdict {
	s.event(Event{Kind: EventRefused, Run: q.Run, Reason: ref.Reason})
	return &BeginVerdict{Refusal: ref}
}

// grant makes the next delivery of run and seats it.
func (s *step) grant(q BeginRequest, run *Run) BeginVerdict {
	repeated := run.Delivery.Nonce == q.Nonce && run.State == RunActive && !s.isOff(sabotage.BeginNonceIgnored)
	first := run.Delivery.Number == 0
	if !repeated {
		run.Delivery.Number++
	}
	run.Delivery.Nonce = q.Nonce
	run.State, run.End, run.Parked, run.Waits = RunActive, "", "", nil
	run.TouchedAt = s.now
	if run.FirstSeq == 0 {
		run.FirstSeq, run.BegunAt = s.head.Seq, s.now
		run.Order, run.Digest = q.Order, q.Digest
	}
	run.Mode, run.QueueName, run.Inbound = q.Mode, q.QueueName, q.Inbound
	if s.isOff(sabotage.RedeliveryIsNewRun) && !first {
		run.Delivery.Number = 1
	}
	s.put(run)
	s.seat(Seat{Run: run.Key, Delivery: run.Delivery, Order: run.Order, Mode: q.Mode})
	s.home(q)

	d := &Delivery{
		Run: run.Key, ID: run.Delivery, Mode: q.Mode, Order: run.Order, Reads: q.Reads,
		Inbound: q.Inbound, FirstSeq: run.FirstSeq, Refused: run.Refused,
	}
	// Rule S4.8: what the input has seen is said by the user, never guessed. A stamp from the
	// future comes from another ledger and so has seen nothing of this one.
	switch {
	case q.Reads == AfterBegin:
		d.Seen = s.head.Seq
	case q.AsOf <= s.head.Seq:
		d.Seen = q.AsOf
	}
	d.Taken = s.takenOf(q.Inbound)
	kind := EventResumed
	if first {
		kind = EventBegun
	}
	s.event(Event{Kind: kind, Run: run.Key, Delivery: run.Delivery.Number})
	return BeginVerdict{Delivery: d, Run: run}
}

// home claims the run's directory entry for this conversation unless it is there already.
func (s *step) home(q BeginRequest) {
	h := s.view.Home
	if h.Known && h.Found && h.Where != "" && q.Elsewhere == nil {
		return
	}
	s.change.Home = &HomeChange{Run: q.Run, Due: s.now + s.Retention}
}

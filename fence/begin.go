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
	b := &begin{q: q}
	s := r.start(&b.step, v, q.Identity)
	b.told = len(s.change.Events)
	if len(q.Inbound) > 0 && !s.isOff(sabotage.RefusedForgetsInbound) {
		b.register()
	}
	run, known := s.mustRun(q.Run)
	if !known || s.mustAll(q.Inbound) {
		return BeginVerdict{}, s.done()
	}
	b.stored = run
	verdict := b.decide()
	return verdict, s.idle()
}

// begin is a BeginRequest being decided.
type begin struct {
	step
	q      BeginRequest
	stored *Run // as it is on record here, or nil
	told   int  // how many events there were before anything was prepared
}

// decide prepares the run's next record, judges, and either grants it or takes it back.
func (b *begin) decide() BeginVerdict {
	if b.q.Elsewhere != nil && b.q.Elsewhere.State == RunActive && !b.isOff(sabotage.RunsAnywhere) {
		return b.refuse(&Refusal{Reason: ReasonConversationMismatch}) // rule S4.5
	}
	run, verdict := b.prepare()
	if verdict != nil {
		return *verdict
	}
	if b.buried() && !b.isOff(sabotage.CancelForgotten) {
		return b.bind(run)
	}
	if ref := b.judge(run); ref != nil {
		return b.refuse(ref)
	}
	return b.grant(run)
}

// register notes that a job named its messages, whatever Begin answers (rule S4.9).
func (b *begin) register() {
	for _, id := range b.q.Inbound {
		in, ok := b.mustInbound(id)
		if !ok {
			continue
		}
		if in == nil {
			in = &Inbound{ID: id, FirstAt: b.now, Retention: b.Retention}
		}
		in = b.editInbound(in)
		if !in.Registered {
			in.Registered = true
			in.Seq = b.seq()
		}
		in.NamedAt = b.now
	}
}

// judge applies rules S4.6 and S4.7 to a run that may otherwise be entered. A Begin is judged
// by its own mode.
func (b *begin) judge(run *Run) *Refusal {
	order := run.Order // as stored (rule S4.2)
	if run.FirstSeq == 0 {
		order = b.q.Order
	}
	if b.q.Mode == Exclusive {
		if ref := b.busy(run.Key); ref != nil {
			return ref
		}
	} else if ref := b.superseded(run.Key, order, b.q.Inbound, true); ref != nil {
		return ref
	}
	return b.waits(run)
}

// waits refuses a run while an effect that refused it earlier is still pending (rule S4.6): it
// would only pay for another refusal.
func (b *begin) waits(run *Run) *Refusal {
	var pending []Conflict
	for i := range b.head.Unresolved {
		if u := &b.head.Unresolved[i]; u.State == Pending && slices.Contains(run.Waits, u.Claim) {
			pending = append(pending, u.conflict())
		}
	}
	if len(pending) == 0 || b.isOff(sabotage.WaitsForgotten) {
		return nil
	}
	return &Refusal{Reason: ReasonInFlight, ComeBack: true, At: earliestDeadline(pending) + 1, Conflicts: pending}
}

// refuse ends a refused Begin. What was prepared does not take place: a run that is not known
// yet leaves no record (rule S4.1), any other keeps the one it has, except that one that is
// superseded for good ends (rule S10.2).
func (b *begin) refuse(ref *Refusal) BeginVerdict {
	b.change.Events = b.change.Events[:b.told]
	if !b.isOff(sabotage.RefusedLeavesRun) {
		b.undo(RunRow(b.q.Run))
	}
	if b.stored != nil {
		if b.stored.Delivery.Nonce == b.q.Nonce {
			b.unseat(b.q.Run) // its own lost Begin: the delivery is refused after all
		}
		if ref.Reason == ReasonSuperseded && !ref.ComeBack && b.stored.State == RunActive {
			b.unseat(b.q.Run)
			b.finish(b.editRun(b.stored), EndSuperseded)
		}
	}
	return b.refused(ref)
}

func (b *begin) refused(ref *Refusal) BeginVerdict {
	b.event(Event{Kind: EventRefused, Run: b.q.Run, Reason: ref.Reason})
	return BeginVerdict{Refusal: ref}
}

// grant makes the next delivery of run, whose record may be changed, and seats it.
func (b *begin) grant(run *Run) BeginVerdict {
	q := b.q
	repeated := b.stored != nil && b.stored.State == RunActive && b.stored.Delivery.Nonce == q.Nonce &&
		!b.isOff(sabotage.BeginNonceIgnored)
	kind := EventResumed
	if run.Delivery.Number == 0 || repeated && run.Delivery.Number == 1 {
		kind = EventBegun
	}
	if !repeated {
		run.Delivery.Number++
		if run.Delivery.Number > 1 && b.isOff(sabotage.RedeliveryIsNewRun) {
			run.Delivery.Number = 1
		}
	}
	run.Delivery.Nonce = q.Nonce
	run.State, run.End, run.Parked, run.Waits = RunActive, "", "", nil
	run.TouchedAt = b.now
	if run.FirstSeq == 0 {
		run.FirstSeq, run.FirstDelivery, run.BegunAt = b.head.Seq, run.Delivery.Number, b.now
		run.Order, run.Digest = q.Order, q.Digest
	}
	run.Mode, run.QueueName, run.Inbound = q.Mode, q.QueueName, q.Inbound
	if len(run.Progress) > 0 && b.isOff(sabotage.ProgressForgotten) {
		run.Progress = nil
	}
	if len(q.Inbound) > 0 && b.isOff(sabotage.RefusedForgetsInbound) {
		b.register()
	}
	b.seat(Seat{Run: run.Key, Delivery: run.Delivery, Order: run.Order, Mode: q.Mode})
	b.home()
	b.event(Event{Kind: kind, Run: run.Key, Delivery: run.Delivery.Number})
	return BeginVerdict{Delivery: b.delivery(run), Run: run}
}

// delivery is what a granted execution starts with. What it has seen is said by the user,
// never guessed (rule S4.8). A stamp from the future comes from another ledger and so has
// seen nothing of this one.
func (b *begin) delivery(run *Run) *Delivery {
	q := b.q
	d := &Delivery{
		Run: run.Key, ID: run.Delivery, Mode: q.Mode, Order: run.Order, Reads: q.Reads,
		Inbound: q.Inbound, FirstSeq: run.FirstSeq, Refused: run.Refused, Taken: b.takenOf(q.Inbound),
	}
	switch {
	case q.Reads == AfterBegin || b.isOff(sabotage.PayloadIsFresh):
		d.Seen = b.head.Seq
	case q.AsOf <= b.head.Seq:
		d.Seen = q.AsOf
	}
	if run.FirstSeq >= b.head.Floor {
		b.lookBack(d, nil)
	}
	return d
}

// home claims the run's directory entry for this conversation unless it is there already.
func (b *begin) home() {
	h := b.view.Home
	if h.Known && h.Found && h.Where != "" && b.q.Elsewhere == nil {
		return
	}
	b.change.Home = &HomeChange{Run: b.q.Run, Due: b.now + b.Retention}
}

package fence

// BeatRequest asks whether a delivery whose conversation moved may still write (rule S9.2).
type BeatRequest struct {
	Identity
	Delivery *Delivery
	// Rejoin asks for the lease again, because the renewal did not find it.
	Rejoin bool
}

// BeatVerdict is nil when the delivery may go on.
type BeatVerdict struct {
	Refusal  *Refusal
	Rejoined bool
}

// Beat decides what a heartbeat learns. It never catches up and never changes the order
// (rule S9.2); the only thing it may write is the seat of a lease that lapsed and that
// nobody used (rule S9.4).
func (r Rules) Beat(v View, q BeatRequest) (BeatVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	run, ok := s.mustRun(q.Delivery.Run)
	if !ok || s.mustAll(q.Delivery.Inbound) {
		return BeatVerdict{}, s.done()
	}
	if ref := s.rights(run, q.Delivery); ref != nil {
		return BeatVerdict{Refusal: ref}, Change{}
	}
	if !q.Rejoin || s.seated(q.Delivery) {
		return BeatVerdict{}, Change{}
	}
	if q.Delivery.Mode == Exclusive {
		if ref := s.busy(run.Key); ref != nil {
			return BeatVerdict{Refusal: ref}, Change{}
		}
	}
	s.seat(Seat{Run: run.Key, Delivery: run.Delivery, Order: run.Order, Mode: q.Delivery.Mode})
	s.event(Event{Kind: EventLeaseRejoined, Run: run.Key, Delivery: run.Delivery.Number})
	return BeatVerdict{Rejoined: true}, s.done()
}

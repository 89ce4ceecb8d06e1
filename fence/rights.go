package fence

import "github.com/fencedrun/fencedrun/internal/sabotage"

// right is rule S5.2: may this delivery write at all?
func (c *claim) right() *ClaimVerdict {
	if c.d == nil {
		return nil // a write without a job
	}
	run, ok := c.mustRun(c.d.Run)
	if !ok {
		return nil
	}
	if ref := c.rights(run, c.d); ref != nil {
		return c.refuse(ref)
	}
	return nil
}

// rights judges a delivery's right to write. Beats ask the same question (rule S9.2).
func (s *step) rights(run *Run, d *Delivery) *Refusal {
	if ref := s.mayWrite(run, d); ref != nil && !s.isOff(sabotage.NoFence) {
		return ref
	}
	return nil
}

func (s *step) mayWrite(run *Run, d *Delivery) *Refusal {
	switch {
	case run == nil:
		return &Refusal{Reason: ReasonNoRun}
	case run.State == RunCancelled && !s.isOff(sabotage.CancelledWrites):
		return &Refusal{Reason: ReasonCancelled, Stale: stale(s, run, d)}
	case run.State == RunEnded && !s.isOff(sabotage.EndedWrites):
		// An older delivery learns here that a later one ended the run: the queue's record of
		// the job is not its to close.
		return &Refusal{Reason: ReasonEnded, Stale: stale(s, run, d)}
	}
	if stale(s, run, d) {
		return &Refusal{Reason: ReasonSuperseded, Stale: true}
	}
	if d.Mode != Exclusive {
		if !s.seated(d) && s.isOff(sabotage.LeaseNeeded) {
			return &Refusal{Reason: ReasonLeaseLost}
		}
		return s.superseded(run.Key, run.Order, d.Inbound, false)
	}
	return s.holds(d)
}

// holds is rule S9.4: in mode exclusive a lease that lapsed is not lost before another holder
// has used it. Whoever takes a seat removes those whose lease has lapsed: a seat that is gone
// was used, even if the holder is gone as well.
func (s *step) holds(d *Delivery) *Refusal {
	if s.seated(d) {
		return nil
	}
	if ref := s.busy(d.Run); ref != nil {
		return ref
	}
	if s.seatOf(d) == nil && !s.isOff(sabotage.UsedLeaseForgiven) {
		return &Refusal{Reason: ReasonBusy, ComeBack: true, At: s.now + 1}
	}
	return nil
}

// stale reports whether a later delivery of the same run holds its rights. Number and nonce
// are compared together (rule S3.2).
func stale(s *step, run *Run, d *Delivery) bool {
	switch {
	case run.Delivery == d.ID, s.isOff(sabotage.StaleDeliveryWrites):
		return false
	case run.Delivery.Number == d.ID.Number:
		return !s.isOff(sabotage.DeliveryByNumberOnly)
	}
	return true
}

// seatOf returns d's seat, or nil.
func (s *step) seatOf(d *Delivery) *Seat {
	for i := range s.head.Seats {
		if seat := &s.head.Seats[i]; seat.Run == d.Run && seat.Delivery == d.ID {
			return seat
		}
	}
	return nil
}

// seated reports whether d's seat has a live lease.
func (s *step) seated(d *Delivery) bool {
	seat := s.seatOf(d)
	return seat != nil && s.leaseLeft(seat) > 0
}

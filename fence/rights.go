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
	if s.isOff(sabotage.NoFence) {
		return nil
	}
	switch {
	case run == nil:
		return &Refusal{Reason: ReasonNoRun}
	case run.State == RunCancelled:
		return &Refusal{Reason: ReasonCancelled, Stale: stale(s, run, d)}
	case run.State == RunEnded:
		// An older delivery learns here that a later one ended the run: the queue's record of
		// the job is not its to close.
		return &Refusal{Reason: ReasonEnded, Stale: stale(s, run, d)}
	}
	if stale(s, run, d) {
		return &Refusal{Reason: ReasonSuperseded, Stale: true}
	}
	if d.Mode != Exclusive {
		return s.superseded(run.Key, run.Order, d.Inbound)
	}
	if s.seated(d) {
		return nil
	}
	// Its lease lapsed or was given up; that alone is not loss (rule S9.4), but another
	// holder is.
	return s.busy(run.Key)
}

// stale reports whether a later delivery of the same run holds its rights. Number and nonce
// are compared together (rule S3.2).
func stale(s *step, run *Run, d *Delivery) bool {
	if s.isOff(sabotage.StaleDeliveryWrites) {
		return false
	}
	if s.isOff(sabotage.DeliveryByNumberOnly) {
		return run.Delivery.Number != d.ID.Number
	}
	return run.Delivery != d.ID
}

// seated reports whether d's seat has a live lease.
func (s *step) seated(d *Delivery) bool {
	for i := range s.head.Seats {
		seat := &s.head.Seats[i]
		if seat.Run == d.Run && seat.Delivery == d.ID {
			return s.leaseLeft(seat) > 0
		}
	}
	return false
}

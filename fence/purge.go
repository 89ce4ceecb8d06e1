package fence

import "github.com/fencedrun/fencedrun/internal/sabotage"

// PurgeRequest offers rows whose retention may have passed (rule S10.4).
type PurgeRequest struct {
	Identity
	Due []Record
}

// PurgeVerdict counts what was deleted.
type PurgeVerdict struct {
	Runs, Effects, Others int
	Dropped               []string // open inbound ids that outlived the retention (rule S10.5)
}

// Purge decides rule S10.4: pending, ambiguous and live things stay, and an effect does not
// go before its run could.
func (r Rules) Purge(v View, q PurgeRequest) (PurgeVerdict, Change) {
	s := r.start(v, q.Identity)
	var verdict PurgeVerdict
	for _, rec := range q.Due {
		// Judge the row as it is now, not as it was found.
		now, ok := s.must(rec.RowKey())
		if !ok || now == nil {
			continue
		}
		if ix := now.Index(); ix.Due == 0 || ix.Due > s.now {
			continue
		}
		switch now := now.(type) {
		case *Run:
			if s.runGone(now) {
				verdict.Runs++
				s.change.Forget = append(s.change.Forget, now.Key)
				s.forget(now)
				s.drop(now)
			}
		case *Effect:
			if s.effectGone(now) {
				verdict.Effects++
				s.drop(now)
			}
		case *Inbound:
			if s.taker(now.ID) != nil {
				continue
			}
			if now.Registered && !now.Closed() {
				verdict.Dropped = append(verdict.Dropped, now.ID)
				s.event(Event{Kind: EventInboundDropped, Inbound: now.ID})
			}
			verdict.Others++
			s.drop(now)
		default:
			verdict.Others++
			s.drop(now)
		}
	}
	if !s.needs.Empty() {
		return PurgeVerdict{}, s.done()
	}
	if !s.changed() {
		return verdict, s.idle()
	}
	s.event(Event{Kind: EventPurged})
	return verdict, s.done()
}

// runGone: an ended or cancelled run after its retention, or one that never ended once its
// lease has passed too.
func (s *step) runGone(run *Run) bool {
	for i := range s.head.Seats {
		if seat := &s.head.Seats[i]; seat.Run == run.Key && s.leaseLeft(seat) > 0 {
			return false
		}
	}
	for i := range s.head.Unresolved {
		u := &s.head.Unresolved[i]
		if u.Run == run.Key {
			return false
		}
		for _, owner := range u.Owners {
			if owner == run.Key {
				return false
			}
		}
	}
	return true
}

// effectGone: settled, past its retention, and no run that could still ask for it is kept.
func (s *step) effectGone(e *Effect) bool {
	if s.unresolved(e.ID) >= 0 {
		return false
	}
	if s.isOff(sabotage.PurgeBeforeRun) {
		return true
	}
	for i := range e.Calls {
		if e.Calls[i].Run == (RunKey{}) {
			continue
		}
		run, ok := s.mustRun(e.Calls[i].Run)
		if !ok {
			return false
		}
		if run != nil && run.Index().Due > s.now {
			return false
		}
	}
	return true
}

// forget takes a purged run out of the head.
func (s *step) forget(run *Run) {
	for i := range s.head.Wrote {
		if s.head.Wrote[i] == run.Order {
			s.head.Wrote = append(s.head.Wrote[:i:i], s.head.Wrote[i+1:]...)
			break
		}
	}
	kept := s.head.Seats[:0]
	for _, seat := range s.head.Seats {
		if seat.Run != run.Key {
			kept = append(kept, seat)
		}
	}
	s.head.Seats = kept
}

// drop deletes a row and what the head remembers of it.
func (s *step) drop(rec Record) {
	key := rec.RowKey()
	s.put(rec)
	s.rows[key] = nil
	switch rec := rec.(type) {
	case *Effect:
		s.unland(rec.ID, false)
	case *Report:
		s.unland(rec.ID, true)
	}
}

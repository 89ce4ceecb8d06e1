package fence

import (
	"cmp"
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// PurgeRequest offers rows whose retention may have passed (rule S10.4).
type PurgeRequest struct {
	Identity
	Due []Record
}

// PurgeVerdict counts what was deleted.
type PurgeVerdict struct {
	Runs, Effects, Others int
	// Kept counts the rows that something still needs. They are due again later, so that a
	// purge which looks at a bounded number of rows gets past them.
	Kept    int
	Dropped []string // open inbound ids that outlived the retention (rule S10.5)
}

// Purge decides rule S10.4: pending, ambiguous and live things stay, an effect does not go
// before its run could, nor a message before the effect that answered it.
func (r Rules) Purge(v View, q PurgeRequest) (PurgeVerdict, Change) {
	s := r.start(new(step), v, q.Identity)
	var verdict PurgeVerdict
	// A row goes after those that need it.
	due := slices.Clone(q.Due)
	slices.SortStableFunc(due, func(a, b Record) int { return cmp.Compare(purgeRank(a), purgeRank(b)) })
	for _, rec := range due {
		// Judge the row as it is now, not as it was found.
		now, ok := s.must(rec.RowKey())
		if !ok || now == nil {
			continue
		}
		if !s.due(now) {
			continue
		}
		if until := s.neededUntil(now); until > s.now {
			verdict.Kept++
			s.keep(now, until)
			continue
		}
		switch now := now.(type) {
		case *Run:
			verdict.Runs++
			s.change.Forget = append(s.change.Forget, now.Key)
			s.unseat(now.Key)
		case *Effect:
			verdict.Effects++
			s.unland(now.ID, false)
		case *Inbound:
			verdict.Others++
			if !now.Closed() {
				verdict.Dropped = append(verdict.Dropped, now.ID)
				if !s.isOff(sabotage.DroppedSilently) {
					s.event(Event{Kind: EventInboundDropped, Inbound: now.ID})
				}
			}
		case *Report:
			verdict.Others++
			s.unland(now.ID, true)
		default:
			verdict.Others++
		}
		s.remove(now)
	}
	if !s.needs.Empty() {
		return PurgeVerdict{}, s.done()
	}
	if verdict.Runs > 0 {
		s.head.Wrote = without(s.head.Wrote, func(w *Wrote) bool { return w.Until <= s.now })
	}
	if verdict.Runs+verdict.Effects+verdict.Others > 0 {
		s.event(Event{Kind: EventPurged})
	}
	return verdict, s.idle()
}

func purgeRank(rec Record) int {
	switch rec.(type) {
	case *Run:
		return 0
	case *Effect, *Report:
		return 1
	}
	return 2
}

// due reports whether a row's own retention has passed.
func (s *step) due(rec Record) bool {
	due := rec.Index().Due
	return due > 0 && due <= s.now
}

// neededUntil says for how long something still needs a row that is due; s.now or less means
// that nothing does.
func (s *step) neededUntil(rec Record) Millis {
	switch rec := rec.(type) {
	case *Run:
		return s.runNeeded(rec)
	case *Effect: // pending and ambiguous ones are never due
		return s.effectNeeded(rec)
	case *Inbound:
		if s.taker(rec.ID) != nil && !s.isOff(sabotage.PurgesUnresolved) {
			return s.later()
		}
		var until Millis
		for _, a := range rec.Answered {
			key := EffectRow(a.ID)
			if a.Report {
				key = ReportRow(a.ID)
			}
			until = max(until, s.stays(key))
		}
		return until
	case *Reference:
		if rec.Effect != "" {
			return s.stays(EffectRow(rec.Effect))
		}
	}
	return 0
}

// later is when a row is looked at again that is needed for nobody knows how long.
func (s *step) later() Millis { return s.now + max(s.Retention/10, 1) }

// runNeeded: an ended or cancelled run goes after its retention, one that never ended once its
// lease has passed too, and none while it owns an unresolved effect.
func (s *step) runNeeded(run *Run) Millis {
	if s.isOff(sabotage.PurgesUnresolved) {
		return 0
	}
	for i := range s.head.Seats {
		if seat := &s.head.Seats[i]; seat.Run == run.Key && s.leaseLeft(seat) > 0 {
			return s.now + s.leaseLeft(seat)
		}
	}
	for i := range s.head.Unresolved {
		if s.head.Unresolved[i].ownedBy(run.Key) {
			return s.later()
		}
	}
	return 0
}

// effectNeeded: a settled effect stays as long as a run that could still ask for it.
func (s *step) effectNeeded(e *Effect) (until Millis) {
	if s.isOff(sabotage.PurgeBeforeRun) {
		return 0
	}
	for i := range e.Calls {
		if e.Calls[i].Run == (RunKey{}) {
			continue
		}
		run, _ := s.mustRun(e.Calls[i].Run)
		switch {
		case run == nil:
		case !s.due(run):
			until = max(until, run.Index().Due)
		default:
			until = max(until, s.runNeeded(run))
		}
	}
	return until
}

// stays says for how long an effect or report stays, for a row that is of use beside it: one
// that is due and not gone yet goes with the next purge.
func (s *step) stays(key string) Millis {
	rec, _ := s.must(key)
	if rec == nil {
		return 0
	}
	due := rec.Index().Due
	switch {
	case due == 0:
		return s.later()
	case due > s.now:
		return due
	}
	return s.now + 1
}

// keep makes a row due again at a later time.
func (s *step) keep(rec Record, until Millis) {
	switch rec := rec.(type) {
	case *Run:
		run := s.editRun(rec)
		run.Keep = until
		s.superseder(run)
	case *Effect:
		s.editEffect(rec).Keep = until
	case *Inbound:
		s.editInbound(rec).Keep = until
	case *Reference:
		ref := *rec
		ref.Keep = until
		s.put(&ref)
	}
}

package fence

import "github.com/fencedrun/fencedrun/internal/sabotage"

// What a job's run was before: rules S4.1 to S4.5.

// prepare returns the record that the run would go on with, which may be changed, or a verdict
// when what is known of the run settles the matter.
func (b *begin) prepare() (*Run, *BeginVerdict) {
	q, run := b.q, b.stored
	if other := q.Elsewhere; other != nil {
		// The run ended or was cancelled on another conversation (rule S4.5). A record here is
		// one of an earlier generation.
		past := *other
		if run != nil {
			past.Generation = max(past.Generation, run.Generation)
			past.Delivery.Number = max(past.Delivery.Number, run.Delivery.Number)
		}
		return b.generation(&past, "on another conversation"), nil
	}
	if run == nil {
		run = &Run{Key: q.Run, Generation: 1, State: RunActive, Retention: b.Retention}
		b.put(run)
		return run, nil
	}
	sameDigest := run.Digest == q.Digest
	switch {
	case run.State == RunCancelled && !b.isOff(sabotage.CancelForgotten):
		if run.FirstSeq == 0 && run.Digest == "" {
			// Cancelled before it began, by way of the directory (rule S4.4).
			verdict := b.bind(b.editRun(run))
			return nil, &verdict
		}
		if sameDigest {
			verdict := b.refused(&Refusal{Reason: ReasonCancelled})
			return nil, &verdict
		}
		return b.generation(run, "another payload"), nil
	case run.Finished() && sameDigest && b.isOff(sabotage.FinishedRunsAgain):
		return b.generation(run, "again"), nil
	case run.Finished() && !sameDigest && !b.isOff(sabotage.DigestIgnored):
		return b.generation(run, "another payload"), nil
	case run.Finished(), run.State == RunEnded && b.isOff(sabotage.DiscardedIsFinal):
		b.event(Event{Kind: EventFinishedAgain, Run: q.Run, Delivery: run.Delivery.Number})
		return nil, &BeginVerdict{Finished: true, Run: run}
	}
	next := b.editRun(run)
	switch {
	case run.State == RunEnded:
		if run.End == EndDiscarded {
			next.Grants++ // rule S5.6
		}
		b.edited(next)
		b.event(Event{Kind: EventReopened, Run: q.Run, Delivery: run.Delivery.Number, Text: string(run.End)})
	case !sameDigest:
		b.edited(next)
		b.event(Event{Kind: EventDigestChanged, Run: q.Run, Delivery: run.Delivery.Number})
	}
	return next, nil
}

// edited notes the payload that run goes on with, and from which delivery on if it is another
// than before: what an earlier one wrote does not finish it (rule S4.2).
func (b *begin) edited(run *Run) {
	if run.Digest != b.q.Digest && !b.isOff(sabotage.EditIsHandled) {
		run.Edited = run.Delivery.Number + 1
	}
	run.Digest = b.q.Digest
}

// generation starts the run anew for other work under the same id. Its delivery numbers go on
// (rule S3.1).
func (b *begin) generation(past *Run, text string) *Run {
	run := &Run{
		Key: b.q.Run, Generation: past.Generation + 1, State: RunActive, Retention: b.Retention,
		Delivery: DeliveryID{Number: past.Delivery.Number},
	}
	b.put(run)
	b.event(Event{Kind: EventNewGeneration, Run: run.Key, Delivery: run.Delivery.Number, Text: text})
	return run
}

// buried reports whether the directory holds a tombstone instead of the run's conversation: it
// was cancelled before it began, or after its entry was lost.
func (b *begin) buried() bool {
	home := b.view.Home
	return home.Found && home.Where == ""
}

// bind turns a tombstone into the cancelled run it was meant for: the first that it meets. It
// holds for that payload only, and goes with retention (rule S4.4).
func (b *begin) bind(run *Run) BeginVerdict {
	q := b.q
	b.change.Events = b.change.Events[:b.told]
	run.State, run.End, run.Parked, run.Waits, run.TouchedAt = RunCancelled, "", "", nil, b.now
	run.Digest, run.Mode, run.QueueName, run.Inbound = q.Digest, q.Mode, q.QueueName, q.Inbound
	if run.FirstSeq == 0 {
		run.Order = q.Order
	}
	if b.buried() {
		run.CancelBy, run.CancelWhy = b.view.Home.Tombstone.By, b.view.Home.Tombstone.Why
	}
	b.unseat(q.Run)
	b.home()
	b.event(Event{Kind: EventTombstoneBound, Run: q.Run, Delivery: run.Delivery.Number})
	return b.refused(&Refusal{Reason: ReasonCancelled})
}

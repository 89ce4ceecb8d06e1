package sim

import (
	"context"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

// These oracles look at a single moment: an effect's function is entered, a handler is
// entered, a delivery has ended. What they compare with was written down by the world when it
// happened; the ledger is asked only where the rule is about the ledger.

// landing is an effect of which a worker was told how it ended.
type landing struct {
	h    *hand
	s    *send
	step int
}

// wait is what a refused run has to wait for.
type wait struct {
	idem     string
	deadline fence.Millis
}

// history is the ledger's own view of the conversation.
func (w *World) history() (runs.History, bool) {
	hist, err := w.look().History(context.Background(), "c")
	if err != nil {
		w.fail("ledger", "history: %v", err)
		return hist, false
	}
	return hist, true
}

// steady reports whether nothing was written since t's own last write, and no time passed: the
// ledger still is as t's decision left it.
func (w *World) steady(t *task) bool {
	return w.db.applies == t.applied && w.now-t.storedAt <= 3*millisecond
}

// truthTellingClocks: the workers' clocks do not jump or drift in this world.
func (w *World) goodClocks() bool {
	return !w.on.Has(ClockStep)
}

// alive returns the deliveries whose lease runs. One that was renewed just now may have
// lapsed when the decision was made, and is left out; and so is one that had lapsed: the ledger
// believes that for one lease time.
func (w *World) alive(v fence.View) []fence.Seat {
	var seats []fence.Seat
	for _, seat := range v.Head.Seats {
		until := v.Leases[fence.LeaseID{Run: fence.RunRow(seat.Run), Nonce: seat.Delivery.Nonce}]
		if until > v.Now && until < v.Now+29_900 && (w.cfg.Strict || !slices.Contains(w.revived, seat.Delivery.Nonce)) {
			seats = append(seats, seat)
		}
	}
	return seats
}

// granted is called when an effect's function is entered: is it entitled to?
func (w *World) granted(h *hand, s *send, call *runs.Call) {
	s.idem, s.fence = call.IdempotencyKey, call.Fence
	if slices.Contains(w.tally.fences, call.Fence) {
		w.fail("fence", "fence number %d was handed out twice, to %s", call.Fence, s)
	}
	w.tally.fences = append(w.tally.fences, call.Fence)
	t := h.t
	s.claimed = t.stored
	w.unland(s)
	if !t.durable {
		w.fail("durable", "%s is called although its claim is not durable", s)
	}
	if limit := 3 + w.presses; w.refusals[s.idem] >= limit && w.tally.Lost == 0 {
		w.fail("exhausted", "%s is called again after the provider refused it %d times", s, w.refusals[s.idem])
	}
	w.freshView(h, s)
	if h.conv != "c" {
		return
	}
	id, _ := key.EffectOf(s.idem)
	v, ok := w.peek(fence.EffectRow(id), w.runRow(h.j))
	e, _ := v.Rows[fence.EffectRow(id)].(*fence.Effect)
	if !ok || e == nil {
		w.fail("grant", "%s is called with no claim in the ledger", s)
		return
	}
	var mine *fence.Call
	for c := range e.Calls {
		other := &e.Calls[c]
		switch {
		case other.Fence == call.Fence:
			mine = other
		case other.State == fence.Committed && w.cfg.Provider != "honours":
			w.fail("grant", "%s is called although call %d is committed", s, other.Number)
		case other.State == fence.Pending:
			w.fail("grant", "two calls of %s are pending at once", s)
		}
	}
	if mine == nil {
		w.fail("grant", "%s is called under fence number %d, which no call in the ledger has", s, call.Fence)
		return
	}
	if w.goodClocks() {
		if mine.State != fence.Pending && mine.ResolvedBy == "" {
			w.fail("grant", "%s is called although its claim is %s", s, mine.State)
		}
		if left := (mine.Deadline - v.Now).Duration(); left < runsTimeout(h) && w.steady(t) {
			w.fail("late start", "%s is called with %v left until its deadline", s, left)
		}
	}
	if w.steady(t) {
		w.mayWrite(h, s, mine, v)
	}
}

// mayWrite checks rule S5.2 as of the claim.
func (w *World) mayWrite(h *hand, s *send, call *fence.Call, v fence.View) {
	run, _ := v.Rows[w.runRow(h.j)].(*fence.Run)
	if run == nil {
		w.fail("no run", "%s is called by %s, which the ledger does not know", s, h.j.id)
		return
	}
	switch {
	case run.State != fence.RunActive:
		w.fail("not active", "%s is called by %s, which is %s", s, h.j.id, run.State)
	case run.Delivery != call.Delivery:
		w.fail("stale delivery", "%s is called by delivery %d of %s although %d is the latest", s, call.Delivery.Number, h.j.id, run.Delivery.Number)
	}
	for _, other := range w.begins {
		if w.cfg.Mode == runs.Exclusive && w.tally.Lost == 0 && other.j != h.j && other.begun > h.begun && other.begun < h.t.stored {
			w.fail("used lease", "%s is called by %s although %s has held the conversation since", s, h.j.id, other.j.id)
		}
	}
	for _, seat := range w.alive(v) {
		if seat.Run == run.Key {
			continue
		}
		if w.cfg.Mode == runs.Exclusive {
			w.fail("not exclusive", "%s is called by %s while %s holds the conversation", s, h.j.id, seat.Run.ID)
		} else if seat.Order.Newer(run.Order) {
			w.fail("superseded", "%s is called by %s although the newer %s is at work", s, h.j.id, seat.Run.ID)
		}
	}
}

// freshView checks rule S5.3: nothing landed between the caller's last look and its claim.
func (w *World) freshView(h *hand, s *send) {
	if w.tally.Lost > 0 || h.conv != "c" {
		return
	}
	for i := range w.landings {
		l := &w.landings[i]
		if l.s.echoed || l.step <= h.view || l.step >= h.t.stored || l.h != nil && l.h.run == h.run {
			continue
		}
		// What was replayed to it, or what it made as well, under a key that the provider honours,
		// is no news to it.
		same := func(r *send) bool { return r.intent == l.s.intent && r.name == l.s.name }
		if slices.ContainsFunc(*h.replays, same) || slices.ContainsFunc(h.executed, same) {
			continue
		}
		if l.s.intent == s.intent && l.s.name == s.name {
			continue
		}
		w.fail("stale view", "%s is claimed although %s landed after the caller looked", s, l.s)
	}
}

// entered is called when a handler is entered.
func (w *World) entered(h *hand) {
	j, t := h.j, h.t
	h.view = w.steps
	if h.conv != "c" {
		j.handled = append(j.handled, h.digest)
		w.elsewhere(h)
		return
	}
	if j.h.Payload {
		h.view = j.stampedAt
	}
	if w.tally.Lost == 0 {
		if slices.Contains(j.entries, h.delivery) {
			w.fail("delivery number", "delivery %d of %s is entered twice", h.delivery, j.id)
		}
		if h.delivery > int64(j.calls+j.overlaps) && !(w.adapted && w.asynq) { // asynq's adapter delivers again by itself
			w.fail("delivery number", "%s is entered as delivery %d and was delivered %d times", j.id, h.delivery, j.calls)
		}
		if j.succeeded == h.digest && j.succeeded != "" && t.stored > j.succeededAt {
			w.fail("finished", "%s is entered although it ended with success before", j.id)
		}
	}
	j.entries = append(j.entries, h.delivery)
	j.handled = append(j.handled, h.digest)
	if j.cancelled != "" && !j.edited && !j.reused && t.stored > j.cancelStep {
		w.fail("cancelled", "%s is entered although it was cancelled before", j.id)
	}
	if j.h.ReplayOnly && h.delivery > 1 && !j.edited && !j.reused {
		for _, l := range w.landings {
			if l.h != nil && l.h.j == j && l.step < t.stored && l.s.done {
				w.fail("replay only", "%s wrote before and is entered again", j.id)
			}
		}
	}
	h.begun = t.stored
	w.othersInside(h)
	w.begins = append(w.begins, h)
	waits := j.waits
	j.waits, j.released = nil, false
	if j.edited && j.cancelled != "" && !w.cfg.Strict {
		waits = nil // a new generation does not wait for what refused the last one
	}
	if !w.steady(t) || len(waits) == 0 && len(w.inside) < 2 {
		return
	}
	v, ok := w.peek(w.runRow(j))
	if !ok {
		return
	}
	for _, wait := range waits {
		for i := range v.Head.Unresolved {
			u := &v.Head.Unresolved[i]
			if key.IdempotencyKey(u.Effect) == wait.idem && u.State == fence.Pending && u.Deadline == wait.deadline && w.tally.Lost == 0 {
				w.fail("waits", "%s is entered although %s %s, which refused it before, is still pending", j.id, u.Intent, u.Key)
			}
		}
	}
	run, _ := v.Rows[w.runRow(j)].(*fence.Run)
	if run == nil {
		return
	}
	for _, seat := range w.alive(v) {
		if seat.Run.ID != j.id && w.cfg.Mode != runs.Exclusive && seat.Order.Newer(run.Order) {
			w.fail("superseded", "%s is entered although the newer %s is at work", j.id, seat.Run.ID)
		}
	}
}

// elsewhere checks rule S4.5: a run that is active on one conversation is not entered on another.
func (w *World) elsewhere(h *hand) {
	hist, ok := w.history()
	if !ok || w.tally.Lost > 0 {
		return
	}
	for _, r := range hist.Runs {
		if r.Key.ID == h.j.id && r.State == fence.RunActive {
			w.fail("elsewhere", "%s is entered on another conversation although it is active on this one", h.j.id)
		}
	}
}

// othersInside checks rule S9.4: in mode exclusive nobody is at work who has not been told to
// stop.
func (w *World) othersInside(h *hand) {
	kept := w.inside[:0]
	for _, other := range w.inside {
		if other.over || other.t.p.dead {
			continue
		}
		kept = append(kept, other)
		if w.cfg.Mode != runs.Exclusive || !w.steady(h.t) || !w.goodClocks() || other.j == h.j || other.j.exempt || other.delivery != slices.Max(other.j.entries) || other.t.p.pausedUntil > w.now || w.tally.Lost > 0 {
			continue
		}
		if other.begun < other.j.overtaken {
			continue // as when a later handler of its job was entered
		}
		if other.ctx.Err() == nil && other.t.p.pausedUntil < w.now-100*millisecond && other.conv == h.conv {
			w.fail("two inside", "%s is entered while %s is at work and was not told to stop", h.j.id, other.j.id)
		}
	}
	kept = append(kept, h)
	w.inside = kept
}

// concluded is called when the library has given its verdict on a delivery.
func (w *World) concluded(t *task, j *job, h *hand, digest string, v runs.Verdict) {
	if h != nil {
		h.over = true
	}
	if w.cfg.User != nil {
		return
	}
	if h == nil && j.h.ReplayOnly && v.Reason != fence.ReasonBusy && !j.leaseLost {
		j.overtaken = w.steps // a delivery that need not be entered took over all the same (rule S4.7)
	}
	w.blindly(j, h, v)
	w.undone(j, v)
	if v.Action == runs.ActionComeBack && h != nil && j.released {
		j.waits = h.waits
	}
	if j.conv() == "c" && w.steady(t) {
		w.recorded(j, h, v)
	}
	if v.Action != runs.ActionDone {
		return
	}
	if v.Reason == fence.ReasonReplayOnly && !slices.Contains(j.handled, digest) && w.tally.Lost == 0 {
		w.fail("unhandled", "%s is acknowledged because it wrote, and this payload was never handled", j.id)
	}
	if v.Reason == fence.ReasonFinished {
		if !slices.Contains(j.handled, digest) && w.tally.Lost == 0 {
			w.fail("unhandled", "%s is acknowledged as finished and this payload was never handled", j.id)
		}
		return
	}
	j.succeeded, j.succeededAt = digest, t.stored
	if j.conv() != "c" {
		return
	}
	open := w.prov.unanswered()>>j.msg&1 == 1
	if h != nil && open && !j.h.Ignores && !j.h.NoInbound && !h.swallowed && !j.h.Alone && !w.excused(j.msg) && !w.isLate(j.msg) && !j.reused {
		w.fail("done unanswered", "%s ended with success and %s is unanswered", j.id, messageID(j.msg))
	}
	if !w.steady(t) {
		return
	}
	view, ok := w.peek()
	if !ok {
		return
	}
	for i := range view.Head.Unresolved {
		u := &view.Head.Unresolved[i]
		if u.Run.ID == j.id || slices.Contains(u.Answers, messageID(j.msg)) && open && !w.excused(j.msg) {
			w.fail("unfinished", "%s ended with success although %s %s is %s", j.id, u.Intent, u.Key, u.State)
		}
	}
}

func (w *World) isLate(msg int) bool {
	return slices.ContainsFunc(w.lates, func(s *send) bool { return s.real>>msg&1 == 1 })
}

// recorded checks what a delivery's end left in the ledger.
func (w *World) recorded(j *job, h *hand, v runs.Verdict) {
	// One whose Begin came too late has begun, and leaves its run and its lease (rule S9.4).
	if h == nil && len(j.entries) == 0 && v.Action == runs.ActionComeBack && !j.leaseLost && w.storeHits == 0 && j.calls == 1 {
		if view, ok := w.peek(w.runRow(j)); ok && view.Rows[w.runRow(j)] != nil && !j.reused && !j.exempt && w.tally.Lost == 0 {
			w.fail("left behind", "%s was refused before it began and left a run behind", j.id)
		}
	}
	if h == nil || v.Action != runs.ActionDone && v.Action != runs.ActionDiscard || j.h.NoInbound {
		return
	}
	row := fence.InboundRow(messageID(j.msg))
	view, ok := w.peek(row)
	in, _ := view.Rows[row].(*fence.Inbound)
	if !ok || in == nil || in.Closed() || in.Unanswered {
		return
	}
	for i := range view.Head.Unresolved {
		if slices.Contains(view.Head.Unresolved[i].Answers, in.ID) {
			return
		}
	}
	if run, _ := view.Rows[w.runRow(j)].(*fence.Run); run == nil || run.State == fence.RunEnded {
		w.fail("silently", "%s ended while %s is open, and nothing says so", j.id, in.ID)
	}
}

// rightlySuperseded: a run is superseded by a newer one of the same source only.
func (w *World) rightlySuperseded(j *job) bool {
	return slices.ContainsFunc(w.jobs, func(o *job) bool { return o != j && o.order.Newer(j.order) })
}

// blindly checks that a handler which never looks is stopped: refused twice for the same, its
// job is parked (rule S5, catching up).
func (w *World) blindly(j *job, h *hand, v runs.Verdict) {
	if h == nil || v.Action != runs.ActionRetry || v.Reason != fence.ReasonConversationChanged || h.refusal == "" || h.refusal != j.refusal {
		j.blind = 0
	} else {
		j.blind++
	}
	j.refusal = ""
	if h != nil {
		j.refusal = h.refusal
	}
	if j.blind >= 2 && w.tally.Lost == 0 && w.storeHits == 0 {
		w.fail("blind", "%s is refused for the same a third time and was not stopped", j.id)
	}
}

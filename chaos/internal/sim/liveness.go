package sim

import (
	"slices"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// idle: when nothing can happen any more, no job waits or is at work, and nobody holds the
// conversation.
func (w *World) idle() {
	for _, j := range w.jobs {
		if j.state <= running {
			w.fail("busy", "%s is %s for ever: %s", j.id, j.state, w.busy())
		}
	}
	v, ok := w.peek()
	if !ok {
		return
	}
	for _, seat := range v.Head.Seats {
		if until := v.Leases[fence.LeaseID{Run: fence.RunRow(seat.Run), Nonce: seat.Delivery.Nonce}]; until > v.Now {
			w.fail("busy", "%s still holds the conversation after everything has ended", seat.Run.ID)
		}
	}
}

// undone checks the end of rule S4.6: a run that answered its own message is not superseded for
// good by a newer one that wrote, or what it does after its answer would be left undone and
// nobody would know.
func (w *World) undone(j *job, v runs.Verdict) {
	if v.Action != runs.ActionDrop || j.h.NoInbound || j.exempt || j.reused || w.tally.Lost > 0 {
		return
	}
	row := fence.InboundRow(messageID(j.msg))
	view, ok := w.peek(w.runRow(j), row)
	run, _ := view.Rows[w.runRow(j)].(*fence.Run)
	in, _ := view.Rows[row].(*fence.Inbound)
	if !ok || run == nil || in == nil || run.State != fence.RunEnded || run.End != fence.EndSuperseded {
		return
	}
	if slices.ContainsFunc(in.Answered, func(a fence.Answer) bool { return a.Run == run.Key && !a.Report }) {
		w.fail("undone", "%s answered %s and is superseded for good: what it does after its answer is left undone", j.id, in.ID)
	}
}

package cases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// A job outlives its queue's idea of how long jobs take, and a further copy starts every
// interval while the first is healthy: a rescuer, a visibility timeout, a stalled-job check.
//
// https://github.com/riverqueue/river/issues/1302
// https://github.com/celery/celery/issues/5935

// The job is shown again every 300 s and takes 1000 s. Every copy refunds at +50 s and replies at
// the end. The oldest copy refunded; the newest one replies.
func shownAgainAndAgain(w *world) {
	theJob := job("J", 1, "m1")
	refund := runs.Effect{Intent: "refund", Key: runs.Key("order", "A"), Params: map[string]any{"amount": "3.92"}}
	answer := reply("Your refund is on its way.", "m1")

	var copies []*delivery
	for i := range 4 {
		begins := time.Duration(i) * 300 * time.Second
		w.at(begins)
		d := w.deliver(w.worker("W"), theJob).must()
		copies = append(copies, d)
		w.at(begins + 50*time.Second)
		w.ok(d.once(refund)) // done by the first, replayed to the others
		w.calls("refund", 1)

		if i == 0 {
			continue
		}
		// The copy before has learned by now, from a heartbeat, that it is over.
		before := copies[i-1]
		if cause := context.Cause(before.ctx); !errors.Is(cause, runs.ErrSuperseded) {
			w.Errorf("copy %d works on, its ctx is not cancelled: %v", i, cause)
		}
	}
	if at := w.prov.saw("refund")[0].at; at != 50*time.Second {
		w.Errorf("the refund was made at %v, want t50", at)
	}

	for i, d := range copies {
		w.at(time.Duration(i)*300*time.Second + 1000*time.Second)
		if i < 3 {
			// It ignored its ctx and worked to the end. It may not write, and the queue is
			// told to stop it and not to retry: the job belongs to a newer delivery.
			err := d.once(answer)
			w.refused(err, runs.ErrSuperseded)
			w.verdict(d.end(err), runs.ActionStale, fence.ReasonSuperseded)
			w.calls("reply", 0)
			continue
		}
		w.ok(d.once(answer))
		w.verdict(d.end(nil), runs.ActionDone, "")
	}
	w.calls("refund", 1)
	w.calls("reply", 1)
	w.runEnded("J", fence.EndSuccess)
	w.messages(map[string]string{"m1": answered})

	// And once more, when all is done.
	w.at(1901 * time.Second)
	w.notEntered(w.deliver(w.worker("W"), theJob), runs.ActionDone, fence.ReasonFinished)
	w.calls("reply", 1)
}

func TestF03FourLiveCopiesRefundOnceAndReplyOnce(t *testing.T) { replay(t, shownAgainAndAgain) }

// The rescuer worked from an old snapshot: it moves a job back to "available" that has completed
// in the meantime.
func rescuedAfterItWasDone(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")
	d1 := w.deliver(w1, theJob).must()
	w.at(1000 * time.Second)
	w.ok(d1.once(reply("Hello!", "m1")))
	w.verdict(d1.end(nil), runs.ActionDone, "")

	w.at(1001 * time.Second)
	w.notEntered(w.deliver(w2, theJob), runs.ActionDone, fence.ReasonFinished)
	if told := w.told(fence.EventFinishedAgain); len(told) != 1 {
		w.Errorf("a finished job was shown again, and observers were told %d times", len(told))
	}
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF03RescuedAfterCompletionIsNotRunAgain(t *testing.T) { replay(t, rescuedAfterItWasDone) }

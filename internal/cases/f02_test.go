package cases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// A queue gives a job to a second worker while the first handler still runs: its timeout passed,
// or it is shutting down and its grace did. The first handler is in a model call that ignores
// its ctx, carries on, and writes. Now there are two live deliveries of one job.
//
// https://github.com/hibiken/asynq/issues/642
// https://github.com/hibiken/asynq/issues/688

// The task's timeout passes at t30 and the queue retries. The old handler comes back from its
// model call at t33, one second before the new one.
func timeoutThenRetry(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")
	answer := reply("Hello!", "m1")

	deadline, cancel := context.WithTimeoutCause(w.Context(), 30*time.Second, context.DeadlineExceeded)
	defer cancel()
	d1 := w.deliverIn(deadline, w1, theJob).must()

	w.at(31 * time.Second)
	d2 := w.deliver(w2, theJob).must()

	w.at(33 * time.Second)
	// A handler that uses its own ctx makes no claim at all: the ctx is done.
	if err := d1.once(answer); !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("an effect asked for under a dead ctx: got %v, want the deadline", err)
	}
	// One that ignores it, as this model client did, is told that its time is over.
	stale := w.refused(d1.do(func(ctx context.Context) error { return w.once(context.WithoutCancel(ctx), answer) }), runs.ErrSuperseded)
	if !stale.Refusal.Stale {
		w.Errorf("superseded by another job? It is a later delivery of the same: %+v", stale)
	}
	w.calls("reply", 0)

	w.at(34 * time.Second)
	w.ok(d2.once(answer))
	w.verdict(d1.end(nil), runs.ActionStale, fence.ReasonSuperseded)
	w.verdict(d2.end(nil), runs.ActionDone, "")

	w.calls("reply", 1)
	w.runEnded("J", fence.EndSuccess)
	w.messages(map[string]string{"m1": answered})
}

func TestF02TimeoutThenRetryRepliesOnce(t *testing.T) { replay(t, timeoutThenRetry) }

// The old handler fails with an error of its own and has learned nothing: its heartbeats ended
// with its ctx. Some queues apply whatever it returns to the delivery that is at work now, so the
// verdict is to leave the queue's record alone, and not that error.
func staleFailure(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")
	deadline, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	d1 := w.deliverIn(deadline, w1, theJob).must()
	w.at(31 * time.Second)
	d2 := w.deliver(w2, theJob).must()
	w.at(33 * time.Second)
	w.verdict(d1.end(errors.New("model: context deadline exceeded")), runs.ActionStale, fence.ReasonSuperseded)
	w.ok(d2.once(reply("Hello!", "m1")))
	w.verdict(d2.end(nil), runs.ActionDone, "")
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF02AStaleDeliverysErrorIsNotTheJobs(t *testing.T) { replay(t, staleFailure) }

// Shutdown: the grace of 8 s passes and the task goes back to the queue first; the old handler's
// ctx is cancelled only afterwards, so for a moment it is perfectly healthy. The retry count has
// not moved, so nothing in the task tells the two deliveries apart. Both ask within 5 ms.
func shutdownRequeues(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1") // the very same task both times
	answer := reply("Hello!", "m1")

	d1 := w.deliver(w1, theJob).must()
	w.at(8010 * time.Millisecond)
	d2 := w.deliver(w2, theJob).must()
	if first, second := d1.run.Delivery(), d2.run.Delivery(); first != 1 || second != 2 {
		w.Errorf("the ledger numbers the deliveries %d and %d, want 1 and 2", first, second)
	}

	w.at(8012 * time.Millisecond)
	if err := d1.ctx.Err(); err != nil {
		w.Fatalf("the story wants W1 to know nothing yet: %v", err)
	}
	w.refused(d1.once(answer), runs.ErrSuperseded)
	w.calls("reply", 0)
	if !errors.Is(context.Cause(d1.ctx), runs.ErrSuperseded) {
		w.Errorf("W1's handler was refused, and its ctx goes on: %v", context.Cause(d1.ctx))
	}

	w.at(8015 * time.Millisecond)
	w.ok(d2.once(answer))
	w.calls("reply", 1)

	// What was done is replayed to anybody, also to the stale one; more is refused.
	w.ok(d1.once(answer))
	w.refused(d1.once(runs.Effect{Intent: "tag", Key: runs.Key("tag", "billing")}), runs.ErrSuperseded)

	// The old handler returns what it likes: the queue's record is the newer delivery's.
	w.verdict(d1.end(errors.New("shutting down")), runs.ActionStale, fence.ReasonSuperseded)
	w.verdict(d2.end(nil), runs.ActionDone, "")

	w.calls("reply", 1)
	w.calls("tag", 0)
	w.messages(map[string]string{"m1": answered})
}

func TestF02ShutdownRequeueRepliesOnce(t *testing.T) { replay(t, shutdownRequeues) }

// The same, and both ask at the very same moment: whoever comes first, there is one reply.
func bothAskAtOnce(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")
	answer := reply("Hello!", "m1")
	d1 := w.deliver(w1, theJob).must()
	w.at(8010 * time.Millisecond)
	d2 := w.deliver(w2, theJob).must()

	w.at(8012 * time.Millisecond)
	atProvider := w.prov.hang("reply", succeed)
	s1, s2 := d1.start(w.asking(answer)), d2.start(w.asking(answer))
	err1 := d1.wait(s1)
	atProvider.open()
	w.ok(d2.wait(s2))
	if !errors.Is(err1, runs.ErrSuperseded) && !errors.Is(err1, runs.ErrInFlight) {
		w.Errorf("the old delivery: %v", err1)
	}
	w.verdict(d1.end(err1), runs.ActionStale, fence.ReasonSuperseded)
	w.verdict(d2.end(nil), runs.ActionDone, "")
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF02BothDeliveriesAtTheSameMomentReplyOnce(t *testing.T) { replay(t, bothAskAtOnce) }

// W1 is already inside the provider's call when d2 begins. d2 never starts a second call; d1 may
// record how its own ended, although it is stale, because its claim is the live one.
func redeliveredInsideTheCall(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")
	answer := reply("Hello!", "m1")

	atProvider := w.prov.hang("reply", succeed)
	d1 := w.deliver(w1, theJob).must()
	sending := d1.start(w.asking(answer))
	atProvider.wait()

	w.at(8 * time.Second)
	d2 := w.deliver(w2, theJob).must()
	flying := w.refused(d2.once(answer), runs.ErrInFlight)
	if flying.RetryAfter <= 0 {
		w.Errorf("in flight, and until when? %+v", flying)
	}
	w.verdict(d2.end(flying), runs.ActionComeBack, fence.ReasonInFlight)

	// While the call is under way there is nothing to do for d3, and no model to pay for.
	w.at(10 * time.Second)
	w.notEntered(w.deliver(w2, theJob), runs.ActionComeBack, fence.ReasonInFlight)

	w.at(12 * time.Second)
	atProvider.open()
	w.ok(d1.wait(sending))
	w.state(answer, fence.Committed)
	w.verdict(d1.end(nil), runs.ActionStale, fence.ReasonSuperseded)

	w.at(15 * time.Second)
	d4 := w.deliver(w2, theJob).must()
	w.ok(d4.once(answer)) // a replay
	w.verdict(d4.end(nil), runs.ActionDone, "")
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF02RedeliveryDuringTheCallNeverStartsASecond(t *testing.T) {
	replay(t, redeliveredInsideTheCall)
}

// The same, and d2 waits for the outcome instead of coming back.
func waitsForTheOtherDelivery(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")
	answer := reply("Hello!", "m1")
	patient := answer
	patient.Wait = 30 * time.Second

	atProvider := w.prov.hang("reply", succeed)
	d1 := w.deliver(w1, theJob).must()
	sending := d1.start(w.asking(answer))
	atProvider.wait()

	w.at(8 * time.Second)
	d2 := w.deliver(w2, theJob).must()
	waiting := d2.start(w.asking(patient))
	w.at(12 * time.Second)
	select {
	case <-waiting.done:
		w.Fatalf("d2 did not wait: %v", waiting.err)
	default:
	}
	atProvider.open()
	w.ok(d1.wait(sending))
	w.ok(d2.wait(waiting))
	if took := w.since() - 12*time.Second; took > time.Second {
		w.Errorf("d2 learned of the outcome %v after it", took)
	}
	w.verdict(d2.end(nil), runs.ActionDone, "")
	w.verdict(d1.end(nil), runs.ActionStale, fence.ReasonEnded) // d2 has ended it
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF02RedeliveryCanWaitForTheCallUnderWay(t *testing.T) { replay(t, waitsForTheOtherDelivery) }

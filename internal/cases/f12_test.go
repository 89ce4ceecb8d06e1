package cases

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// SIGTERM, a client that hangs up or a deadline cancels the ctx while an effect is succeeding.
// The final write uses that ctx and fails: the record stays pending, or the lock stays held,
// although everything went well.
//
// https://github.com/blnkfinance/blnk/issues/354
// https://github.com/kalbasit/ncps/pull/913

// ending is a queue's ctx that ends, by cancellation or by deadline, when the story says so.
type ending struct {
	name  string
	ctx   context.Context
	cause error
	now   func()                // the ctx is done when it returns
	in    func(d time.Duration) // the ctx is done d after it returns
}

func cancelled(w *world) *ending {
	ctx, cancel := context.WithCancel(traced(w))
	return &ending{
		name: "cancel", ctx: ctx, cause: context.Canceled, now: cancel,
		in: func(d time.Duration) { time.AfterFunc(d, cancel) },
	}
}

func expired(w *world) *ending {
	const when = 5 * time.Second // well within the settle's bound
	end := time.Now().Add(when)
	ctx, cancel := context.WithDeadline(traced(w), end)
	w.Cleanup(cancel)
	return &ending{
		name: "deadline", ctx: ctx, cause: context.DeadlineExceeded,
		now: func() { <-ctx.Done() },
		in:  func(d time.Duration) { time.Sleep(time.Until(end) - d) },
	}
}

func traced(w *world) context.Context {
	return context.WithValue(w.Context(), traceKey{}, "trace-1")
}

// endingStory is told for both kinds of ending.
type endingStory func(w *world, e *ending)

func replayEndings(t *testing.T, s endingStory) {
	t.Run("cancel", func(t *testing.T) { replay(t, func(w *world) { s(w, cancelled(w)) }) })
	t.Run("deadline", func(t *testing.T) { replay(t, func(w *world) { s(w, expired(w)) }) })
}

var farewell = reply("Bye!", "m1")

// once that returns a value, as the user gets it.
func (d *delivery) farewell() (string, error) {
	d.w.Helper()
	var value string
	err := d.do(func(ctx context.Context) (err error) {
		value, err = replies.Once(ctx, farewell.Key, func(ctx context.Context, call *runs.Call) (string, error) {
			if err := d.w.prov.do(ctx, call, farewell); err != nil {
				return "", err
			}
			return "msg-1", nil
		}, runs.With{Summary: farewell.Summary, Answers: farewell.Answers})
		return err
	})
	return value, err
}

// done insists that the effect was done and written down: nil error, the value, committed; that
// the effect's own ctx and the ledger's carried the trace id; and that the job is finished.
func (w *world) done(d *delivery, value string, err error) {
	w.Helper()
	w.ok(err)
	if value != "msg-1" {
		w.Errorf("the value is %q", value)
	}
	synctest.Wait() // a ctx's children end a moment after it
	if d.ctx.Err() == nil {
		w.Errorf("the story wants the handler's ctx done by now")
	}
	w.state(farewell, fence.Committed)
	if s := w.calls("reply", 1)[0]; s.traceID != "trace-1" {
		w.Errorf("the effect's ctx carries the trace id %v", s.traceID)
	}
	if told := w.told(fence.EventCommitted); len(told) != 1 || told[0].trace != "trace-1" {
		w.Errorf("the record's ctx should carry the trace id: %+v", told)
	}
	w.verdict(d.end(nil), runs.ActionDone, "")
	w.runEnded("J", fence.EndSuccess)
	if left := w.leases(); len(left) > 0 {
		w.Errorf("still held: %+v", left)
	}
	w.notEntered(w.deliver(d.by, d.job), runs.ActionDone, fence.ReasonFinished)
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

// (a) The ctx ends before the effect is asked for: no claim, no effect, nothing to clean up.
func endsBeforeOnce(w *world, e *ending) {
	d := w.deliverIn(e.ctx, w.worker("W1"), job("J", 1, "m1")).must()
	e.now()
	synctest.Wait()
	_, err := d.farewell()
	if !errors.Is(err, e.cause) {
		w.Errorf("asked under a dead ctx: %v, want %v", err, e.cause)
	}
	w.calls("reply", 0)
	w.state(farewell, "")
	w.verdict(d.end(err), runs.ActionReturn, "")
	if left := w.leases(); len(left) > 0 {
		w.Errorf("still held: %+v", left)
	}
	w.messages(map[string]string{"m1": open})
}

func TestF12EndedBeforeOnceClaimsNothing(t *testing.T) { replayEndings(t, endsBeforeOnce) }

// (b) The ctx ends inside the effect, just before it returns success. The effect's own ctx goes
// on: a send under way must not become an unknown.
func endsInsideTheEffect(w *world, e *ending) {
	d := w.deliverIn(e.ctx, w.worker("W1"), job("J", 1, "m1")).must()
	var inside error
	w.prov.next("reply", func(ctx context.Context, s *sent) error {
		e.now()
		inside = ctx.Err()
		if _, bounded := ctx.Deadline(); !bounded {
			w.Errorf("the effect's ctx has no deadline of its own")
		}
		return succeed(ctx, s)
	})
	value, err := d.farewell()
	if inside != nil {
		w.Errorf("the effect's ctx ended with the handler's: %v", inside)
	}
	w.done(d, value, err)
}

func TestF12EndedInsideTheEffectIsRecorded(t *testing.T) { replayEndings(t, endsInsideTheEffect) }

// (c) The ctx ends after the effect returned and before its success is written.
func endsBeforeSettle(w *world, e *ending) {
	w1 := w.worker("W1")
	d := w.deliverIn(e.ctx, w1, job("J", 1, "m1")).must()
	w.prov.next("reply", doing(func() {
		w1.proc.beforeNextWrite(func(ctx context.Context) error {
			e.now()
			if ctx.Value(traceKey{}) != "trace-1" {
				w.Errorf("the settle's ctx lost the trace id")
			}
			return ctx.Err()
		})
	}, succeed))
	value, err := d.farewell()
	w.done(d, value, err)
}

func TestF12EndedBeforeTheSettleIsRecorded(t *testing.T) { replayEndings(t, endsBeforeSettle) }

// (d) The ctx ends 1 ms after the effect's success; writing that takes 5 ms.
func endsDuringSettle(w *world, e *ending) {
	w1 := w.worker("W1")
	d := w.deliverIn(e.ctx, w1, job("J", 1, "m1")).must()
	w.prov.next("reply", doing(func() {
		w1.proc.beforeNextWrite(func(ctx context.Context) error {
			slow := time.NewTimer(5 * time.Millisecond)
			defer slow.Stop()
			select {
			case <-slow.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		e.in(time.Millisecond)
	}, succeed))
	value, err := d.farewell()
	w.done(d, value, err)
}

func TestF12EndedDuringTheSettleIsRecorded(t *testing.T) { replayEndings(t, endsDuringSettle) }

// (e) The ctx has ended when the handler returns: that the run ended is written all the same.
func endsBeforeEnd(w *world, e *ending) {
	d := w.deliverIn(e.ctx, w.worker("W1"), job("J", 1, "m1")).must()
	value, err := d.farewell()
	e.now()
	synctest.Wait()
	w.done(d, value, err)
}

func TestF12EndedBeforeEndIsRecorded(t *testing.T) { replayEndings(t, endsBeforeEnd) }

// A ledger that hangs must not hold up a shutdown for longer than the settle's own bound, for
// each of the two things that are left to write: the outcome, and that the lease is given up. The
// value is not lost, and the effect ends as unknown, not as a second call.
func ledgerHangsAtShutdown(w *world, e *ending) {
	w1 := w.workerWith("W1", runs.Config{SettleTimeout: 3 * time.Second})
	w2 := w.worker("W2")
	theJob := job("J", 1, "m1")
	d := w.deliverIn(e.ctx, w1, theJob).must()
	var acted time.Duration
	w.prov.next("reply", doing(func() {
		e.now()
		w1.proc.silence(true)
		acted = w.since()
	}, succeed))
	value, err := d.farewell()
	lost := w.outcome(err, runs.OutcomeNotRecorded)
	if value != "msg-1" || lost.Recorded {
		w.Errorf("the value %q should come back with an error that says it is not recorded: %+v", value, lost)
	}
	if took := w.since() - acted; took > 3*time.Second {
		w.Errorf("the settle held up the shutdown for %v, over its bound", took)
	}
	w.verdict(d.end(err), runs.ActionRetry, fence.ReasonLedger)
	if took := w.since() - acted; took > 7*time.Second {
		w.Errorf("the shutdown took %v", took)
	}
	w1.proc.silence(false)

	again := w.deliver(w2, theJob).must()
	err = again.once(farewell)
	w.verdict(again.end(w.refused(err, runs.ErrInFlight)), runs.ActionComeBack, fence.ReasonInFlight)
	w.at(3 * time.Minute)
	again = w.deliver(w2, theJob).must()
	err = again.once(farewell)
	w.verdict(again.end(w.refused(err, runs.ErrAmbiguous)), runs.ActionComeBack, fence.ReasonAmbiguous)
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": unknown})
}

func TestF12HangingLedgerDoesNotBlockShutdown(t *testing.T) {
	replayEndings(t, ledgerHangsAtShutdown)
}

// A ledger that fails once or twice while the ctx is dead is asked again, within the bound.
func ledgerFailsOnceAtShutdown(w *world, e *ending) {
	w1 := w.worker("W1")
	d := w.deliverIn(e.ctx, w1, job("J", 1, "m1")).must()
	w.prov.next("reply", doing(func() {
		w1.proc.beforeNextWrite(func(context.Context) error {
			e.now()
			w1.proc.beforeNextWrite(func(context.Context) error { return fmt.Errorf("connection reset once more") })
			return fmt.Errorf("connection reset")
		})
	}, succeed))
	value, err := d.farewell()
	w.done(d, value, err)
}

func TestF12FailedSettleIsTriedAgainUnderADeadCtx(t *testing.T) {
	replayEndings(t, ledgerFailsOnceAtShutdown)
}

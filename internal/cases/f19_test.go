package cases

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// A background renewer keeps a lease alive for a handler that hangs, panicked, left its goroutine,
// or has already returned. Everybody else waits for a worker that is not there.
//
// https://github.com/Tencent/WeKnora/issues/3462 (a handler ignores its ctx; its slot is renewed for ever)
// https://github.com/golang/go/issues/35378 (Goexit during a panic)

// beat is the default period of heartbeats: a third of the lease of 30 s.
const beat = 10 * time.Second

// gone insists that nobody holds the conversation any more and nobody renews: a job that wants it
// for itself gets it at once, and a minute later no heartbeat has carried the old lease.
func (w *world) gone(k *worker) {
	w.Helper()
	synctest.Wait()
	left := w.since()
	if leases := w.leases(); len(leases) > 0 {
		w.Errorf("the handler is gone and the lease is still held: %+v", leases)
	}
	alone := job("alone", 0)
	alone.Mode = runs.Exclusive
	w.verdict(w.deliver(w.worker("W3"), alone).must().end(nil), runs.ActionDone, "")
	w.at(left + time.Minute)
	if late := k.proc.renewed("J", left+beat); len(late) > 0 {
		w.Errorf("the lease was renewed %d times after the handler was gone, first at %v", len(late), late[0].at)
	}
	if leases := w.leases(); len(leases) > 0 {
		w.Errorf("held again: %+v", leases)
	}
}

// working starts a job and lets it work for two heartbeats and a bit.
func working(w *world, k *worker) *delivery {
	w.Helper()
	d := w.deliver(k, job("J", 1, "m1")).must()
	w.at(25 * time.Second)
	if beats := k.proc.renewed("J", 0); len(beats) != 2 {
		w.Errorf("%d heartbeats in 25 s, want 2: this story has to begin with a healthy one", len(beats))
	}
	return d
}

// (a) The handler returns an error.
func handlerFails(w *world) {
	w1 := w.worker("W1")
	d := working(w, w1)
	boom := errors.New("boom")
	v := d.end(boom)
	w.verdict(v, runs.ActionReturn, "")
	if v.Err != boom { //nolint:errorlint // exactly as it came
		w.Errorf("the queue gets %v, want the handler's own error", v.Err)
	}
	w.gone(w1)
	w.messages(map[string]string{"m1": open})
}

func TestF19RenewalEndsWhenTheHandlerFails(t *testing.T) { replay(t, handlerFails) }

// broken insists that a delivery was left by a panic with this value, or by Goexit if it is nil.
func (w *world) broken(d *delivery, value any) {
	w.Helper()
	w.await(d.over, "the handler to be gone")
	if d.returned {
		w.Fatalf("Deliver returned %+v; a panic must pass through", d.verdict)
	}
	if d.recovered != value {
		w.Fatalf("the panic arrived as %v, want %v unchanged", d.recovered, value)
	}
}

// (b) The handler panics.
func handlerPanics(w *world) {
	w1 := w.worker("W1")
	d := working(w, w1)
	value := errors.New("index out of range")
	d.start(func(context.Context) error { panic(value) })
	w.broken(d, value)
	w.gone(w1)
	w.messages(map[string]string{"m1": open})
}

func TestF19RenewalEndsWhenTheHandlerPanics(t *testing.T) { replay(t, handlerPanics) }

// (c) An effect panics. Nobody knows whether it was done: that is written down at once, not when
// the claim's deadline has passed, and the panic passes through.
func effectPanics(w *world) {
	w1 := w.worker("W1")
	d := working(w, w1)
	value := errors.New("nil map")
	hello := reply("Hello!", "m1")
	w.prov.next("reply", panicking(value))
	d.start(w.asking(hello))
	w.broken(d, value)
	if w.since() != 25*time.Second {
		w.Errorf("it took until %v", w.since())
	}
	w.state(hello, fence.Ambiguous)
	w.gone(w1)

	again := w.deliver(w.worker("W2"), job("J", 1, "m1")).must()
	err := again.once(hello)
	w.verdict(again.end(w.refused(err, runs.ErrAmbiguous)), runs.ActionComeBack, fence.ReasonAmbiguous)
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": unknown})
}

func TestF19PanicInAnEffectIsUnknownAtOnce(t *testing.T) { replay(t, effectPanics) }

// (d) The handler leaves its goroutine, as t.FailNow or a careless library does; also from inside
// an effect.
func handlerExits(w *world) {
	w1 := w.worker("W1")
	d := working(w, w1)
	d.start(exit)
	w.broken(d, nil)
	w.gone(w1)
	w.messages(map[string]string{"m1": open})
}

func TestF19RenewalEndsWhenTheHandlerExits(t *testing.T) { replay(t, handlerExits) }

func effectExits(w *world) {
	w1 := w.worker("W1")
	d := working(w, w1)
	hello := reply("Hello!", "m1")
	w.prov.next("reply", func(ctx context.Context, _ *sent) error { return exit(ctx) })
	d.start(w.asking(hello))
	w.broken(d, nil)
	w.state(hello, fence.Ambiguous)
	w.gone(w1)
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": unknown})
}

func TestF19ExitInAnEffectIsUnknownAtOnce(t *testing.T) { replay(t, effectExits) }

// (e) The handler blocks for ever and ignores its ctx. A newer job on the conversation does not
// wait for its lease. Should it come back to life, it may not write.
func newerJobPassesAHungOne(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	d1 := working(w, w1)
	resumed := make(chan struct{})
	hung := d1.start(func(ctx context.Context) error {
		select { // not on ctx.Done()
		case <-resumed:
		case <-w.quit:
		}
		return w.once(ctx, reply("Hello? Anybody?", "m1"))
	})

	d2 := w.deliver(w2, job("J2", 2, "m2")).must()
	w.ok(d2.once(reply("Sorry for the wait.", d2.catchUp().OpenIDs()...)))
	w.verdict(d2.end(nil), runs.ActionDone, "")
	if w.since() != 25*time.Second {
		w.Errorf("J2 was done at %v: it waited for a lease", w.since())
	}

	close(resumed)
	err := d1.wait(hung)
	w.refused(err, runs.ErrSuperseded)
	w.verdict(d1.end(err), runs.ActionDrop, fence.ReasonSuperseded)
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF19NewerJobDoesNotWaitForAHungHandler(t *testing.T) { replay(t, newerJobPassesAHungOne) }

// (e) The hung handler is the newest job, so that older ones wait for it. Its queue gives up on it
// at t60, with the job's timeout; the handler does not notice, but renewal ends with the queue's
// ctx, and when the lease has run out the older job may answer.
func renewalEndsWithTheQueuesCtx(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	timeout, cancel := context.WithTimeout(w.Context(), 60*time.Second)
	defer cancel()
	hung := w.deliverIn(timeout, w1, job("J", 2, "m2")).must()
	hung.start(func(context.Context) error {
		<-w.quit // for ever, whatever its ctx says
		return nil
	})

	w.at(50 * time.Second)
	older := job("older", 1, "m1")
	w.notEntered(w.deliver(w2, older), runs.ActionComeBack, fence.ReasonSuperseded)

	h := w.work(w2, older, w.answerAll(time.Second))
	w.verdict(h.last(), runs.ActionDone, "")
	if at := w.calls("reply", 1)[0].at; at > 60*time.Second+30*time.Second+7*time.Second {
		w.Errorf("answered at %v; the hung job's queue gave up at t60, and its lease ran out 30 s later at most", at)
	}
	w.at(200 * time.Second)
	if late := w1.proc.renewed("J", 60*time.Second); len(late) > 0 {
		w.Errorf("the queue gave the job up at t60, and its lease was renewed at %v", late[0].at)
	}
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF19RenewalEndsWithTheQueuesCtx(t *testing.T) { replay(t, renewalEndsWithTheQueuesCtx) }

// (f) The handler leaves a goroutine behind that asks for an effect after it returned. Refused; the
// run has ended. What was done before is still replayed to it.
func leftBehind(w *world) {
	w1 := w.worker("W1")
	d := working(w, w1)
	hello := reply("Hello!", "m1")
	w.ok(d.once(hello))
	ctx := d.ctx // what the goroutine holds
	w.verdict(d.end(nil), runs.ActionDone, "")

	ask := func(ctx context.Context, e runs.Effect) error {
		done := make(chan error, 1)
		w.spawn(func() { done <- w.once(ctx, e) })
		return <-done
	}
	tag := runs.Effect{Intent: "tag", Key: runs.Key("tag", "billing")}
	w.refused(ask(ctx, tag), runs.ErrEnded)
	w.refused(ask(context.WithoutCancel(ctx), tag), runs.ErrEnded)
	w.ok(ask(ctx, hello))
	w.calls("tag", 0)
	w.calls("reply", 1)
	w.gone(w1)
	w.messages(map[string]string{"m1": answered})
}

func TestF19GoroutineLeftBehindMayNotWrite(t *testing.T) { replay(t, leftBehind) }

// The same after a handler that failed: its run is not over, but this delivery is.
func leftBehindByAFailure(w *world) {
	w1 := w.worker("W1")
	d := working(w, w1)
	ctx := d.ctx
	w.verdict(d.end(errors.New("boom")), runs.ActionReturn, "")
	w.refused(w.once(context.WithoutCancel(ctx), reply("Hello!", "m1")), runs.ErrEnded)
	w.calls("reply", 0)
	w.gone(w1)
	w.messages(map[string]string{"m1": open})
}

func TestF19GoroutineLeftBehindByAFailureMayNotWrite(t *testing.T) {
	replay(t, leftBehindByAFailure)
}

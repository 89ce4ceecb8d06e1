package runs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

func done(context.Context, *runs.Call) error { return nil }

// The newer of two jobs has answered its message and ended. The older one is let in for its own;
// that it then answers it must not cost it the refund that comes after (rule S4.6).
func TestARunsOwnReplyDoesNotCostItTheRestOfItsWork(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash between the two %v", crash), func(t *testing.T) {
			keeper := newKeeper()
			defer keeper.Close()
			refunds := 0
			handler := func(ctx context.Context) error {
				run := runs.FromContext(ctx)
				id := run.Job().Inbound[0]
				if err := run.Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID(id), Answers: []string{id}}, done); err != nil {
					return err
				}
				if id == "m2" {
					return nil
				}
				if crash && run.Delivery() == 1 {
					return errors.New("crashed")
				}
				return run.Once(ctx, runs.Effect{Intent: "refund", Key: runs.Key("order", 1)}, func(context.Context, *runs.Call) error {
					refunds++
					return nil
				})
			}
			if err := keeper.Do(t.Context(), message("m2", 2), handler); err != nil {
				t.Fatal(err)
			}
			v := keeper.Deliver(t.Context(), message("m1", 1), runs.Delivery{}, handler)
			if crash {
				v = keeper.Deliver(t.Context(), message("m1", 1), runs.Delivery{}, handler)
			}
			if v.Action != runs.ActionDone || refunds != 1 {
				t.Errorf("%s %s, %d refunds; want done and 1", v.Action, v.Reason, refunds)
			}
		})
	}
}

// A message held by an effect of unknown outcome parks nobody before late evidence has had its
// time (rule S1, Parked), however often the job comes back.
func TestAnUnknownAnswerParksNobodyBeforeTheQuietPeriod(t *testing.T) {
	keeper := newKeeper()
	defer keeper.Close()
	reply := func(key string, fn func(context.Context, *runs.Call) error) func(context.Context) error {
		return func(ctx context.Context) error {
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID(key), Answers: []string{"m1"}}, fn)
		}
	}
	keeper.Deliver(t.Context(), message("m1", 0), runs.Delivery{}, reply("a", func(context.Context, *runs.Call) error { return errors.New("timeout") }))
	twin := message("m1", 0)
	twin.ID = "twin"
	for range 3 {
		v := keeper.Deliver(t.Context(), twin, runs.Delivery{}, reply("b", done))
		if v.Action != runs.ActionComeBack || v.Reason != fence.ReasonAlreadyAnswered || v.After < keeper.Config().ClaimDeadline {
			t.Fatalf("%s %s after %v; want to come back when the quiet period is over", v.Action, v.Reason, v.After)
		}
	}
}

// A handler that goes on after a refusal is refused for several things in turn. It is parked all
// the same: nobody pays for it for weeks (rule S5, catching up).
func TestAHandlerRefusedForSeveralThingsIsParked(t *testing.T) {
	keeper := newKeeper()
	defer keeper.Close()
	handler := func(ctx context.Context) error {
		run := runs.FromContext(ctx)
		var errs []error
		for _, intent := range []string{"note", "tag"} {
			// The key changes with every delivery: a mistake that the conversation check catches.
			key := runs.Key("delivery", run.Delivery())
			errs = append(errs, run.Once(ctx, runs.Effect{Intent: intent, Key: key}, done))
		}
		if run.Delivery() == 1 {
			return errors.New("the model is overloaded")
		}
		return errors.Join(errs...)
	}
	var last runs.Verdict
	for range 4 {
		last = keeper.Deliver(t.Context(), message("m1", 0), runs.Delivery{}, handler)
	}
	if last.Action != runs.ActionPark || last.Reason != fence.ReasonRefusedTwice {
		t.Errorf("%s %s; want parked", last.Action, last.Reason)
	}
}

// However many things it is refused for in turn, and whatever bytes their ids hold.
func TestAHandlerRefusedForManyThingsIsParked(t *testing.T) {
	keeper := newKeeper()
	defer keeper.Close()
	job := message("m0", 0)
	job.Inbound = nil
	for i := range 20 {
		job.Inbound = append(job.Inbound, fmt.Sprintf("a\nb %d", i))
	}
	for i, id := range job.Inbound[:12] {
		_, err := keeper.Report(t.Context(), job.Conversation, runs.Write{ID: fmt.Sprint(i), Intent: "reply", Answers: []string{id}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var last runs.Verdict
	for range 3 {
		last = keeper.Deliver(t.Context(), job, runs.Delivery{}, func(ctx context.Context) error {
			var errs []error
			for _, id := range job.Inbound[:12] {
				errs = append(errs, runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("to " + id), Answers: []string{id}}, done))
			}
			return errors.Join(errs...)
		})
	}
	if last.Action != runs.ActionPark || last.Reason != fence.ReasonRefusedTwice {
		t.Errorf("%s %s; want parked", last.Action, last.Reason)
	}
}

// The ledger is away from the middle of an effect on: recording waits for it once, not once for
// the effect and once more for the run.
func TestAShutdownWaitsForTheLedgerOnce(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		start := time.Now()
		v := p.deliver(job(1), func(ctx context.Context) error {
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error {
				p.spy.breaks(errors.New("the ledger is away"))
				return nil
			})
		})
		wantVerdict(b, v, runs.ActionRetry, fence.ReasonLedger)
		bound := p.Config().SettleTimeout
		if took := time.Since(start); took < bound || took > bound+bound/5 {
			b.Errorf("it took %v with a bound of %v", took, bound)
		}
	})
}

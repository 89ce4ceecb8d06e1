package runstest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

func job(id string, n int64, inbound ...string) runs.Job {
	return runs.Job{
		Queue: "q", ID: id, Conversation: "c", Order: runs.Order{Source: "seq", Number: n},
		Inbound: inbound, NoInbound: len(inbound) == 0, Reads: runs.AfterBegin,
	}
}

// bot answers whatever is open.
func bot(p *runstest.Provider) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
			open := view.OpenIDs()
			if len(open) == 0 {
				return nil
			}
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open}, p.Do)
		})
	}
}

func TestDeliverShowsTheVerdictAndTheRecord(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	p := k.NewProvider()
	d := k.Deliver(job("1", 1, "m1"), bot(p))
	if d.Action != runs.ActionDone || !d.Entered || d.Run == nil || !d.Run.Finished() {
		t.Errorf("got %+v", d)
	}
	d = k.Redeliver(job("1", 1, "m1"), bot(p))
	if d.Action != runs.ActionDone || d.Entered {
		t.Errorf("redelivered: got %+v", d)
	}
	if p.Acted() != 1 || p.Calls() != 1 || len(k.Done("c")) != 1 || len(k.OpenMessages("c")) != 0 {
		t.Errorf("acted %d, calls %d", p.Acted(), p.Calls())
	}
}

func TestANewerMessageComesWhileTheHandlerThinks(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	p := k.NewProvider()
	var newer runstest.Delivered
	k.When("caught_up", func(runs.Event) { newer = k.Deliver(job("2", 2, "m2"), bot(p)) })
	d := k.Deliver(job("1", 1, "m1"), bot(p))
	if newer.Action != runs.ActionDone || d.Action != runs.ActionDrop || p.Acted() != 1 {
		t.Errorf("newer %+v, older %+v, acted %d", newer.Verdict, d.Verdict, p.Acted())
	}
}

func TestASecondDeliveryWhileTheFirstLives(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	p := k.NewProvider()
	var second runstest.Delivered
	first := k.Deliver(job("1", 1, "m1"), func(ctx context.Context) error {
		second = k.Redeliver(job("1", 1, "m1"), bot(p))
		return bot(p)(ctx)
	})
	if second.Action != runs.ActionDone || first.Action != runs.ActionStale || p.Acted() != 1 {
		t.Errorf("second %+v, first %+v, acted %d", second.Verdict, first.Verdict, p.Acted())
	}
}

func TestACrashLeavesTheEffectUnknownAndTheLeaseToLapse(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	p := k.NewProvider()
	p.Next(runstest.ActAndCrash)
	d := k.Deliver(job("1", 1, "m1"), bot(p))
	if !d.Crashed || d.Action != "" || len(k.Pending("c")) != 1 {
		t.Fatalf("got %+v", d)
	}
	if k.Told("released") != 0 || k.Told("not_recorded") != 0 {
		t.Errorf("a dead process acted: %v", k.Events())
	}
	k.Advance(3 * time.Minute)
	if len(k.Unknown("c")) != 1 {
		t.Errorf("not unknown after its deadline")
	}
	d = k.Redeliver(job("1", 1, "m1"), bot(p))
	if d.Action != runs.ActionComeBack || p.Acted() != 1 {
		t.Errorf("got %+v, acted %d", d.Verdict, p.Acted())
	}
	if n := k.ResolveUnknown("c", true); n != 1 {
		t.Errorf("resolved %d", n)
	}
	if d = k.Redeliver(job("1", 1, "m1"), bot(p)); d.Action != runs.ActionDone || p.Acted() != 1 {
		t.Errorf("got %+v, acted %d", d.Verdict, p.Acted())
	}
}

func TestModesOfTheProvider(t *testing.T) {
	for _, c := range []struct {
		mode    runstest.Mode
		want    error
		outcome runs.Outcome
		acted   int
	}{
		{runstest.Act, nil, "", 1},
		{runstest.Fail, nil, runs.OutcomeFailed, 0},
		{runstest.ActAndTimeout, context.DeadlineExceeded, runs.OutcomeAmbiguous, 1},
		{runstest.Timeout, context.DeadlineExceeded, runs.OutcomeAmbiguous, 0},
	} {
		k := runstest.NewKeeper(t, nil)
		p := k.NewProvider()
		p.Next(c.mode)
		start := k.Now()
		k.Deliver(job("1", 1), func(ctx context.Context) error {
			err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "tag", Key: runs.ID("x")}, p.Do)
			outcome, _ := errors.AsType[*runs.OutcomeError](err)
			switch {
			case c.outcome == "" && err != nil, c.outcome != "" && (outcome == nil || outcome.Outcome != c.outcome):
				t.Errorf("mode %d: got %v", c.mode, err)
			case c.want != nil && !errors.Is(err, c.want):
				t.Errorf("mode %d: got %v, want %v", c.mode, err, c.want)
			}
			return err
		})
		if p.Acted() != c.acted {
			t.Errorf("mode %d: acted %d", c.mode, p.Acted())
		}
		if took := k.Now().Sub(start); c.want != nil && took != time.Minute {
			t.Errorf("mode %d: took %v of virtual time", c.mode, took)
		}
	}
}

func TestTheClockMovesLeasesAndWatchdogs(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	exclusive := job("1", 1)
	exclusive.Mode = runs.Exclusive
	d := k.Deliver(exclusive, func(ctx context.Context) error {
		k.Advance(10 * time.Minute) // beats keep it alive
		if ctx.Err() != nil {
			t.Errorf("lost while it was renewed: %v", context.Cause(ctx))
		}
		other := exclusive
		other.ID = "2"
		if busy := k.Deliver(other, nothing); busy.Action != runs.ActionComeBack || busy.Entered {
			t.Errorf("busy: got %+v", busy)
		}
		return nil
	})
	if d.Action != runs.ActionDone {
		t.Errorf("got %+v", d.Verdict)
	}
}

func nothing(context.Context) error { return nil }

func TestWaitingMovesTheClock(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	p := k.NewProvider()
	e := runs.Effect{Intent: "refund", Key: runs.ID("o1"), Wait: time.Minute}
	start := k.Now()
	p.During(func(context.Context, *runs.Call) {
		k.Deliver(job("2", 2), func(ctx context.Context) error {
			err := runs.FromContext(ctx).Once(ctx, e, p.Do)
			if !errors.Is(err, runs.ErrWaitTimeout) {
				t.Errorf("got %v", err)
			}
			return err
		})
	})
	k.Deliver(job("1", 1), func(ctx context.Context) error { return runs.FromContext(ctx).Once(ctx, e, p.Do) })
	if took := k.Now().Sub(start); took != time.Minute {
		t.Errorf("took %v", took)
	}
	// And for somebody outside of any delivery.
	p.During(func(context.Context, *runs.Call) {
		e := runs.Effect{Intent: "refund", Key: runs.ID("o2"), Wait: time.Minute}
		if err := k.Once(t.Context(), "c", e, p.Do); !errors.Is(err, runs.ErrWaitTimeout) {
			t.Errorf("got %v", err)
		}
	})
	if err := k.Once(t.Context(), "c", runs.Effect{Intent: "refund", Key: runs.ID("o2")}, p.Do); err != nil {
		t.Error(err)
	}
}

func TestAPanicIsShownWithItsValue(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	d := k.Deliver(job("1", 1), func(context.Context) error { panic("boom") })
	if d.Panic != "boom" || d.Action != "" || k.Told("released") != 1 {
		t.Errorf("got %+v", d)
	}
}

func TestAHookThatTheClockCausesRunsWhenItStandsStill(t *testing.T) {
	k := runstest.NewKeeper(t, nil)
	exclusive := job("1", 1)
	exclusive.Mode = runs.Exclusive
	hooked := false
	k.When("lease_lost", func(e runs.Event) {
		hooked = true
		k.Advance(time.Second)
		if e.Reason != "cancelled" {
			t.Errorf("got %+v", e)
		}
	})
	d := k.Deliver(exclusive, func(ctx context.Context) error {
		if _, err := k.Cancel(t.Context(), runs.RunKey{Queue: "q", ID: "1"}, runs.CancelOptions{By: "me"}); err != nil {
			t.Error(err)
		}
		k.Advance(time.Minute)
		if !errors.Is(context.Cause(ctx), runs.ErrCancelled) {
			t.Errorf("cause: %v", context.Cause(ctx))
		}
		return context.Cause(ctx)
	})
	if !hooked || d.Action != runs.ActionDrop {
		t.Errorf("hooked %v, got %+v", hooked, d.Verdict)
	}
}

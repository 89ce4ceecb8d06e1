package runs_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// A rule whose absence nothing notices is not tested. Each check below finds nothing wrong with
// its rule, and something with the rule switched off.
var checks = []struct {
	off   sabotage.Name
	check func(b *bench) (wrong []string)
}{
	{sabotage.TimeoutMeansFailed, func(b *bench) (wrong []string) {
		// The provider acted and its answer was lost; the job is delivered again.
		p := b.process()
		prov := &provider{}
		for range 2 {
			p.deliver(job(1), func(ctx context.Context) error { return once(ctx, tag("x"), prov.does(context.DeadlineExceeded)) })
		}
		return unless(prov.count() == 1, "the provider acted twice")
	}},
	{sabotage.ClaimNotDurable, func(b *bench) (wrong []string) {
		// The process dies in the effect; another one takes the job.
		p, q := b.process(), b.process()
		prov := &provider{}
		died := make(chan struct{})
		go func() {
			defer close(died)
			p.deliver(job(1), func(ctx context.Context) error {
				return once(ctx, tag("x"), func(ctx context.Context, call *runs.Call) error {
					_ = prov.do(ctx, call)
					p.spy.breaks(errors.New("dead"))
					runtime.Goexit()
					return nil
				})
			})
		}()
		<-died
		q.deliver(job(1), func(ctx context.Context) error { return once(ctx, tag("x"), prov.do) })
		return unless(prov.count() == 1, "the provider acted twice")
	}},
	{sabotage.LostAnswerIsRight, func(b *bench) (wrong []string) {
		// The claim was written, its answer lost, and the ledger was away for longer than its
		// deadline. Meanwhile it is unknown to everybody, and the process has not noticed.
		var away time.Duration
		clock := *seam.Real()
		clock.Now = func() time.Time { return time.Now().Add(away) }
		store := memledger.NewSeamed(&clock)
		b.open = func() (ledger.Store, error) { return store, nil }
		p := b.process()
		prov := &provider{}
		p.deliver(job(1), func(ctx context.Context) error {
			p.spy.OnApply(func(_ context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
				p.spy.breaks(nil)
				_, _ = apply()
				away = 3 * time.Minute
				return ledger.Result{}, errors.New("connection reset")
			})
			return once(ctx, tag("x"), prov.do)
		})
		return unless(prov.count() == 0, "called after its claim had lapsed")
	}},
	{sabotage.LateStartCalls, func(b *bench) (wrong []string) {
		p := b.process()
		prov := &provider{}
		p.deliver(job(1), func(ctx context.Context) error {
			sleepAfterClaim(p, 61*time.Second)
			return once(ctx, tag("x"), prov.do)
		})
		return unless(prov.count() == 0, "called with less than its timeout left")
	}},
	{sabotage.SettleByHandlerCtx, func(b *bench) (wrong []string) {
		p := b.process()
		ctx, cancel := context.WithCancel(b.Context())
		p.Deliver(ctx, job(1), runs.Delivery{}, func(ctx context.Context) error {
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error { cancel(); return nil })
		})
		return unless(p.effect("c").State() == "committed", "a shutdown lost what had happened")
	}},
	{sabotage.BigResultFails, func(b *bench) (wrong []string) {
		p := b.process()
		prov := &provider{}
		in := runs.Intent[string]{Name: "look"}
		for range 2 {
			_, _ = in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), func(ctx context.Context, call *runs.Call) (string, error) {
				return strings.Repeat("x", 64<<10), prov.do(ctx, call)
			})
		}
		return unless(prov.count() == 1, "it ran again for its result's size")
	}},
	{sabotage.NoWatchdog, func(b *bench) (wrong []string) {
		p, q := b.process(), b.process()
		p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			p.spy.breaks(errors.New("partitioned"))
			time.Sleep(31 * time.Second)
			q.deliver(exclusive(job(2)), func(context.Context) error {
				wrong = unless(ctx.Err() != nil, "two at work at the same time")
				return nil
			})
			p.spy.breaks(nil)
			return nil
		})
		return wrong
	}},
	{sabotage.BeatsForEver, func(b *bench) (wrong []string) {
		p, q := b.process(), b.process()
		ctx, cancel := context.WithCancel(b.Context())
		p.Deliver(ctx, exclusive(job(1)), runs.Delivery{}, func(context.Context) error {
			cancel()
			time.Sleep(31 * time.Second) // a handler that ignores it
			v := q.deliver(exclusive(job(2)), idle)
			wrong = unless(v.Action == runs.ActionDone, "a handler that hangs keeps the conversation for ever")
			return nil
		})
		return wrong
	}},
}

func unless(right bool, wrong string) []string {
	if right {
		return nil
	}
	return []string{wrong}
}

func TestEachRuleIsNoticedWhenItIsSwitchedOff(t *testing.T) {
	for _, c := range checks {
		t.Run(c.off.String(), func(t *testing.T) {
			onMemory(t, func(b *bench) {
				if wrong := c.check(b); len(wrong) != 0 {
					b.Errorf("with rule %s: %s", c.off.Rule(), strings.Join(wrong, "; "))
				}
			})
			onMemory(t, func(b *bench) {
				b.off = sabotage.Of(c.off)
				if len(c.check(b)) == 0 {
					b.Errorf("nobody noticed that %s", c.off.Does())
				}
			})
		})
	}
}

package runs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Rule S9.4: in mode exclusive a watchdog stops the handler before anybody else can take over.

func TestTheWatchdogBitesBeforeTheLeaseEndsAndNobodyWritesBesideAnother(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		prov := &provider{}
		began := time.Now()
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			p.spy.breaks(errors.New("partitioned"))
			<-ctx.Done()
			if took := time.Since(began); took != 27*time.Second || !errors.Is(context.Cause(ctx), runs.ErrLeaseLost) {
				b.Errorf("stopped after %v: %v", took, context.Cause(ctx))
			}
			// Nobody else can take over yet.
			wantVerdict(b, q.deliver(exclusive(job(2)), idle), runs.ActionComeBack, "busy")
			// This delivery claims nothing any more, though the ledger is there again.
			p.spy.breaks(nil)
			err := runs.FromContext(ctx).Once(context.WithoutCancel(ctx), tag("x"), prov.do)
			if !errors.Is(err, runs.ErrLeaseLost) {
				b.Errorf("got %v", err)
			}
			time.Sleep(4 * time.Second)
			wantVerdict(b, q.deliver(exclusive(job(2)), func(ctx context.Context) error { return once(ctx, tag("x"), prov.do) }), runs.ActionDone, "")
			// What was done is still replayed to it.
			if err := runs.FromContext(ctx).Once(context.WithoutCancel(ctx), tag("x"), prov.do); err != nil {
				b.Errorf("replay: %v", err)
			}
			return nil // swallowed
		})
		wantVerdict(b, v, runs.ActionRetry, "lease_lost")
		if prov.count() != 1 {
			b.Errorf("called %d times", prov.count())
		}
		if told := p.told("lease_lost"); len(told) != 1 || told[0].Reason != "lease_lost" {
			b.Errorf("told %v", told)
		}
	})
}

// A process that was stopped wakes up after its watchdog should have bitten, and its handler
// comes first.
func TestAProcessThatSleptThroughItsWatchdogClaimsNothing(t *testing.T) {
	onMemory(t, func(b *bench) {
		var slept time.Duration
		p := b.processWith(runs.Config{}, func(s *seam.Seam) {
			s.Now = func() time.Time { return time.Now().Add(slept) }
			s.AfterFunc = func(time.Duration, func()) func() bool { return func() bool { return true } }
		})
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			slept = 28 * time.Second
			err := once(ctx, tag("x"), func(context.Context, *runs.Call) error { b.Error("called"); return nil })
			if !errors.Is(err, runs.ErrLeaseLost) || !errors.Is(context.Cause(ctx), runs.ErrLeaseLost) {
				b.Errorf("got %v, cause %v", err, context.Cause(ctx))
			}
			return err
		})
		wantVerdict(b, v, runs.ActionRetry, "lease_lost")
	})
}

// A renewal that lands before the watchdog that is due changes nothing: whoever saw the lease
// lapsed may be about to take it.
func TestARenewalAfterTheWatchdogIsDueIsTooLate(t *testing.T) {
	onMemory(t, func(b *bench) {
		var slept atomic.Int64
		p := b.processWith(runs.Config{}, func(s *seam.Seam) {
			s.Now = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
			s.AfterFunc = func(time.Duration, func()) func() bool { return func() bool { return true } }
		})
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			slept.Store(int64(28 * time.Second))
			time.Sleep(11 * time.Second) // a beat lands
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error { b.Error("called"); return nil })
		})
		wantVerdict(b, v, runs.ActionRetry, "lease_lost")
	})
}

// The lease that such a Begin took stays: it may have taken it from a handler at work.
func TestAHandlerIsNotEnteredWhenItsBeginOutlastedTheWatchdog(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		p.spy.OnApply(func(_ context.Context, _ ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
			p.spy.breaks(nil)
			r, err := apply()
			time.Sleep(28 * time.Second)
			return r, err
		})
		last := p.deliverLast(exclusive(job(1)), func(context.Context) error { b.Error("entered"); return nil })
		wantVerdict(b, last, runs.ActionComeBack, "lease_lost")
		p.spy.OnApply(nil)
		wantVerdict(b, p.deliver(exclusive(job(2)), idle), runs.ActionComeBack, "busy")
		time.Sleep(2 * time.Second)
		wantVerdict(b, p.deliver(exclusive(job(2)), idle), runs.ActionDone, "")
	})
}

// Rule S9.4: an older delivery of the holder's own job was frozen in its Begin. It takes over
// late and enters nobody; until the handler that is at work knows, nobody else is let in.
func TestALateBeginKeepsOthersOutUntilTheHandlerAtWorkIsTold(t *testing.T) {
	onMemory(t, func(b *bench) {
		p, q := b.process(), b.process()
		frozen := make(chan runs.Verdict)
		p.spy.OnApply(func(_ context.Context, _ ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
			time.Sleep(40 * time.Second)
			return apply()
		})
		go func() {
			frozen <- p.deliver(exclusive(job(1)), func(context.Context) error { b.Error("entered"); return nil })
		}()
		time.Sleep(time.Second)
		v := q.deliver(exclusive(job(1)), func(ctx context.Context) error {
			wantVerdict(b, <-frozen, runs.ActionComeBack, "lease_lost")
			if ctx.Err() != nil {
				b.Error("told too early for this test to show anything")
			}
			wantVerdict(b, b.process().deliver(exclusive(job(2)), idle), runs.ActionComeBack, "busy")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantVerdict(b, v, runs.ActionStale, "superseded")
	})
}

func TestTheWatchdogCountsFromTheLastRenewalThatLanded(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		began := time.Now()
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			time.Sleep(21 * time.Second) // beats at 10 s and 20 s landed
			p.spy.breaks(errors.New("partitioned"))
			<-ctx.Done()
			if took := time.Since(began); took != 47*time.Second {
				b.Errorf("stopped after %v", took)
			}
			p.spy.breaks(nil)
			return context.Cause(ctx)
		})
		wantVerdict(b, v, runs.ActionRetry, "lease_lost")
	})
}

func TestABeatThatIsAlmostAsLongAsTheLeaseComesBeforeTheWatchdog(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.processWith(runs.Config{Lease: 10 * time.Second, Beat: 9800 * time.Millisecond}, nil)
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			return context.Cause(ctx)
		})
		wantVerdict(b, v, runs.ActionDone, "")
	})
}

func TestAnotherHolderIsLossAndItIsStickyThoughTheHandlerSwallowsIt(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		frozen := func(s *seam.Seam) { // its watchdog never bites, as on a machine whose clock stands still
			stopped := time.Now()
			s.Now = func() time.Time { return stopped }
			s.AfterFunc = func(time.Duration, func()) func() bool { return func() bool { return true } }
		}
		f := b.processWith(runs.Config{}, frozen)
		v := f.deliver(exclusive(job(1)), func(ctx context.Context) error {
			f.spy.breaks(errors.New("partitioned"))
			time.Sleep(31 * time.Second)
			done := make(chan struct{})
			go func() {
				defer close(done)
				wantVerdict(b, q.deliver(exclusive(job(2)), func(context.Context) error { time.Sleep(10 * time.Second); return nil }), runs.ActionDone, "")
			}()
			time.Sleep(time.Second)
			f.spy.breaks(nil)
			err := once(ctx, tag("x"), func(context.Context, *runs.Call) error { b.Error("called"); return nil })
			if !errors.Is(err, runs.ErrBusy) || !errors.Is(context.Cause(ctx), runs.ErrLeaseLost) {
				b.Errorf("got %v, cause %v", err, context.Cause(ctx))
			}
			<-done
			return nil
		})
		wantVerdict(b, v, runs.ActionRetry, "lease_lost")
		wantVerdict(b, p.deliver(exclusive(job(1)), idle), runs.ActionDone, "")
	})
}

func TestARedeliveryOfTheHoldersOwnRunTakesOverAtOnce(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			second := q.deliver(exclusive(job(1)), func(context.Context) error { time.Sleep(time.Minute); return nil })
			wantVerdict(b, second, runs.ActionDone, "")
			if !errors.Is(context.Cause(ctx), runs.ErrSuperseded) {
				b.Errorf("cause %v", context.Cause(ctx))
			}
			return nil
		})
		if v.Action != runs.ActionStale {
			b.Errorf("got %+v", v)
		}
	})
}

func TestWaitStaleWaitsForTheNewerDeliveryOrItsCtx(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		began := time.Now()
		_ = p.deliver(job(1), func(ctx context.Context) error {
			go func() {
				_ = p.deliver(job(1), func(context.Context) error { time.Sleep(20 * time.Second); return errors.New("later") })
			}()
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			if err := p.WaitStale(ctx, job(1)); !errors.Is(err, context.DeadlineExceeded) {
				b.Errorf("got %v", err)
			}
			if err := p.WaitStale(b.Context(), job(1)); err != nil {
				b.Error(err)
			}
			return nil
		})
		if took := time.Since(began); took < 20*time.Second || took > 28*time.Second {
			b.Errorf("waited %v", took)
		}
		if n := p.spy.count(&p.spy.loads); n > 40 {
			b.Errorf("asked the ledger %d times", n)
		}
		// One that crashed holds nobody up longer than its lease.
		if err := p.WaitStale(b.Context(), job(9)); err != nil {
			b.Error(err)
		}
	})
}

package runs_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

type receipt struct {
	ID     string
	Amount int
}

var refund = runs.Intent[receipt]{Name: "refund", Distinct: true}

func TestAnEffectIsCalledOnceAndItsValueIsReplayed(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		n := 0
		fn := func(_ context.Context, call *runs.Call) (receipt, error) {
			n++
			if call.Number != 1 || len(call.IdempotencyKey) != 44 || call.Fence == 0 {
				b.Errorf("call: %+v", call)
			}
			return receipt{"r1", 500}, nil
		}
		handler := func(ctx context.Context) error {
			got, err := refund.Once(ctx, runs.Key("order", "o1", "line", 2), fn)
			if err != nil || got != (receipt{"r1", 500}) {
				b.Errorf("got %+v, %v", got, err)
			}
			return errors.New("try again")
		}
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionReturn, "")
		wantVerdict(b, b.process().deliver(job(1), handler), runs.ActionReturn, "") // another process
		if n != 1 {
			b.Errorf("called %d times", n)
		}
		if e := p.effect("c"); string(e.Deciding().Result) != `{"ID":"r1","Amount":500}` {
			b.Errorf("stored %s", e.Deciding().Result)
		}
	})
}

type declined struct{}

func (declined) Error() string    { return "declined" }
func (declined) NotApplied() bool { return true }

func TestOnlyAnErrorThatSaysSoIsNotApplied(t *testing.T) {
	maybe := errors.New("maybe")
	no := runs.NotApplied(errors.New("refused"))
	isMaybe := func(err error) bool { return errors.Is(err, maybe) }
	for _, c := range []struct {
		name     string
		err      error
		classify func(error) bool
		want     runs.Outcome
	}{
		{"a plain error", maybe, nil, runs.OutcomeAmbiguous},
		{"a timeout", context.DeadlineExceeded, nil, runs.OutcomeAmbiguous},
		{"marked", no, nil, runs.OutcomeFailed},
		{"marked and wrapped", errors.Join(errors.New("x"), no), nil, runs.OutcomeAmbiguous},
		{"wrapped", wrapped{no}, nil, runs.OutcomeFailed},
		{"a method", declined{}, nil, runs.OutcomeFailed},
		{"a method that says no, around one that says yes", doubtful{no}, nil, runs.OutcomeAmbiguous},
		{"a method that says no, and the classifier", doubtful{maybe}, isMaybe, runs.OutcomeFailed},
		{"every leaf", errors.Join(no, wrapped{declined{}}), nil, runs.OutcomeFailed},
		{"one leaf of two", errors.Join(no, maybe), nil, runs.OutcomeAmbiguous},
		{"the classifier", maybe, isMaybe, runs.OutcomeFailed},
		{"the classifier, every leaf", errors.Join(maybe, no), isMaybe, runs.OutcomeFailed},
		{"the classifier, one of two", errors.Join(maybe, errors.New("x")), isMaybe, runs.OutcomeAmbiguous},
		{"the classifier says no", maybe, func(error) bool { return false }, runs.OutcomeAmbiguous},
	} {
		t.Run(c.name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				in := runs.Intent[int]{Name: "n", Classify: c.classify}
				_ = p.deliver(job(1), func(ctx context.Context) error {
					_, err := in.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (int, error) { return 0, c.err })
					wantOutcome(b, err, c.want, true)
					if !errors.Is(err, c.err) {
						b.Errorf("%v does not wrap the cause", err)
					}
					return nil
				})
				if got, want := string(p.effect("c").State()), string(c.want); got != want {
					b.Errorf("recorded %s, want %s", got, want)
				}
			})
		})
	}
	if runs.NotApplied(nil) != nil {
		t.Error("NotApplied(nil) is an error")
	}
}

type doubtful struct{ error }

func (doubtful) NotApplied() bool { return false }
func (d doubtful) Unwrap() error  { return d.error }

type wrapped struct{ error }

func (w wrapped) Unwrap() error { return w.error }

func wantOutcome(t testing.TB, err error, want runs.Outcome, recorded bool) {
	t.Helper()
	outcome, ok := errors.AsType[*runs.OutcomeError](err)
	if !ok || outcome.Outcome != want || outcome.Recorded != recorded || outcome.Call != 1 {
		t.Errorf("want the outcome %s (recorded %v), got %#v", want, recorded, err)
	}
}

func TestAFailedEffectMayBeCalledAgainUpToItsLimit(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		no := runs.NotApplied(errors.New("no"))
		v := p.deliver(job(1), func(ctx context.Context) error {
			for range 3 {
				if err := once(ctx, tag("x"), prov.does(no)); !errors.Is(err, no) {
					b.Errorf("got %v", err)
				}
			}
			return once(ctx, tag("x"), prov.does(no))
		})
		wantVerdict(b, v, runs.ActionDiscard, "exhausted")
		if prov.count() != 3 {
			b.Errorf("called %d times", prov.count())
		}
		// Somebody presses retry: one more.
		v = p.deliver(job(1), func(ctx context.Context) error { return once(ctx, tag("x"), prov.do) })
		wantVerdict(b, v, runs.ActionDone, "")
		if prov.count() != 4 {
			b.Errorf("called %d times", prov.count())
		}
	})
}

func TestAPanicIsPassedOnUnchangedAndItsEffectIsUnknownAtOnce(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		value := &struct{ s string }{"boom"}
		func() {
			defer func() {
				if got := recover(); got != any(value) {
					b.Errorf("recovered %v", got)
				}
			}()
			_ = p.deliver(job(1), func(ctx context.Context) error {
				return once(ctx, tag("x"), func(_ context.Context, call *runs.Call) error {
					call.SetReference("ref")
					panic(value)
				})
			})
			b.Error("no panic")
		}()
		call := p.effect("c").Deciding()
		if call.State != "ambiguous" || call.Reference != "ref" {
			b.Errorf("recorded %+v", call)
		}
		if h := p.history("c"); len(h.Head.Seats) != 0 || p.run(job(1)).State != "active" {
			b.Errorf("the lease was not released: %+v", h.Head.Seats)
		}
		v := p.deliver(job(1), func(ctx context.Context) error {
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error { b.Error("called again"); return nil })
		})
		wantVerdict(b, v, runs.ActionComeBack, "ambiguous")
	})
}

func TestGoexitInAnEffectIsUnknownAndInAHandlerReleases(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		goexit := func(handler func(ctx context.Context) error) {
			var wg sync.WaitGroup
			wg.Go(func() {
				_ = p.deliver(job(1), handler)
				b.Error("returned")
			})
			wg.Wait()
		}
		goexit(func(context.Context) error { runtime.Goexit(); return nil })
		if len(p.history("c").Head.Seats) != 0 {
			b.Error("the lease was not released")
		}
		goexit(func(ctx context.Context) error {
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error { runtime.Goexit(); return nil })
		})
		if e := p.effect("c"); e.State() != "ambiguous" {
			b.Errorf("is %s", e.State())
		}
	})
}

func TestWaitingForTheWinnerGivesEqualValues(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		const waiters = 8
		prov := &provider{}
		fn := func(ctx context.Context, call *runs.Call) (receipt, error) {
			time.Sleep(20 * time.Second) // the others come meanwhile
			return receipt{"r1", 500}, prov.do(ctx, call)
		}
		values := make([]receipt, waiters)
		var wg sync.WaitGroup
		for i := range waiters {
			k := []*process{p, q}[i%2]
			wg.Go(func() {
				var err error
				values[i], err = refund.OnceOn(b.Context(), k.Keeper, "c", runs.ID("o1"), fn, runs.With{Wait: time.Minute})
				if err != nil {
					b.Errorf("waiter %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		for _, v := range values {
			if v != (receipt{"r1", 500}) {
				b.Errorf("got %+v", v)
			}
		}
		if prov.count() != 1 {
			b.Errorf("called %d times", prov.count())
		}
	})
}

func TestAWaitThatIsOverSaysSoAndNoConnectionIsHeldMeanwhile(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		_ = p.deliver(job(2), func(ctx context.Context) error {
			_, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Hour)
			return err
		})
		v := p.deliver(job(1), func(ctx context.Context) error {
			e := tag("x")
			if err := once(ctx, e, prov.do); !errors.Is(err, runs.ErrInFlight) || errors.Is(err, runs.ErrWaitTimeout) {
				b.Errorf("without a wait: %v", err)
			}
			e.Wait = time.Minute
			start, loads := time.Now(), p.spy.count(&p.spy.loads)
			err := once(ctx, e, prov.do)
			if !errors.Is(err, runs.ErrWaitTimeout) || errors.Is(err, runs.ErrInFlight) {
				b.Errorf("with a wait: %v", err)
			}
			if took := time.Since(start); took != time.Minute {
				b.Errorf("waited %v", took)
			}
			// 25 ms growing to 250 ms, each with up to half more or less.
			if asked := p.spy.count(&p.spy.loads) - loads; asked < 60/(.25*1.5) || asked > 60/(.25*.5)+10 {
				b.Errorf("asked %d times", asked)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionComeBack, "wait_timeout")
		if prov.count() != 0 {
			b.Error("called")
		}
	})
}

func TestAWaitEndsWithItsCtx(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1), func(ctx context.Context) error {
			if _, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Hour); err != nil {
				b.Error(err)
			}
			why := errors.New("no patience")
			ctx, cancel := context.WithTimeoutCause(ctx, time.Second, why)
			defer cancel()
			e := tag("x")
			e.Wait = time.Minute
			if err := once(ctx, e, nothing); !errors.Is(err, why) {
				b.Errorf("got %v", err)
			}
			return nil
		})
	})
}

// nothing is an effect that does nothing.
func nothing(context.Context, *runs.Call) error { return nil }

func TestTheEffectsCtxIsDetachedHasItsOwnDeadlineAndKeepsValues(t *testing.T) {
	onMemory(t, func(b *bench) {
		type trace struct{}
		p := b.process()
		ctx, cancel := context.WithCancel(context.WithValue(b.Context(), trace{}, "t1"))
		_ = p.Deliver(ctx, job(1), runs.Delivery{}, func(ctx context.Context) error {
			e := tag("x")
			e.Timeout = 7 * time.Second
			return once(ctx, e, func(ctx context.Context, _ *runs.Call) error {
				cancel() // the queue shuts down
				if ctx.Err() != nil || ctx.Value(trace{}) != "t1" {
					b.Errorf("err %v, value %v", ctx.Err(), ctx.Value(trace{}))
				}
				start := time.Now()
				<-ctx.Done()
				if took := time.Since(start); took != 7*time.Second || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					b.Errorf("ended after %v: %v", took, ctx.Err())
				}
				return nil
			})
		})
		if e := p.effect("c"); e.State() != "committed" {
			b.Errorf("is %s", e.State())
		}
	})
}

func TestTimesComeFromTheCallThenTheIntentThenTheKeeper(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.processWith(runs.Config{EffectTimeout: 10 * time.Second, ClaimDeadline: 15 * time.Second}, nil)
		for i, c := range []struct {
			intent         runs.Intent[int]
			with           runs.With
			timeout, claim time.Duration
		}{
			{runs.Intent[int]{}, runs.With{}, 10 * time.Second, 15 * time.Second},
			{runs.Intent[int]{Timeout: 20 * time.Second}, runs.With{}, 20 * time.Second, 40 * time.Second},
			{runs.Intent[int]{Timeout: 20 * time.Second, ClaimDeadline: time.Hour}, runs.With{}, 20 * time.Second, time.Hour},
			{runs.Intent[int]{Timeout: 20 * time.Second}, runs.With{Timeout: time.Second}, time.Second, 2 * time.Second},
			{runs.Intent[int]{}, runs.With{ClaimDeadline: time.Hour}, 10 * time.Second, time.Hour},
		} {
			c.intent.Name, c.intent.Distinct = "n", true
			start := time.Now()
			_, err := c.intent.OnceOn(b.Context(), p.Keeper, "c", runs.Key("n", i), func(ctx context.Context, _ *runs.Call) (int, error) {
				<-ctx.Done()
				return 0, nil
			}, c.with)
			if err != nil || time.Since(start) != c.timeout {
				b.Errorf("%d: timed out after %v: %v", i, time.Since(start), err)
			}
			h := p.history("c")
			call := h.Effects[len(h.Effects)-1].Deciding()
			if got := (call.Deadline - call.At).Duration(); got != c.claim {
				b.Errorf("%d: claim deadline %v, want %v", i, got, c.claim)
			}
		}
	})
}

// sleepAfterClaim stops the process after its next claim was written, before it hears of it.
func sleepAfterClaim(p *process, d time.Duration) {
	p.spy.OnApply(func(_ context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
		r, err := apply()
		if w.Durable {
			p.spy.breaks(nil)
			time.Sleep(d)
		}
		return r, err
	})
}

func TestACallThatWasGrantedTooLateIsNotMade(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		_ = p.deliver(job(1), func(ctx context.Context) error {
			sleepAfterClaim(p, 61*time.Second)
			err := once(ctx, tag("x"), prov.do)
			wantOutcome(b, err, runs.OutcomeFailed, true)
			if !errors.Is(err, runs.ErrNotStarted) {
				b.Errorf("got %v", err)
			}
			if call := p.effect("c").Deciding(); !call.NotStarted || call.State != "failed" || prov.count() != 0 {
				b.Errorf("called %d times, recorded %+v", prov.count(), call)
			}
			// It reached nobody, so it may be called, and does not count.
			return once(ctx, tag("x"), prov.do)
		})
		if prov.count() != 1 || p.effect("c").State() != "committed" {
			b.Errorf("called %d times, is %s", prov.count(), p.effect("c").State())
		}
	})
}

// The process's clock stood still, as it does when a machine is
// suspended, and the ledger's went on.
func TestACallThatIsLateByTheLedgersClockIsNotMade(t *testing.T) {
	onMemory(t, func(b *bench) {
		stopped := time.Now()
		p := b.processWith(runs.Config{}, func(s *seam.Seam) { s.Now = func() time.Time { return stopped } })
		prov := &provider{}
		_ = p.deliver(job(1), func(ctx context.Context) error {
			p.spy.OnApply(func(_ context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
				r, err := apply()
				if w.Durable {
					p.spy.OnApply(nil)
					r.Now += 61_000
				}
				return r, err
			})
			err := once(ctx, tag("x"), prov.do)
			if !errors.Is(err, runs.ErrNotStarted) || prov.count() != 0 {
				b.Errorf("called %d times: %v", prov.count(), err)
			}
			return nil
		})
	})
}

package runs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// broken ends a ctx in the two ways in which queues do.
var broken = map[string]func(ctx context.Context) (context.Context, func()){
	"cancelled": func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel
	},
	"past its deadline": func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		return ctx, func() {
			<-ctx.Done()
			cancel()
		}
	},
}

func TestACtxThatIsDoneStopsTheClaimAndNothingAfterIt(t *testing.T) {
	for name, derive := range broken {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				point string
				calls int
			}{
				{"before begin", 0},
				{"before once", 0},
				{"before the effect returns", 1},
				{"before settle", 1},
				{"before end", 1},
			} {
				t.Run(c.point, func(t *testing.T) {
					on := onEach
					if name != "cancelled" {
						on = onMemory // the ledger sees no difference
					}
					on(t, func(b *bench) {
						p := b.process()
						prov := &provider{}
						ctx, end := derive(b.Context())
						if c.point == "before begin" {
							end()
						}
						v := p.Deliver(ctx, job(1, "m1"), runs.Delivery{}, func(ctx context.Context) error {
							if c.point == "before once" {
								end()
							}
							if c.point == "before settle" {
								p.spy.OnApply(func(_ context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
									if !w.Durable {
										p.spy.OnApply(nil)
										end()
									}
									return apply()
								})
							}
							got, err := runs.Intent[string]{Name: "reply"}.Once(ctx, runs.ID("m1"), func(ctx context.Context, call *runs.Call) (string, error) {
								if c.point == "before the effect returns" {
									end()
								}
								return "sent", prov.do(ctx, call)
							})
							if c.calls == 1 && (err != nil || got != "sent") {
								b.Errorf("got %q, %v", got, err)
							}
							if c.calls == 0 && !errors.Is(err, ctx.Err()) {
								b.Errorf("got %v", err)
							}
							if c.point == "before end" {
								end()
							}
							return err
						})
						h := p.history("c")
						switch {
						case c.point == "before begin":
							if v.Action != runs.ActionReturn || !errors.Is(v.Err, ctx.Err()) || h.Head != nil {
								b.Errorf("got %+v, head %+v", v, h.Head)
							}
						case c.calls == 0:
							if len(h.Effects) != 0 || v.Action != runs.ActionReturn || len(h.Head.Seats) != 0 {
								b.Errorf("got %+v, %d effects", v, len(h.Effects))
							}
						case h.Effects[0].State() != "committed" || v.Action != runs.ActionDone || !h.Runs[0].Finished():
							b.Errorf("got %+v, the effect is %s, the run %s", v, h.Effects[0].State(), h.Runs[0].State)
						}
						if prov.count() != c.calls {
							b.Errorf("called %d times", prov.count())
						}
						if len(p.told("ledger_error")) != 0 {
							b.Errorf("a queue's ctx is no ledger's error: %v", p.told("ledger_error"))
						}
					})
				})
			}
		})
	}
}

func TestAnOutcomeThatCannotBeRecordedIsSaidAndComesWithTheValue(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		down := errors.New("connection refused")
		start := time.Now()
		v := p.deliver(job(1), func(ctx context.Context) error {
			got, err := refund.Once(ctx, runs.ID("o1"), func(context.Context, *runs.Call) (receipt, error) {
				p.spy.breaks(down)
				return receipt{"r1", 500}, nil
			})
			wantOutcome(b, err, runs.OutcomeNotRecorded, false)
			if got != (receipt{"r1", 500}) || !errors.Is(err, down) {
				b.Errorf("got %+v, %v", got, err)
			}
			if took := time.Since(start); took != 10*time.Second {
				b.Errorf("it was tried for %v", took)
			}
			p.spy.breaks(nil)
			return err
		})
		wantVerdict(b, v, runs.ActionComeBack, "in_flight") // still pending, and the run's own
		if told := p.told("not_recorded"); len(told) != 1 || !errors.Is(told[0].Err, down) || told[0].Text != "committed" {
			b.Errorf("told %+v", told)
		}
		time.Sleep(2 * time.Minute)
		if e := p.effect("c"); e.State() != "ambiguous" {
			b.Errorf("is %s after its deadline", e.State())
		}
	})
}

func TestALedgerThatHangsHoldsUpAShutdownNoLongerThanTheBound(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.processWith(runs.Config{SettleTimeout: 3 * time.Second}, nil)
		ctx, cancel := context.WithCancel(b.Context())
		var hangs time.Time
		v := p.Deliver(ctx, job(1), runs.Delivery{}, func(ctx context.Context) error {
			err := once(ctx, tag("x"), func(context.Context, *runs.Call) error {
				hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				p.spy.OnLoad(hang)
				p.spy.OnApply(func(ctx context.Context, _ ledger.Write, _ func() (ledger.Result, error)) (ledger.Result, error) {
					return ledger.Result{}, hang(ctx)
				})
				hangs = time.Now()
				cancel()
				return nil
			})
			if took := time.Since(hangs); took != 3*time.Second {
				b.Errorf("the settle took %v", took)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionRetry, "ledger")
		if took := time.Since(hangs); took != 3300*time.Millisecond {
			b.Errorf("settle and conclusion took %v together", took)
		}
		p.spy.breaks(nil)
	})
}

func TestValuesOfTheCtxReachTheLedgerAndTheObserver(t *testing.T) {
	onMemory(t, func(b *bench) {
		type trace struct{}
		seen := map[runs.EventKind]any{}
		var mu sync.Mutex
		p := b.processWith(runs.Config{Observer: func(ctx context.Context, e runs.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen[e.Kind] = ctx.Value(trace{})
		}}, nil)
		p.spy.OnApply(func(ctx context.Context, _ ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
			if ctx.Value(trace{}) != "t1" {
				b.Error("the ledger got another ctx")
			}
			return apply()
		})
		ctx, cancel := context.WithCancel(context.WithValue(b.Context(), trace{}, "t1"))
		_ = p.Deliver(ctx, job(1), runs.Delivery{}, func(ctx context.Context) error {
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error { cancel(); return nil })
		})
		for _, kind := range []runs.EventKind{"begun", "claimed", "committed", "ended"} {
			if seen[kind] != "t1" {
				b.Errorf("%s: the observer got %v", kind, seen[kind])
			}
		}
	})
}

func TestAClaimWhoseQuestionWasBrokenOffIsTakenBack(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		ctx, cancel := context.WithCancel(b.Context())
		v := p.Deliver(ctx, job(1), runs.Delivery{}, func(ctx context.Context) error {
			p.spy.OnApply(func(_ context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
				r, err := apply()
				if w.Durable {
					p.spy.OnApply(nil)
					cancel() // written, and the answer is not heard any more
					return ledger.Result{}, ctx.Err()
				}
				return r, err
			})
			return once(ctx, tag("x"), prov.do)
		})
		wantVerdict(b, v, runs.ActionReturn, "")
		if call := p.effect("c").Deciding(); call.State != "failed" || !call.NotStarted {
			b.Errorf("recorded %+v", call)
		}
		// So the next delivery need not wait for the deadline of a call that nobody made.
		v = p.deliver(job(1), func(ctx context.Context) error { return once(ctx, tag("x"), prov.do) })
		wantVerdict(b, v, runs.ActionDone, "")
		if prov.count() != 1 {
			b.Errorf("called %d times", prov.count())
		}
	})
}

func TestAClaimIsFoundAgainAfterItsAnswerWasLost(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		lost := 0
		p.spy.OnApply(func(_ context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
			r, err := apply()
			if lost < 1 {
				lost++
				return ledger.Result{}, errors.New("connection reset")
			}
			return r, err
		})
		v := p.deliver(job(1), func(ctx context.Context) error { // Begin's answer
			lost = 0
			return once(ctx, tag("x"), func(ctx context.Context, call *runs.Call) error { // the claim's
				lost = 0
				return prov.do(ctx, call)
			}) // the settle's
		})
		wantVerdict(b, v, runs.ActionDone, "")
		e := p.effect("c")
		if prov.count() != 1 || len(e.Calls) != 1 || e.State() != "committed" || p.run(job(1)).Delivery.Number != 1 {
			b.Errorf("called %d times, recorded %+v", prov.count(), e)
		}
	})
}

// A claim was written, its answer was lost, and before it was asked for again a person
// declared that it had not happened. The call may be made, but it is another one.
func TestAClaimThatWasResolvedWhileItsAnswerWasLostIsAnotherOne(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		prov := &provider{}
		_ = p.deliver(job(1), func(ctx context.Context) error {
			p.spy.OnApply(func(_ context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
				r, err := apply()
				if !w.Durable {
					return r, err
				}
				p.spy.OnApply(nil)
				_, _, err = q.Resolve(ctx, "c", q.effect("c").ID, runs.Resolution{By: "me", Force: true})
				if err != nil {
					b.Error(err)
				}
				return ledger.Result{}, errors.New("connection reset")
			})
			return once(ctx, tag("x"), prov.do)
		})
		e := p.effect("c")
		if prov.count() != 1 || len(e.Calls) != 2 || e.Calls[0].State != "failed" || e.Calls[1].State != "committed" || e.Calls[0].Claim == e.Calls[1].Claim {
			b.Errorf("called %d times, recorded %+v", prov.count(), e.Calls)
		}
		if len(p.told("duplicate")) != 0 {
			b.Error("one call was taken for a duplicate of itself")
		}
	})
}

// Call 1 times out, its claim lapses, a person says that it did not happen; call 2 is made, and
// then the truth about call 1 arrives.
func TestLateEvidenceAboutCallOneStandsBesideCallTwo(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		in := runs.Intent[string]{Name: "refund"}
		var late *runs.Claim
		_ = p.deliver(job(1), func(ctx context.Context) error {
			var err error
			late, err = in.Claim(ctx, runs.ID("o1"), time.Minute)
			return err
		})
		time.Sleep(2 * time.Minute)
		if _, _, err := p.Resolve(b.Context(), "c", late.Call().Effect.ID, runs.Resolution{By: "me", Note: "not in the books"}); err != nil {
			b.Fatal(err)
		}
		v := p.deliver(job(1), func(ctx context.Context) error {
			got, err := in.Once(ctx, runs.ID("o1"), func(_ context.Context, call *runs.Call) (string, error) {
				call.SetReference("ref-2")
				return "two", nil
			})
			if got != "two" {
				b.Errorf("got %q", got)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if err := late.Commit(b.Context(), "one", "ref-1"); err != nil {
			b.Errorf("late: %v", err)
		}
		calls := p.effect("c").Calls
		if len(calls) != 2 || string(calls[0].Result) != `"one"` || !calls[0].Late || string(calls[1].Result) != `"two"` || calls[1].Reference != "ref-2" {
			b.Errorf("recorded %+v", calls)
		}
		if len(p.told("duplicate")) != 1 || len(p.told("late")) != 1 {
			b.Errorf("told %v %v", p.told("duplicate"), p.told("late"))
		}
	})
}

func TestTextFromOutsideNeverMakesASettleFailAndIsTheSameOnEveryLedger(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.processWith(runs.Config{Worker: "w\xff"}, nil)
		long := strings.Repeat("é", 2000)
		references := []string{"\xff\x00", long, long + "\xff"}
		for i, reference := range references {
			in := runs.Intent[int]{Name: "pay", Distinct: true}
			_, err := in.OnceOn(b.Context(), p.Keeper, "c", runs.Key("n", i), func(_ context.Context, call *runs.Call) (int, error) {
				call.SetReference(reference)
				return 1, nil
			}, runs.With{Summary: "sum\xff" + long})
			if err != nil {
				b.Errorf("%d: %v", i, err)
			}
			reported, err := p.Report(b.Context(), "c", runs.Write{ID: string(rune('a' + i)), Reference: reference, Summary: "\xff", By: "\xff"})
			if err != nil || reported.Echo == "" {
				b.Errorf("%d: the echo was not recognised: %+v, %v", i, reported, err)
			}
		}
		_, err := runs.Intent[int]{Name: "pay", Distinct: true}.OnceOn(b.Context(), p.Keeper, "c", runs.ID("f"), func(context.Context, *runs.Call) (int, error) {
			return 0, runs.NotApplied(errors.New("\xff" + long))
		})
		wantOutcome(b, err, runs.OutcomeFailed, true)
		for _, e := range p.history("c").Effects {
			call := e.Deciding()
			for _, text := range []string{call.Reference, call.Summary, call.Error, call.By} {
				if !utf8.ValidString(text) {
					b.Errorf("kept as it came: %q", text)
				}
			}
			if len(call.Reference) > 512 || len(call.Error) > 3<<10 {
				b.Errorf("kept %d bytes of a reference, %d of an error", len(call.Reference), len(call.Error))
			}
		}
	})
}

func TestNamespacesShareNothingButTheLedger(t *testing.T) {
	onEach(t, func(b *bench) {
		prov := &provider{}
		one, two := b.processWith(runs.Config{Namespace: "one"}, nil), b.processWith(runs.Config{Namespace: "two"}, nil)
		keys := map[string]bool{}
		for _, p := range []*process{one, two} {
			v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
				return once(ctx, reply("m1"), func(ctx context.Context, call *runs.Call) error {
					keys[call.IdempotencyKey] = true
					return prov.do(ctx, call)
				})
			})
			wantVerdict(b, v, runs.ActionDone, "")
			if h := p.history("c"); len(h.Effects) != 1 || len(h.Runs) != 1 {
				b.Errorf("sees %d effects, %d runs", len(h.Effects), len(h.Runs))
			}
		}
		if prov.count() != 2 || len(keys) != 2 {
			b.Errorf("called %d times with %d idempotency keys", prov.count(), len(keys))
		}
		if cancelled, err := two.Cancel(b.Context(), key(job(2)), runs.CancelOptions{By: "me"}); !cancelled || err != nil {
			b.Error(cancelled, err)
		}
		wantVerdict(b, one.deliver(job(2), idle), runs.ActionDone, "")
		wantVerdict(b, two.deliver(job(2), idle), runs.ActionDrop, "cancelled")
	})
}

// The rules meet memory's clock only: two processes whose clocks are ten minutes apart decide
// alike (rule S3.3).
func TestSkewBetweenProcessesChangesNoDecision(t *testing.T) {
	onMemory(t, func(b *bench) {
		store := memledger.New()
		b.open = func() (ledger.Store, error) { return store, nil }
		skewed := func(d time.Duration) *process {
			return b.processWith(runs.Config{}, func(s *seam.Seam) { s.Now = func() time.Time { return time.Now().Add(d) } })
		}
		slow, fast := skewed(-10*time.Minute), skewed(10*time.Minute)
		v := slow.deliver(exclusive(job(1)), func(ctx context.Context) error {
			for range 4 {
				time.Sleep(20 * time.Second)
				wantVerdict(b, fast.deliver(exclusive(job(2)), idle), runs.ActionComeBack, "busy")
				if ctx.Err() != nil {
					b.Errorf("lost: %v", context.Cause(ctx))
				}
			}
			c, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			if record, err := fast.Check(ctx, "c", tag("x")); err != nil || record.State != "pending" {
				b.Errorf("the fast one sees %s, %v", record.State, err)
			}
			return c.Commit(ctx, nil, "")
		})
		wantVerdict(b, v, runs.ActionDone, "")
		wantVerdict(b, fast.deliver(exclusive(job(2)), idle), runs.ActionDone, "")
	})
}

// The ledger is away for a second just when the handler returns. The run ends all the same: the
// job is not executed once more, and nobody waits for its lease.
func TestAnEndOutlastsAShortOutage(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		away := errors.New("the ledger is away")
		v := p.deliver(job(1), func(context.Context) error {
			p.spy.breaks(away)
			back := time.AfterFunc(time.Second, func() { p.spy.breaks(nil) })
			b.Cleanup(func() { back.Stop() })
			return nil
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if r := p.run(job(1)); r == nil || !r.Finished() {
			b.Errorf("the run has not ended: %+v", r)
		}
	})
}

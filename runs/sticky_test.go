package runs_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// What a handler cannot settle by swallowing an error: an unresolved effect that its run owns,
// and the loss of its right to write.

var errNoAnswer = errors.New("no answer")

func TestAnUnknownEffectHoldsItsJobUpWhateverTheHandlerReturns(t *testing.T) {
	for _, c := range []struct {
		name    string
		returns func(err error) error
	}{
		{"its error", func(err error) error { return err }},
		{"nil", func(error) error { return nil }},
		{"an error of its own", func(error) error { return errors.New("mine") }},
		{"another refusal", func(error) error { return &runs.RefusedError{Reason: "params_changed"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				prov := &provider{}
				handler := func(ctx context.Context) error {
					return c.returns(once(ctx, tag("x"), prov.does(errNoAnswer)))
				}
				v := p.deliver(job(1), handler)
				if v.Action != runs.ActionComeBack {
					b.Fatalf("got %+v", v)
				}
				// Late evidence may arrive until one quiet period after the claim's deadline:
				// 2 min and 2 min. Never is a job parked before.
				if v.After < 4*time.Minute || v.After > 4*time.Minute+13*time.Second {
					b.Errorf("come back after %v", v.After)
				}
				time.Sleep(3 * time.Minute)
				if v = p.deliver(job(1), handler); v.Action != runs.ActionComeBack || v.After > 64*time.Second {
					b.Errorf("in the quiet period: %+v", v)
				}
				time.Sleep(v.After)
				v = p.deliver(job(1), handler)
				if v.Action != runs.ActionPark || v.Note == "" {
					b.Errorf("after the quiet period: %+v", v)
				}
				if r := p.run(job(1)); r.State != "active" || r.Parked != v.Reason || len(p.history("c").Head.Seats) != 0 {
					b.Errorf("the run: %+v", r)
				}
				if prov.count() != 1 {
					b.Errorf("called %d times", prov.count())
				}
				// A person finds out; the job is run again.
				if _, _, err := p.Resolve(b.Context(), "c", p.effect("c").ID, runs.Resolution{Happened: true, By: "me"}); err != nil {
					b.Fatal(err)
				}
				v = p.deliver(job(1), func(ctx context.Context) error { return once(ctx, tag("x"), prov.do) })
				wantVerdict(b, v, runs.ActionDone, "")
				if prov.count() != 1 {
					b.Errorf("called %d times", prov.count())
				}
			})
		})
	}
}

func TestAnEffectThatAnEarlierDeliveryLeftUnknownIsTheRunsOwn(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1), func(ctx context.Context) error { return once(ctx, tag("x"), (&provider{}).does(errNoAnswer)) })
		for _, err := range []error{nil, errors.New("mine")} {
			v := b.process().deliverLast(job(1), func(context.Context) error { return err })
			wantVerdict(b, v, runs.ActionComeBack, "unresolved")
		}
		if r := p.run(job(1)); r.State != "active" {
			b.Errorf("the run: %+v", r)
		}
	})
}

func TestAMessageThatOthersHaveTakenDoesNotReplaceTheHandlersOwnError(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(2, "m1"), func(ctx context.Context) error {
			return once(ctx, reply("m1"), (&provider{}).does(errNoAnswer))
		})
		mine := errors.New("mine")
		if v := p.deliver(job(1, "m1"), func(context.Context) error { return mine }); !same(v.Err, mine) {
			b.Errorf("got %+v", v)
		}
		// But it may not end with success: resolved as failed, nobody would answer.
		wantVerdict(b, p.deliver(job(1, "m1"), idle), runs.ActionComeBack, "unresolved")
	})
}

// A newer job took care of everything but a message that an unknown effect has taken.
func TestAJobIsParkedAtBeginWhenItsMessageIsTakenByTheUnknown(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(2, "m2"), func(ctx context.Context) error {
			return once(ctx, reply("m1"), (&provider{}).does(errNoAnswer))
		})
		third := p.deliver(job(3, "m3"), func(ctx context.Context) error { return once(ctx, reply("m3"), nothing) })
		wantVerdict(b, third, runs.ActionDone, "")
		never := func(context.Context) error { b.Error("entered"); return nil }
		wantVerdict(b, p.deliver(job(1, "m1"), never), runs.ActionComeBack, "unresolved")
		time.Sleep(5 * time.Minute)
		wantVerdict(b, p.deliver(job(1, "m1"), never), runs.ActionPark, "unresolved")
		if told := p.told("parked"); len(told) != 1 || told[0].Run != key(job(1)) || told[0].Reason != "unresolved" {
			b.Errorf("told %v", told)
		}
	})
}

func TestAJobComesBackForAMessageThatItLeftToOthersAndThatIsOpenAgain(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		var other *runs.Claim
		_ = p.deliver(job(2), func(ctx context.Context) (err error) {
			other, err = runs.FromContext(ctx).Claim(ctx, reply("m1"), time.Hour)
			return err
		})
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			view, err := runs.FromContext(ctx).CatchUp(ctx)
			if len(view.OpenIDs()) != 0 {
				b.Errorf("open %v", view.OpenIDs())
			}
			if err := other.Fail(ctx, runs.NotApplied(errNoAnswer)); err != nil {
				b.Error(err)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionComeBack, "open_again")
		v = p.deliver(job(1, "m1"), func(ctx context.Context) error { return once(ctx, reply("m1"), nothing) })
		wantVerdict(b, v, runs.ActionDone, "")
	})
}

func TestAJobIsRetriedWhileItsProviderHonoursTheKey(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		in := runs.Intent[int]{Name: "pay", HonoursKey: time.Hour}
		keys := map[string]int{}
		answers := false
		handler := func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("x"), func(_ context.Context, call *runs.Call) (int, error) {
				keys[call.IdempotencyKey]++
				if !answers {
					return 0, errNoAnswer
				}
				return 7, nil
			})
			return err
		}
		v := p.deliver(job(1), handler)
		wantVerdict(b, v, runs.ActionRetry, "unresolved")
		answers = true
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionDone, "")
		for k, n := range keys {
			if n != 2 || len(keys) != 1 {
				b.Errorf("called %d times under %s", n, k)
			}
		}
		answers = false
		handler2 := func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("y"), func(context.Context, *runs.Call) (int, error) { return 0, errNoAnswer })
			return err
		}
		wantVerdict(b, p.deliver(job(2), handler2), runs.ActionRetry, "unresolved")
		time.Sleep(55 * time.Minute) // of which 6 are the margin
		wantVerdict(b, p.deliver(job(2), handler2), runs.ActionPark, "ambiguous")
	})
}

func TestAnEffectThatIsSafeToRepeatIsRepeated(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		in := runs.Intent[int]{Name: "set", Repeatable: true}
		n := 0
		handler := func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (int, error) {
				if n++; n == 1 {
					return 0, errNoAnswer
				}
				return n, nil
			})
			return err
		}
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionRetry, "unresolved")
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionDone, "")
	})
}

func TestAJobThatWasSupersededAtWorkComesBackOrIsDroppedThoughItSwallowedTheError(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			released := make(chan struct{})
			go func() {
				defer close(released)
				_ = p.deliver(job(2, "m2"), func(context.Context) error {
					time.Sleep(20 * time.Second)
					return errors.New("wrote nothing")
				})
			}()
			time.Sleep(time.Second)
			if err := once(ctx, reply("m1"), prov.do); !errors.Is(err, runs.ErrSuperseded) {
				b.Errorf("got %v", err)
			}
			if !errors.Is(context.Cause(ctx), runs.ErrSuperseded) {
				b.Errorf("cause %v", context.Cause(ctx))
			}
			<-released
			// The newer one is gone. What was lost stays lost for this delivery: it may have
			// stopped half-way.
			if err := once(ctx, reply("m1"), prov.do); !errors.Is(err, runs.ErrSuperseded) {
				b.Errorf("got %v", err)
			}
			return nil
		})
		wantVerdict(b, v, runs.ActionComeBack, "superseded")
		if prov.count() != 0 {
			b.Error("called")
		}
		v = p.deliver(job(1, "m1"), func(ctx context.Context) error {
			w := p.deliver(job(2, "m2"), func(ctx context.Context) error { return once(ctx, reply("m1", "m2"), prov.do) })
			wantVerdict(b, w, runs.ActionDone, "")
			return once(ctx, reply("m1"), prov.do)
		})
		wantVerdict(b, v, runs.ActionDrop, "superseded")
		if r := p.run(job(1)); r.End != "superseded" {
			b.Errorf("the run: %+v", r)
		}
		if prov.count() != 1 {
			b.Errorf("answered %d times", prov.count())
		}
	})
}

func TestAJobThatWasSupersededAfterItDidEverythingIsDone(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			if err := once(ctx, reply("m1"), nothing); err != nil {
				b.Error(err)
			}
			done := make(chan struct{})
			b.Cleanup(func() { <-done })
			go func() {
				defer close(done)
				_ = p.deliver(job(2, "m2"), func(context.Context) error { time.Sleep(time.Minute); return nil })
			}()
			time.Sleep(time.Second)
			if err := once(ctx, tag("nice to have"), nothing); !errors.Is(err, runs.ErrSuperseded) {
				b.Errorf("got %v", err)
			}
			if err := runs.FromContext(ctx).SaveProgress(context.WithoutCancel(ctx), 1); !errors.Is(err, runs.ErrSuperseded) {
				b.Errorf("got %v", err)
			}
			return nil
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if !p.run(job(1)).Finished() || v.Note == "" {
			b.Errorf("got %+v", v)
		}
	})
}

func TestACancelledRunIsDroppedThoughItSwallowedTheError(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			if _, err := p.Cancel(ctx, key(job(1)), runs.CancelOptions{By: "me", Dismiss: true}); err != nil {
				b.Error(err)
			}
			if err := once(ctx, reply("m1"), nothing); !errors.Is(err, runs.ErrCancelled) {
				b.Errorf("got %v", err)
			}
			return nil
		})
		wantVerdict(b, v, runs.ActionDrop, "cancelled")
		if h := p.history("c"); len(h.Effects) != 0 || !h.Inbound[0].Closed() {
			b.Errorf("history %+v", h)
		}
		// One that never asks learns it at the end.
		v = p.deliver(job(2), func(ctx context.Context) error {
			_, err := p.Cancel(ctx, key(job(2)), runs.CancelOptions{By: "me"})
			return err
		})
		wantVerdict(b, v, runs.ActionDrop, "cancelled")
	})
}

func TestARunThatEndedUnderItsHandlerIsDropped(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			w := p.deliver(job(2, "m2"), func(ctx context.Context) error { return once(ctx, reply("m1", "m2"), prov.do) })
			wantVerdict(b, w, runs.ActionDone, "")
			// The queue delivers the first once more, whose Begin is refused for good and ends
			// the run.
			w = p.deliver(job(1, "m1"), func(context.Context) error { b.Error("entered"); return nil })
			wantVerdict(b, w, runs.ActionDrop, "superseded")
			if err := once(ctx, tag("x"), prov.do); !errors.Is(err, runs.ErrEnded) {
				b.Errorf("got %v", err)
			}
			return nil
		})
		wantVerdict(b, v, runs.ActionDrop, "superseded")
		if prov.count() != 1 {
			b.Errorf("called %d times", prov.count())
		}
	})
}

// A database that crashed has forgotten an asynchronous Begin.
func TestARunThatTheLedgerForgotIsRetried(t *testing.T) {
	for name, ask := range map[string]bool{"noticed at a claim": true, "noticed at the end": false} {
		t.Run(name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
					forget(b, p)
					if ask {
						if err := once(ctx, tag("x"), nothing); !errors.Is(err, runs.ErrNoRun) {
							b.Errorf("got %v", err)
						}
					}
					return nil
				})
				wantVerdict(b, v, runs.ActionRetry, "no_run")
				wantVerdict(b, p.deliver(job(1, "m1"), idle), runs.ActionDone, "")
			})
		})
	}
}

func TestReplayOnlyDoesNotEnterARunThatWroteOrMayHave(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		only := runs.Delivery{ReplayOnly: true}
		n := 0
		wrote := func(err error) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				n++ // a key that is not stable
				if err := once(ctx, tag(strconv.Itoa(n)), (&provider{}).does(err)); err != nil {
					return err
				}
				return errors.New("later")
			}
		}
		never := func(context.Context) error { b.Error("entered"); return nil }

		wantVerdict(b, p.Deliver(b.Context(), job(1), only, wrote(nil)), runs.ActionReturn, "")
		v := p.Deliver(b.Context(), job(1), only, never)
		wantVerdict(b, v, runs.ActionDone, "replay_only")
		if !p.run(job(1)).Finished() || v.Note == "" {
			b.Errorf("got %+v", v)
		}

		wantVerdict(b, p.Deliver(b.Context(), job(2), only, wrote(errNoAnswer)), runs.ActionComeBack, "unresolved")
		wantVerdict(b, p.Deliver(b.Context(), job(2), only, never), runs.ActionComeBack, "unresolved")

		// One that wrote nothing is entered again.
		_ = p.Deliver(b.Context(), job(3), only, func(context.Context) error { return errors.New("later") })
		entered := false
		v = p.Deliver(b.Context(), job(3), only, func(context.Context) error { entered = true; return nil })
		wantVerdict(b, v, runs.ActionDone, "")
		if !entered {
			b.Error("not entered")
		}
	})
}

// What was written under another payload does not finish a job that was edited since (rule S4.2).
func TestReplayOnlyEntersAnEditedJobUntilItsNewPayloadWrote(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		only := runs.Delivery{ReplayOnly: true}
		later := errors.New("later")
		write := func(name string) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				if _, err := runs.FromContext(ctx).CatchUp(ctx); err != nil {
					return err
				}
				if err := once(ctx, tag(name), (&provider{}).do); err != nil {
					return err
				}
				return later
			}
		}
		never := func(context.Context) error { b.Error("entered"); return nil }

		wantVerdict(b, p.Deliver(b.Context(), job(1), only, write("before")), runs.ActionReturn, "")
		edited := job(1)
		edited.Digest = "edited"
		entered := 0
		for range 2 { // the first of them dies before it has written anything
			v := p.Deliver(b.Context(), edited, only, func(context.Context) error { entered++; return later })
			wantVerdict(b, v, runs.ActionReturn, "")
		}
		if entered != 2 {
			b.Errorf("entered %d times", entered)
		}
		wantVerdict(b, p.Deliver(b.Context(), edited, only, write("after")), runs.ActionReturn, "")
		wantVerdict(b, p.Deliver(b.Context(), edited, only, never), runs.ActionDone, "replay_only")
	})
}

func TestAPanicOnTheLastAttemptEndsTheRun(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		boom := func(d runs.Delivery) {
			defer func() {
				if recover() != "boom" {
					b.Error("the panic did not pass")
				}
			}()
			p.Deliver(b.Context(), job(1, "m1"), d, func(context.Context) error { panic("boom") })
		}
		boom(runs.Delivery{})
		if r := p.run(job(1)); r.State != "active" {
			b.Errorf("the run: %+v", r)
		}
		boom(runs.Delivery{Permanent: func(error) bool { return true }})
		if r := p.run(job(1)); r.End != "discarded" {
			b.Errorf("the run: %+v", r)
		}
	})
}

func TestAClaimAfterTheHandlerReturnedIsRefusedAndWhatWasDoneIsReplayed(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		var kept context.Context
		e := tag("x")
		e.Params = 1
		v := p.deliver(job(1, "m1", "m2"), func(ctx context.Context) error {
			kept = context.WithoutCancel(ctx) //nolint:fatcontext // what a goroutine that goes on holds
			if err := once(ctx, reply("m1"), nothing); err != nil {
				b.Error(err)
			}
			if err := runs.FromContext(ctx).Dismiss(ctx, []string{"m2"}, "thanks"); err != nil {
				b.Error(err)
			}
			return once(ctx, e, nothing)
		})
		wantVerdict(b, v, runs.ActionDone, "")
		run := runs.FromContext(kept)
		called := func(context.Context, *runs.Call) error { b.Error("called"); return nil }
		if err := once(kept, e, called); err != nil {
			b.Errorf("replay: %v", err)
		}
		e.Params = 2
		_, view := run.CatchUp(kept)
		_, claim := run.Claim(kept, tag("y"), time.Minute)
		for name, err := range map[string]error{
			"another effect":  once(kept, tag("y"), called),
			"other params":    once(kept, e, called),
			"another message": once(kept, runs.Effect{Intent: "reply", Key: runs.ID("m1"), Answers: []string{"m1", "m2"}}, called),
			"catch up":        view,
			"claim":           claim,
			"save progress":   run.SaveProgress(kept, 1),
			"dismiss":         run.Dismiss(kept, []string{"m1"}, ""),
		} {
			if !errors.Is(err, runs.ErrEnded) {
				b.Errorf("%s: got %v", name, err)
			}
		}
	})
}

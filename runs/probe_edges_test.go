package runs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Where probes meet the rest: ReplayOnly, edited jobs, ends, panics, shutdowns, several unknowns.

func TestAnEditedJobIsEnteredThoughItsProbeFoundWhatItWroteBefore(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", false)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		j := job(1)
		j.Digest = "old"
		v := p.Deliver(b.Context(), j, runs.Delivery{ReplayOnly: true}, func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("x"), d.send(errNoAnswer))
			return err
		})
		if v.Action != runs.ActionComeBack {
			b.Fatalf("%+v", v)
		}
		time.Sleep(quietOver)
		j.Digest = "new"
		entered := false
		v = p.Deliver(b.Context(), j, runs.Delivery{ReplayOnly: true}, func(context.Context) error {
			entered = true
			return nil
		})
		if !entered {
			b.Errorf("edited job not entered: %+v", v)
		}
	})
}

func TestAnEditedJobIsEnteredThoughASweepFoundWhatItWroteBefore(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", false)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		j := job(1)
		j.Digest = "old"
		p.Deliver(b.Context(), j, runs.Delivery{ReplayOnly: true}, func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("x"), d.send(errNoAnswer))
			return err
		})
		time.Sleep(quietOver)
		p.Sweep(b.Context())
		j.Digest = "new"
		entered := false
		v := p.Deliver(b.Context(), j, runs.Delivery{ReplayOnly: true}, func(context.Context) error {
			entered = true
			return nil
		})
		if !entered {
			b.Errorf("edited job not entered: %+v", v)
		}
	})
}

func TestAProbeThatPanicsBeforeTheHandlerGivesTheLeaseUp(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.answers = func(runs.Question) (runs.Found[string], error) { panic("boom") }
		in := d.intent("refund", false)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		unknown(b, p, in, d.send(errNoAnswer))
		time.Sleep(quietOver)
		func() {
			defer func() { _ = recover() }()
			p.Deliver(b.Context(), job(1), runs.Delivery{ReplayOnly: true}, func(context.Context) error { return nil })
		}()
		time.Sleep(10 * time.Minute)
		if l := p.history("c").Live; len(l) != 0 {
			b.Errorf("ten minutes after the panic the lease is still renewed: %+v", l)
		}
	})
}

func TestAJobWaitsForTheNextProbeThoughAnotherOutcomeIsKnown(t *testing.T) {
	for _, both := range []bool{true, false} {
		t.Run(fmt.Sprint(both), func(t *testing.T) {
			onMemory(t, func(b *bench) {
				d := newDesk()
				d.answers = func(q runs.Question) (runs.Found[string], error) {
					if q.Effect.Key == `"a"` && both {
						return runs.Applied("found", ""), nil
					}
					return runs.Found[string]{}, errors.New("503")
				}
				in := d.intent("refund", false)
				p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
				h := func(ctx context.Context) error {
					for _, k := range []string{"a", "b"} {
						_, _ = in.Once(ctx, runs.ID(k), d.send(errNoAnswer), runs.With{AfterUnresolved: true})
					}
					return nil
				}
				p.deliver(job(1), h)
				time.Sleep(quietOver)
				v := p.deliver(job(1), func(context.Context) error { return nil })
				if v.Action != runs.ActionComeBack {
					b.Errorf("End: want come back for the next probe of b, got %q after %v", v.Action, v.After)
				}
			})
		})
	}
}

func TestAClaimWaitsForTheNextProbeThoughAnotherOutcomeIsKnown(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.answers = func(q runs.Question) (runs.Found[string], error) {
			if q.Effect.Key == `"a"` {
				return runs.Applied("found", ""), nil
			}
			return runs.Found[string]{}, errors.New("503")
		}
		in := d.intent("refund", false)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		for _, k := range []string{"a", "b"} {
			_, _ = in.OnceOn(b.Context(), p.Keeper, "c", runs.ID(k), d.send(errNoAnswer), runs.With{AfterUnresolved: true})
		}
		time.Sleep(quietOver)
		v := p.deliver(job(1), func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("z"), d.send(nil))
			return err
		})
		if v.Action != runs.ActionComeBack {
			b.Errorf("Claim: want come back, got %+v", v)
		}
	})
}

func TestAJobWhoseEffectTurnsOutNotToHaveHappenedIsNotDone(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("reply", true)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			_, _ = in.Once(ctx, runs.ID("m1"), d.drop, runs.With{Answers: []string{"m1"}})
			time.Sleep(quietOver)
			return nil
		})
		if v.Action == runs.ActionDone {
			b.Errorf("done, though the reply is known not to have been made: %+v; unanswered %v", v, p.told(runs.EventUnanswered))
		}
	})
}

func TestNothingIsParkedBeforeTheDeadlineOfAnEarlierCall(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", true)
		in.HonoursKey = 32 * time.Minute
		in.Timeout = time.Minute
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		p.deliver(job(1), func(ctx context.Context) error {
			c, err := in.Claim(ctx, runs.ID("x"), time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			_ = c.Fail(ctx, errNoAnswer)
			_, err = in.Once(ctx, runs.ID("x"), d.drop)
			return err
		})
		if e := p.effect("c"); len(e.Calls) != 2 {
			b.Fatalf("%+v", e)
		}
		time.Sleep(45 * time.Minute)
		v := p.deliver(job(1), func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("x"), d.drop)
			return err
		})
		_, asked := d.counts()
		if v.Action == runs.ActionPark {
			b.Errorf("parked 45 minutes before the deadline of an open call: %+v (asked %d)", v, asked)
		}
	})
}

func TestAQuestionThatWasStoppedDoesNotCount(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := runs.Intent[string]{Name: "refund", ReadYourWrites: true, Probe: func(ctx context.Context, q runs.Question) (runs.Found[string], error) {
			select {
			case <-ctx.Done():
				return runs.Found[string]{}, ctx.Err()
			case <-time.After(5 * time.Second):
				return runs.NotFound[string](), nil
			}
		}}
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		unknown(b, p, in, d.drop)
		time.Sleep(quietOver)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		_, err := p.Sweep(ctx)
		got, err2 := p.Sweep(b.Context())
		if got.Asked != 1 {
			b.Errorf("after a sweep that was stopped (%v) the next says %+v, %v", err, got, err2)
		}
	})
}

func TestAConversationThatCannotBeReadStopsNoSweep(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", true)
		c := runs.Config{Intents: []runs.Declared{in}}
		p := b.processWith(c, nil)
		for _, conv := range []string{"bad", "good"} {
			_, _ = in.OnceOn(b.Context(), p.Keeper, conv, runs.ID("x"), d.drop)
			time.Sleep(time.Second)
		}
		time.Sleep(quietOver)
		p2 := b.processWith(c, nil)
		n := 0
		p2.spy.OnLoad(func(context.Context) error {
			if n++; n == 2 {
				return ledger.ErrCorrupt
			}
			return nil
		})
		got, err := p2.Sweep(b.Context())
		if got.Asked != 1 {
			b.Errorf("swept %+v, %v", got, err)
		}
	})
}

func TestAReplayOnlyJobThatIsFoundToHaveWrittenMeanwhileIsNotEntered(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", false)
		c := runs.Config{Intents: []runs.Declared{in}}
		p := b.processWith(c, nil)
		other := b.processWith(c, nil)
		unknown(b, p, in, d.send(errNoAnswer))
		time.Sleep(quietOver)
		p2 := b.processWith(c, nil)
		done := false
		p2.spy.OnApply(func(ctx context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error) {
			r, err := apply()
			if !done && err == nil && r.Applied {
				done = true // the Begin has landed
				if s, err := other.Sweep(b.Context()); s.Applied != 1 || err != nil {
					b.Errorf("%+v %v", s, err)
				}
			}
			return r, err
		})
		entered := false
		v := p2.Deliver(b.Context(), job(1), runs.Delivery{ReplayOnly: true}, func(context.Context) error {
			entered = true
			return nil
		})
		if entered {
			b.Errorf("the handler of a run that wrote is entered again (ReplayOnly): %+v", v)
		}
	})
}

func TestAProbeThatPanicsLeavesNobodyWaiting(t *testing.T) {
	for _, replayOnly := range []bool{true, false} {
		onMemory(t, func(b *bench) {
			d := newDesk()
			d.answers = func(runs.Question) (runs.Found[string], error) { panic("boom") }
			in := d.intent("refund", false)
			p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
			unknown(b, p, in, d.send(errNoAnswer))
			time.Sleep(quietOver)
			queue, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			func() {
				defer func() { _ = recover() }()
				p.Deliver(queue, job(1), runs.Delivery{ReplayOnly: replayOnly}, func(context.Context) error { return nil })
			}()
			at := time.Now()
			err := p.WaitStale(queue, job(1))
			if time.Since(at) > time.Second {
				b.Errorf("replayOnly %v: the adapter waits %v for its own lease (%v)", replayOnly, time.Since(at), err)
			}
		})
	}
}

func TestWhatAProbeHasSettledIsNoSecondRefusal(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		say := false
		d.answers = func(runs.Question) (runs.Found[string], error) {
			if say {
				return runs.Applied("found", ""), nil
			}
			return runs.Found[string]{}, errors.New("503")
		}
		in := runs.Intent[string]{Name: "reply", Probe: d.probe}
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		_, _ = in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("m1"), d.send(errNoAnswer), runs.With{Answers: []string{"m1"}})
		time.Sleep(quietOver)
		h := func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("other"), d.send(nil), runs.With{Answers: []string{"m1"}})
			return err
		}
		v := p.deliver(job(2), h)
		b.Logf("%+v", v)
		time.Sleep(v.After)
		say = true
		v = p.deliver(job(2), h)
		if v.Action == runs.ActionPark {
			b.Errorf("parked: %+v", v)
		}
	})
}

func TestTwoReferencesAreTwoDeeds(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.answers = func(runs.Question) (runs.Found[string], error) { return runs.NotFound[string](), nil } // wrong
		in := d.intent("refund", true)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		_, _ = in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), d.send(errNoAnswer))
		time.Sleep(quietOver)
		_, err := in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), func(ctx context.Context, call *runs.Call) (string, error) {
			if _, err := p.Report(ctx, "c", runs.Write{ID: "w", Intent: "refund", Reference: "R1", IdempotencyKey: call.IdempotencyKey}); err != nil {
				b.Error(err)
			}
			call.SetReference("R2")
			return "sent", nil
		})
		if e := p.effect("c"); len(p.told(runs.EventDuplicate)) == 0 {
			b.Errorf("R1 and R2 happened, and no duplicate was raised: %v; %+v", err, e.Calls)
		}
	})
}

func TestAKeyWindowLeavesRoomForACall(t *testing.T) {
	onMemory(t, func(b *bench) {
		const window = 5 * time.Minute
		in := runs.Intent[string]{Name: "refund", HonoursKey: window}
		p := b.process()
		seen, deeds := time.Time{}, 0
		send := func(err error) func(context.Context, *runs.Call) (string, error) {
			return func(ctx context.Context, _ *runs.Call) (string, error) {
				if !seen.IsZero() {
					time.Sleep(50 * time.Second) // a slow network, within the effect's timeout
				}
				if ctx.Err() == nil && (seen.IsZero() || time.Since(seen) > window) {
					seen = time.Now()
					deeds++
				}
				return "sent", err
			}
		}
		_, _ = in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), send(errNoAnswer))
		time.Sleep(4*time.Minute + 25*time.Second)
		_, err := in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), send(nil))
		if deeds != 1 {
			b.Errorf("%d deeds, %v, duplicates told: %v", deeds, err, p.told(runs.EventDuplicate))
		}
	})
}

func TestAnAnswerIsDroppedWhenTheEffectWasCalledAgain(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.takes = 20 * time.Second
		in := d.intent("refund", true)
		in.HonoursKey = time.Hour
		c := runs.Config{Intents: []runs.Declared{in}}
		p := b.processWith(c, nil)
		_, _ = in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), d.drop)
		time.Sleep(quietOver)
		done := make(chan runs.Swept)
		go func() { s, _ := p.Sweep(b.Context()); done <- s }()
		time.Sleep(time.Second)
		_, _ = in.OnceOn(b.Context(), b.processWith(c, nil).Keeper, "c", runs.ID("x"), d.send(errNoAnswer))
		s := <-done
		if e := p.effect("c"); e.State() != runs.Ambiguous || len(e.Calls) != 2 {
			b.Errorf("%+v %+v", s, e)
		}
		b.Logf("%+v", s)
	})
}

func TestAReplayOnlyJobIsNotDoneBecauseTheLedgerIsAway(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		p.deliver(job(1, "m1"), failing)
		loads := 0
		p.spy.OnLoad(func(context.Context) error {
			if loads++; loads > 1 { // Begin's is the first
				return errDown
			}
			return nil
		})
		v := p.Deliver(b.Context(), job(1, "m1"), runs.Delivery{ReplayOnly: true}, func(context.Context) error {
			b.Error("entered, though nobody knows what it wrote")
			return nil
		})
		wantVerdict(b, v, runs.ActionRetry, "ledger")
		p.spy.breaks(nil)
		entered := false
		p.Deliver(b.Context(), job(1, "m1"), runs.Delivery{ReplayOnly: true}, func(context.Context) error {
			entered = true
			return nil
		})
		if !entered {
			b.Error("a job that wrote nothing is not entered again")
		}
	})
}

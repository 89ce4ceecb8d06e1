package runs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

func TestCatchUpSaysWhatHappenedAndWhatIsOpenAndTaken(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		again := runs.Intent[int]{Name: "reply", HonoursKey: time.Hour}
		_ = p.deliver(job(1, "m1"), func(ctx context.Context) error {
			_, err := again.Once(ctx, runs.ID("m1"), func(context.Context, *runs.Call) (int, error) { return 0, errNoAnswer },
				runs.With{Params: map[string]int{"amount": 5}, Summary: "hello"})
			return err
		})
		v := p.deliver(job(2, "m2", "m3"), func(ctx context.Context) error {
			run := runs.FromContext(ctx)
			if _, err := p.Report(ctx, "c", runs.Write{ID: "w1", Intent: "note", Summary: "an agent"}); err != nil {
				b.Error(err)
			}
			view, err := run.CatchUp(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if len(view.Happened) != 1 || !view.Happened[0].Report || view.Happened[0].Summary != "an agent" {
				b.Errorf("happened: %+v", view.Happened)
			}
			if !slices.Equal(view.OpenIDs(), []string{"m2", "m3"}) || view.OpenCount != 3 || view.Open[0].ID != "m3" {
				b.Errorf("open: %+v of %d", view.Open, view.OpenCount)
			}
			if len(view.Taken) != 1 {
				b.Fatalf("taken: %+v", view.Taken)
			}
			taken := view.Taken[0]
			if taken.State != "ambiguous" || !taken.CallAgain || taken.Params != `{"amount":5}` || taken.Summary != "hello" || !slices.Equal(taken.Answers, []string{"m1"}) {
				b.Errorf("taken: %+v", taken)
			}
			// It may be called again as it was.
			k, err := runs.ParseKey(taken.Effect.Key)
			if err != nil {
				b.Fatal(err)
			}
			_, err = again.Once(ctx, k, func(context.Context, *runs.Call) (int, error) { return 1, nil },
				runs.With{Params: map[string]int{"amount": 5}})
			if err != nil {
				b.Errorf("called again: %v", err)
			}
			if view, err = run.CatchUp(ctx); err != nil || len(view.Happened)+len(view.Taken) != 0 || view.OpenCount != 2 {
				b.Errorf("its own write is no news: %+v, %v", view, err)
			}
			return run.Dismiss(ctx, view.OpenIDs(), "thanks")
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if _, err := runs.ParseKey("{"); err == nil {
			b.Error("ParseKey took nonsense")
		}
	})
}

func TestCatchUpListsTheNewestHundred(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		ids := make([]string, 120)
		for i := range ids {
			ids[i] = fmt.Sprintf("m%03d", i)
		}
		_ = p.deliver(job(1, ids...), func(ctx context.Context) error {
			view, err := runs.FromContext(ctx).CatchUp(ctx)
			if err != nil || len(view.Open) != 100 || view.OpenCount != 120 {
				b.Errorf("%d of %d, %v", len(view.Open), view.OpenCount, err)
			}
			return nil
		})
	})
}

func TestUntilCurrentReadsAgainUntilNothingHappensInBetween(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		rounds := 0
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
				if rounds++; rounds <= 2 {
					meanwhile(b, p)
				}
				if len(view.Happened) != min(rounds-1, 1) {
					b.Errorf("round %d: happened %+v", rounds, view.Happened)
				}
				err := once(ctx, reply("m1"), nothing)
				if err != nil {
					return fmt.Errorf("answering: %w", err)
				}
				return nil
			})
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if rounds != 3 {
			b.Errorf("%d rounds", rounds)
		}
	})
}

func TestUntilCurrentGivesUpAfterItsRounds(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.processWith(runs.Config{Rounds: 5}, nil)
		rounds := 0
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			return runs.UntilCurrent(ctx, func(ctx context.Context, _ runs.View) error {
				rounds++
				meanwhile(b, p)
				return once(ctx, reply("m1"), nothing)
			})
		})
		wantVerdict(b, v, runs.ActionRetry, "conversation_changed")
		if rounds != 5 {
			b.Errorf("%d rounds", rounds)
		}
	})
}

func TestUntilCurrentGoesOnWithTheMessagesThatAreFree(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1, "m1"), func(ctx context.Context) error {
			_, err := runs.FromContext(ctx).Claim(ctx, reply("m1"), time.Hour)
			return err
		})
		rounds := 0
		v := p.deliver(job(2, "m1", "m2"), func(ctx context.Context) error {
			return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
				if rounds++; rounds == 1 {
					return once(ctx, reply("m1", "m2"), nothing) // as if it had not looked
				}
				return once(ctx, reply(view.OpenIDs()...), nothing)
			})
		})
		wantVerdict(b, v, runs.ActionComeBack, "in_flight") // m1 is its message, and taken
		if rounds != 2 {
			b.Errorf("%d rounds", rounds)
		}
		if record, err := p.Check(b.Context(), "c", reply("m2")); err != nil || record.State != "committed" {
			b.Errorf("m2 is %q, %v", record.State, err)
		}
	})
}

func TestUntilCurrentStopsAtOnceWhereReadingAgainDoesNotHelp(t *testing.T) {
	for name, returns := range map[string]error{
		"nil":                       nil,
		"an error of its own":       errors.New("mine"),
		"unresolved":                &runs.RefusedError{Reason: "unresolved"},
		"unresolved beside changed": errors.Join(&runs.RefusedError{Reason: "conversation_changed"}, &runs.RefusedError{Reason: "unresolved"}),
		"superseded":                &runs.RefusedError{Reason: "superseded"},
		"a bare sentinel":           runs.ErrConversationChanged,
		"another run's verdict":     &runs.VerdictError{Reason: "conversation_changed"},
	} {
		t.Run(name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				rounds := 0
				_ = p.deliver(job(1), func(ctx context.Context) error {
					err := runs.UntilCurrent(ctx, func(context.Context, runs.View) error { rounds++; return returns })
					if !errors.Is(err, returns) || rounds != 1 {
						b.Errorf("%d rounds, %v", rounds, err)
					}
					return nil
				})
			})
		})
	}
}

func TestUntilCurrentStopsWhenOnlyPendingEffectsStandInTheWay(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1), func(ctx context.Context) error {
			_, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Hour)
			return err
		})
		rounds := 0
		v := p.deliver(job(2, "m1"), func(ctx context.Context) error {
			return runs.UntilCurrent(ctx, func(ctx context.Context, _ runs.View) error {
				rounds++
				return once(ctx, reply("m1"), nothing)
			})
		})
		wantVerdict(b, v, runs.ActionComeBack, "conversation_changed")
		if rounds != 1 {
			b.Errorf("%d rounds", rounds)
		}
	})
}

func TestProgressIsReadByTheNextDelivery(t *testing.T) {
	onEach(t, func(b *bench) {
		type cursor struct{ Page int }
		p := b.process()
		_ = p.deliver(job(1), func(ctx context.Context) error {
			run := runs.FromContext(ctx)
			var at cursor
			if known, err := run.Progress(&at); known || err != nil {
				b.Error(known, err)
			}
			for page := range 3 {
				if err := run.SaveProgress(ctx, cursor{page}); err != nil {
					b.Error(err)
				}
			}
			if known, err := run.Progress(&at); !known || err != nil || at.Page != 2 {
				b.Error(known, err, at)
			}
			return errors.New("later")
		})
		v := b.process().deliver(job(1), func(ctx context.Context) error {
			var at cursor
			if known, err := runs.FromContext(ctx).Progress(&at); !known || err != nil || at.Page != 2 {
				b.Error(known, err, at)
			}
			if _, err := runs.FromContext(ctx).Progress(new(chan int)); err == nil {
				b.Error("decoded into a channel")
			}
			return nil
		})
		wantVerdict(b, v, runs.ActionDone, "")
	})
}

func TestProgressAndDismissalAreRefusedToADeliveryThatMayNotWrite(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context) error{
		"save progress": func(ctx context.Context) error { return runs.FromContext(ctx).SaveProgress(ctx, 1) },
		"dismiss":       func(ctx context.Context) error { return runs.FromContext(ctx).Dismiss(ctx, []string{"m1"}, "") },
		"catch up":      func(ctx context.Context) error { _, err := runs.FromContext(ctx).CatchUp(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
					_ = p.deliver(job(1, "m1"), func(context.Context) error { return errors.New("later") })
					err := do(ctx)
					refused, _ := errors.AsType[*runs.RefusedError](err)
					if refused == nil || !errors.Is(err, runs.ErrSuperseded) || refused.RetryAfter != 0 || !strings.Contains(err.Error(), "later delivery") {
						b.Errorf("got %#v", err)
					}
					if err := do(ctx); !errors.Is(err, runs.ErrSuperseded) {
						b.Errorf("the second time: %v", err)
					}
					return nil
				})
				wantVerdict(b, v, runs.ActionStale, "superseded")
			})
		})
	}
}

func TestARefusalWhoseTimeIsNotKnownMakesNoneUp(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1), func(ctx context.Context) error {
			done := make(chan struct{})
			b.Cleanup(func() { <-done })
			go func() {
				defer close(done)
				_ = p.deliver(job(2), func(context.Context) error { time.Sleep(time.Minute); return nil })
			}()
			time.Sleep(time.Second)
			err := runs.FromContext(ctx).SaveProgress(ctx, 1)
			refused, _ := errors.AsType[*runs.RefusedError](err)
			if refused == nil || refused.Reason != "superseded" || refused.RetryAfter > time.Minute {
				b.Errorf("got %#v", err)
			}
			return err
		})
	})
}

func TestWhatTheCallerBreaksOffIsNoErrorOfTheLedger(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		why := errors.New("no patience")
		_ = p.deliver(job(1, "m1"), func(ctx context.Context) error {
			run := runs.FromContext(ctx)
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(why)
			_, view := run.CatchUp(ctx)
			_, stamp := p.Stamp(ctx, "c")
			_, check := run.Check(ctx, tag("x"))
			_, history := p.History(ctx, "c")
			_, claim := run.Claim(ctx, tag("x"), time.Minute)
			for name, err := range map[string]error{
				"catch up": view, "stamp": stamp, "check": check, "history": history, "claim": claim,
				"once": once(ctx, tag("x"), nothing), "progress": run.SaveProgress(ctx, 1),
				"dismiss": run.Dismiss(ctx, []string{"m1"}, ""),
			} {
				if !errors.Is(err, why) {
					b.Errorf("%s: got %v", name, err)
				}
			}
			return nil
		})
		if told := p.told("ledger_error"); len(told) != 0 {
			b.Errorf("told %v", told)
		}
	})
}

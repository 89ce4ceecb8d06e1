package runs_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// The verdicts of adapters.md, row by row.

func TestAHandlersOwnErrorGoesBackAsItCame(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		mine := errors.New("mine")
		v := p.deliver(job(1, "m1"), func(context.Context) error { return mine })
		if v.Action != runs.ActionReturn || !same(v.Err, mine) {
			b.Errorf("got %+v", v)
		}
		if r := p.run(job(1)); r.State != "active" || len(p.history("c").Head.Seats) != 0 || len(p.told("released")) != 1 {
			b.Errorf("the run: %+v", r)
		}
		// On the last attempt the queue drops the job, so the run ends, and the message is
		// not forgotten silently.
		v = p.deliverLast(job(1, "m1"), func(context.Context) error { return mine })
		if v.Action != runs.ActionReturn || !same(v.Err, mine) {
			b.Errorf("got %+v", v)
		}
		if r := p.run(job(1)); r.State != "ended" || r.End != "discarded" || len(p.told("unanswered")) != 1 {
			b.Errorf("the run: %+v", r)
		}
		// Pressed to run again, it is entered again.
		wantVerdict(b, p.deliver(job(1, "m1"), idle), runs.ActionDone, "")
		if len(p.told("reopened")) != 1 || len(p.told("unanswered")) != 1 {
			b.Errorf("reopened %v, unanswered %v", p.told("reopened"), p.told("unanswered"))
		}
	})
}

func TestAFinishedJobIsAcknowledgedWithoutItsHandler(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		j := job(1)
		j.Digest = "payload"
		wantVerdict(b, p.deliver(j, idle), runs.ActionDone, "")
		v := p.deliver(j, func(context.Context) error { b.Error("entered"); return nil })
		wantVerdict(b, v, runs.ActionDone, "finished")
		if v.Err != nil || v.Note == "" {
			b.Errorf("got %+v", v)
		}
		j.Digest = "another" // new work under the same id
		entered := false
		wantVerdict(b, p.deliver(j, func(context.Context) error { entered = true; return nil }), runs.ActionDone, "")
		if !entered {
			b.Error("new work was acknowledged unhandled")
		}
	})
}

func TestAnOlderJobComesBackWhileTheNewerLivesAndIsDroppedWhenItTookCare(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		never := func(context.Context) error { b.Error("entered"); return nil }
		v := p.deliver(job(2, "m2"), func(ctx context.Context) error {
			early := p.deliver(job(1, "m1"), never)
			wantVerdict(b, early, runs.ActionComeBack, "superseded")
			// The lease runs for 30 s more; nobody waits longer than 5 s, and not all alike.
			if early.After < 5*time.Second || early.After > 6*time.Second+time.Millisecond {
				b.Errorf("come back after %v", early.After)
			}
			if !errors.Is(early.Err, runs.ErrSuperseded) {
				b.Errorf("err %v", early.Err)
			}
			return once(ctx, reply("m1", "m2"), prov.do)
		})
		wantVerdict(b, v, runs.ActionDone, "")
		v = p.deliver(job(1, "m1"), never)
		wantVerdict(b, v, runs.ActionDrop, "superseded")
		if v.Err != nil || v.Note == "" || len(p.told("come_back")) != 1 {
			b.Errorf("got %+v", v)
		}
	})
}

func TestAnOlderJobMayBeginWhenTheNewerLeftItsMessageOpen(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		prov := &provider{}
		answer := func(id string) func(ctx context.Context) error {
			return func(ctx context.Context) error { return once(ctx, reply(id), prov.do) }
		}
		wantVerdict(b, p.deliver(job(1, "m1"), func(context.Context) error { return errors.New("later") }), runs.ActionReturn, "")
		wantVerdict(b, p.deliver(job(2, "m2"), answer("m2")), runs.ActionDone, "")
		wantVerdict(b, p.deliver(job(1, "m1"), answer("m1")), runs.ActionDone, "")
		if prov.count() != 2 {
			b.Errorf("answered %d times", prov.count())
		}
	})
}

func TestACancelledJobIsDroppedAlsoBeforeItBegan(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		if ok, err := p.Cancel(b.Context(), key(job(1)), runs.CancelOptions{By: "me", Why: "spam"}); !ok || err != nil {
			b.Fatal(ok, err)
		}
		v := p.deliver(job(1, "m1"), func(context.Context) error { b.Error("entered"); return nil })
		wantVerdict(b, v, runs.ActionDrop, "cancelled")
		if v.Err != nil {
			b.Errorf("err %v", v.Err)
		}
	})
}

func TestABusyConversationComesBack(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(exclusive(job(1)), func(context.Context) error {
			time.Sleep(28 * time.Second)
			v := p.deliver(exclusive(job(2)), func(context.Context) error { b.Error("entered"); return nil })
			wantVerdict(b, v, runs.ActionComeBack, "busy")
			if !errors.Is(v.Err, runs.ErrBusy) || v.After > 6*time.Second+time.Millisecond {
				b.Errorf("got %+v", v)
			}
			return nil
		})
		wantVerdict(b, p.deliver(exclusive(job(2)), idle), runs.ActionDone, "")
	})
}

func TestAJobOnAnotherConversationIsDiscarded(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1), func(context.Context) error { return errors.New("later") })
		moved := job(1)
		moved.Conversation = "elsewhere"
		v := p.deliver(moved, func(context.Context) error { b.Error("entered"); return nil })
		wantVerdict(b, v, runs.ActionDiscard, "conversation_mismatch")
	})
}

func TestAnEffectInFlightSendsTheJobBackAndItIsNotEnteredMeanwhile(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		var elsewhere *runs.Claim
		_ = p.deliver(job(2), func(ctx context.Context) (err error) {
			elsewhere, err = runs.FromContext(ctx).Claim(ctx, tag("x"), 3*time.Second)
			return err
		})
		handler := func(ctx context.Context) error { return once(ctx, tag("x"), nothing) }
		v := p.deliver(job(1), handler)
		wantVerdict(b, v, runs.ActionComeBack, "in_flight")
		if v.After < 3*time.Second || v.After > 4*time.Second {
			b.Errorf("come back after %v, the deadline is in 3 s", v.After)
		}
		v = p.deliver(job(1), func(context.Context) error { b.Error("entered"); return nil })
		wantVerdict(b, v, runs.ActionComeBack, "in_flight")
		if err := elsewhere.Commit(b.Context(), nil, ""); err != nil {
			b.Error(err)
		}
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionDone, "")
	})
}

func TestAStaleDeliveryLeavesTheJobAloneWhateverItReturns(t *testing.T) {
	for name, returns := range map[string]error{"nil": nil, "an error": errors.New("boom")} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(b *bench) {
				p := b.process()
				prov := &provider{}
				v := p.deliver(job(1), func(ctx context.Context) error {
					second := p.deliver(job(1), func(ctx context.Context) error { return once(ctx, tag("x"), prov.do) })
					wantVerdict(b, second, runs.ActionDone, "")
					return returns
				})
				if v.Action != runs.ActionStale {
					b.Errorf("got %+v", v)
				}
				v = p.deliverLast(job(2), func(ctx context.Context) error {
					_ = p.deliver(job(2), func(context.Context) error { return errors.New("later") })
					return returns
				})
				wantVerdict(b, v, runs.ActionStale, "superseded")
				if r := p.run(job(2)); r.State != "active" || r.Delivery.Number != 2 {
					b.Errorf("the old delivery ended the new one's run: %+v", r)
				}
			})
		})
	}
}

func TestAStaleDeliveryIsRefusedAndLearnsIt(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1), func(ctx context.Context) error {
			_ = p.deliver(job(1), func(context.Context) error { return errors.New("later") })
			err := once(ctx, tag("x"), func(context.Context, *runs.Call) error { b.Error("called"); return nil })
			if !errors.Is(err, runs.ErrSuperseded) || !errors.Is(context.Cause(ctx), runs.ErrSuperseded) {
				b.Errorf("got %v, cause %v", err, context.Cause(ctx))
			}
			return nil // swallowed
		})
		wantVerdict(b, v, runs.ActionStale, "superseded")
	})
}

func TestParamsThatChangedDiscard(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		e := tag("x")
		v := p.deliver(job(1), func(ctx context.Context) error {
			e.Params = map[string]any{"amount": 5}
			if err := once(ctx, e, nothing); err != nil {
				b.Error(err)
			}
			e.Params = map[string]any{"amount": 6}
			err := once(ctx, e, nothing)
			refused, _ := errors.AsType[*runs.RefusedError](err)
			if refused == nil || refused.StoredParams != `{"amount":5}` || refused.AskedParams != `{"amount":6}` {
				b.Errorf("got %#v", err)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionDiscard, "params_changed")
		if r := p.run(job(1)); r.End != "discarded" {
			b.Errorf("the run: %+v", r)
		}
	})
}

// meanwhile has something else write to the conversation.
func meanwhile(b *bench, p *process) {
	b.Helper()
	id := strconv.Itoa(len(p.told("reported")))
	if reported, err := p.Report(b.Context(), "c", runs.Write{ID: id, By: "an agent"}); err != nil || reported.Known {
		b.Error(reported, err)
	}
}

func TestAConversationThatChangedIsReadAgainAndParkedWhenNobodyLooks(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		first := true
		blind := func(ctx context.Context) error {
			if first {
				meanwhile(b, p)
				first = false
			}
			return once(ctx, tag("x"), nothing)
		}
		v := p.deliver(job(1), func(ctx context.Context) error { return blind(ctx) })
		wantVerdict(b, v, runs.ActionRetry, "conversation_changed")
		if _, ours := errors.AsType[*runs.VerdictError](v.Err); !ours || !errors.Is(v.Err, runs.ErrConversationChanged) {
			b.Errorf("got %v", v.Err)
		}
		// Begin catches up for a handler that reads after it was entered.
		wantVerdict(b, p.deliver(job(1), blind), runs.ActionDone, "")

		v = p.deliver(job(2), func(ctx context.Context) error {
			meanwhile(b, p)
			_ = once(ctx, tag("y"), nothing)
			return once(ctx, tag("y"), nothing) // tried again without a look
		})
		wantVerdict(b, v, runs.ActionPark, "refused_twice")
		if r := p.run(job(2)); r.State != "active" || r.Parked != "refused_twice" || len(p.told("parked")) != 1 {
			b.Errorf("the run: %+v", r)
		}
		wantVerdict(b, p.deliver(job(2), func(ctx context.Context) error { return once(ctx, tag("y"), nothing) }), runs.ActionDone, "")
	})
}

func TestOnTheLastAttemptARetryEndsTheRunAndAParkOrAWaitDoesNot(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		v := p.deliverLast(job(1, "m1"), func(ctx context.Context) error {
			meanwhile(b, p)
			return once(ctx, tag("x"), nothing)
		})
		wantVerdict(b, v, runs.ActionRetry, "conversation_changed")
		if r := p.run(job(1)); r.End != "discarded" || len(p.told("unanswered")) != 1 {
			b.Errorf("after a retry: %+v", r)
		}
		v = p.deliverLast(job(2), func(ctx context.Context) error {
			meanwhile(b, p)
			_ = once(ctx, tag("x"), nothing)
			return once(ctx, tag("x"), nothing)
		})
		wantVerdict(b, v, runs.ActionPark, "refused_twice")
		if r := p.run(job(2)); r.State != "active" || r.Parked != "refused_twice" {
			b.Errorf("after a park: %+v", r)
		}
		v = p.deliverLast(job(3), func(ctx context.Context) error {
			_, err := runs.FromContext(ctx).Claim(ctx, tag("y"), time.Hour)
			return err
		})
		wantVerdict(b, v, runs.ActionComeBack, "in_flight")
		if r := p.run(job(3)); r.State != "active" {
			b.Errorf("after a wait: %+v", r)
		}
	})
}

func TestAStalePayloadIsParkedAtOnceAndCatchUpIsTheWayOn(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		stamp, err := p.Stamp(b.Context(), "c")
		if err != nil {
			b.Fatal(err)
		}
		j := job(1)
		j.Reads, j.AsOf = runs.FromPayload, stamp
		meanwhile(b, p)
		v := p.deliver(j, func(ctx context.Context) error { return once(ctx, tag("x"), nothing) })
		wantVerdict(b, v, runs.ActionPark, "stale_payload")
		v = p.deliver(j, func(ctx context.Context) error {
			if _, err := runs.FromContext(ctx).CatchUp(ctx); err != nil {
				b.Error(err)
			}
			return once(ctx, tag("x"), nothing)
		})
		wantVerdict(b, v, runs.ActionDone, "")
		fresh := job(2)
		fresh.Reads = runs.FromPayload
		if fresh.AsOf, err = p.Stamp(b.Context(), "c"); err != nil {
			b.Fatal(err)
		}
		wantVerdict(b, p.deliver(fresh, func(ctx context.Context) error { return once(ctx, tag("y"), nothing) }), runs.ActionDone, "")
	})
}

func TestAJobWhoseMessagesAreAllClosedIsDoneThoughItWasRefused(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			_, err := p.Report(ctx, "c", runs.Write{ID: "w", Intent: "reply", Answers: []string{"m1"}})
			if err != nil {
				b.Error(err)
			}
			return once(ctx, reply("m1"), nothing)
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if v.Note == "" || v.Err != nil || !p.run(job(1)).Finished() {
			b.Errorf("got %+v", v)
		}
	})
}

func TestAMessageThatIsAnsweredAlreadyIsReadAgain(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		handler := func(ctx context.Context) error { return once(ctx, reply("m1", "m2"), nothing) }
		v := p.deliver(job(1, "m1", "m2"), func(ctx context.Context) error {
			_, _ = p.Report(ctx, "c", runs.Write{ID: "w", Intent: "reply", Answers: []string{"m1"}})
			_, err := runs.FromContext(ctx).CatchUp(ctx)
			if err != nil {
				b.Error(err)
			}
			err = handler(ctx)
			refused, _ := errors.AsType[*runs.RefusedError](err)
			if refused == nil || len(refused.Answered) != 1 || len(refused.Open) != 1 || refused.Open[0] != "m2" {
				b.Errorf("got %#v", err)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionRetry, "already_answered")
		wantVerdict(b, p.deliver(job(1, "m1", "m2"), handler), runs.ActionPark, "refused_twice")
	})
}

func TestALedgerThatIsDownIsAPlainErrorAndTheHandlerNeverRunsUnfenced(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		down := errors.New("connection refused")
		p.spy.OnLoad(func(context.Context) error { return down })
		v := p.deliver(job(1), func(context.Context) error { b.Error("entered"); return nil })
		wantVerdict(b, v, runs.ActionRetry, "ledger")
		verdict, _ := errors.AsType[*runs.VerdictError](v.Err)
		if verdict == nil || errors.Is(v.Err, down) || len(p.told("ledger_error")) != 1 {
			b.Errorf("got %v", v.Err)
		}
		p.spy.OnLoad(nil)
		v = p.deliver(job(1), func(ctx context.Context) error {
			p.spy.breaks(down)
			err := once(ctx, tag("x"), func(context.Context, *runs.Call) error { b.Error("called"); return nil })
			p.spy.breaks(nil)
			if _, ok := errors.AsType[*runs.LedgerError](err); !ok || !errors.Is(err, down) {
				b.Errorf("got %v", err)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionRetry, "ledger")
	})
}

func TestAClosedKeeperTakesNoJobs(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		if err := p.Close(); err != nil {
			b.Error(err)
		}
		v := p.deliver(job(1), func(context.Context) error { b.Error("entered"); return nil })
		wantVerdict(b, v, runs.ActionRetry, "ledger")
		if err := p.Once(b.Context(), "c", tag("x"), nothing); !errors.Is(err, runs.ErrClosed) {
			b.Errorf("got %v", err)
		}
		if _, err := p.Stamp(b.Context(), "c"); !errors.Is(err, runs.ErrClosed) {
			b.Errorf("got %v", err)
		}
	})
}

// quit looks like a queue's own verdict type deep in a user's chain.
type quit struct{ error }

func TestOurVerdictHidesTheUsersChainAndKeepsItsText(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1), func(ctx context.Context) error {
			err := once(ctx, tag("x"), func(context.Context, *runs.Call) error { return quit{errors.New("no answer")} })
			return errors.Join(err, context.Canceled)
		})
		wantVerdict(b, v, runs.ActionComeBack, "unresolved")
		var q quit
		if errors.As(v.Err, &q) || errors.Is(v.Err, context.Canceled) || errors.Unwrap(v.Err) != nil {
			b.Errorf("the user's chain shows through: %#v", v.Err)
		}
		verdict, _ := errors.AsType[*runs.VerdictError](v.Err)
		if !errors.As(verdict.Cause, &q) {
			b.Errorf("the cause is lost: %#v", verdict.Cause)
		}
		wantNamed(b, v.Err, "no answer")
	})
}

func TestDoGivesTheHandlersErrorOrTheVerdict(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		mine := errors.New("mine")
		if err := p.Do(b.Context(), job(1), func(context.Context) error { return mine }); !same(err, mine) {
			b.Errorf("got %v", err)
		}
		if err := p.Do(b.Context(), job(1), idle); err != nil {
			b.Errorf("got %v", err)
		}
		err := p.Do(b.Context(), runs.Job{}, idle)
		if verdict, ok := errors.AsType[*runs.VerdictError](err); !ok || verdict.Action != runs.ActionDiscard {
			b.Errorf("got %v", err)
		}
	})
}

func TestARunSharesNothingWithItsCaller(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		j := job(1, "m1")
		answers := []string{"m1"}
		v := p.deliver(j, func(ctx context.Context) error {
			j.Inbound[0] = "overwritten"
			if got := runs.FromContext(ctx).Job(); got.Inbound[0] != "m1" || got.Mode != runs.Supersede {
				b.Errorf("job %+v", got)
			}
			runs.FromContext(ctx).Job().Inbound[0] = "overwritten"
			err := once(ctx, runs.Effect{Intent: "reply", Key: runs.Key("n", 1), Answers: answers}, nothing)
			answers[0] = "overwritten"
			return err
		})
		wantVerdict(b, v, runs.ActionDone, "")
		h := p.history("c")
		if h.Runs[0].Inbound[0] != "m1" || h.Effects[0].Deciding().Answers[0] != "m1" || !h.Inbound[0].Closed() {
			b.Errorf("history %+v %+v", h.Runs[0], h.Effects[0])
		}
	})
}

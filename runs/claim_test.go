package runs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Effects that finish elsewhere (rule S7.7).

func TestAnEffectIsClaimedHereAndSettledByAnotherProcess(t *testing.T) {
	onEach(t, func(b *bench) {
		worker, webhook := b.process(), b.process()
		var id string
		v := worker.deliver(job(1), func(ctx context.Context) error {
			c, err := refund.Claim(ctx, runs.ID("o1"), time.Hour)
			if err != nil {
				return err
			}
			if call := c.Call(); c.Done() || call.Number != 1 || call.IdempotencyKey == "" || call.Fence == 0 || call.Lost() == nil {
				b.Errorf("call %+v", call)
			}
			id = c.ID()
			return nil
		})
		wantVerdict(b, v, runs.ActionComeBack, "in_flight")
		if e := worker.effect("c"); e.State() != "pending" || (e.Deciding().Deadline-e.Deciding().At).Duration() != time.Hour {
			b.Errorf("recorded %+v", e.Deciding())
		}

		c, err := webhook.ClaimByID("c", id)
		if err != nil {
			b.Fatal(err)
		}
		if c.Done() || c.Call() != nil || c.ID() != id {
			b.Errorf("claim %q, call %v", c.ID(), c.Call())
		}
		for range 2 { // settling twice is one settle
			if err := c.Commit(b.Context(), receipt{"r1", 500}, "ref"); err != nil {
				b.Error(err)
			}
		}
		if err := c.Fail(b.Context(), runs.NotApplied(errors.New("no"))); err == nil {
			b.Error("committed became failed")
		}

		v = worker.deliver(job(1), func(ctx context.Context) error {
			got, err := refund.Once(ctx, runs.ID("o1"), func(context.Context, *runs.Call) (receipt, error) {
				b.Error("called")
				return receipt{}, nil
			})
			if got != (receipt{"r1", 500}) {
				b.Errorf("got %+v", got)
			}
			c, claimed := refund.Claim(ctx, runs.ID("o1"), time.Hour)
			if claimed != nil || !c.Done() || c.ID() != "" || c.Commit(ctx, nil, "") != nil || c.Fail(ctx, errNoAnswer) != nil {
				b.Errorf("an effect that was done: %+v, %v", c, claimed)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if n := len(worker.told("committed")) + len(webhook.told("committed")); n != 1 {
			b.Errorf("committed %d times", n)
		}
	})
}

func TestAClaimFailsAsItsErrorSays(t *testing.T) {
	maybe := errors.New("maybe")
	in := runs.Intent[int]{Name: "n", Distinct: true, Classify: func(err error) bool { return err.Error() == "card declined" }}
	for _, c := range []struct {
		err  error
		want runs.State
	}{
		{maybe, "ambiguous"},
		{runs.NotApplied(maybe), "failed"},
		{errors.New("card declined"), "failed"}, // by the intent's classifier
	} {
		onMemory(t, func(b *bench) {
			p := b.process()
			_ = p.deliver(job(1), func(ctx context.Context) error {
				claim, err := in.Claim(ctx, runs.ID("x"), time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				wantNamed(b, claim.Fail(ctx, nil), "err is nil")
				return claim.Fail(ctx, c.err)
			})
			if e := p.effect("c"); e.State() != c.want || e.Deciding().Error != c.err.Error() {
				b.Errorf("%v: recorded %+v", c.err, e.Deciding())
			}
		})
	}
}

func TestAClaimThatNobodySettlesBecomesUnknown(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		handler := func(ctx context.Context) error {
			_, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Minute)
			return err
		}
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionComeBack, "in_flight")
		time.Sleep(time.Minute + time.Second)
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionComeBack, "ambiguous")
		time.Sleep(2 * time.Minute)
		wantVerdict(b, p.deliver(job(1), handler), runs.ActionPark, "ambiguous")
	})
}

func TestAClaimGrantedTooLateIsNotHandedOut(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1), func(ctx context.Context) error {
			sleepAfterClaim(p, 31*time.Second)
			_, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Minute)
			if !errors.Is(err, runs.ErrNotStarted) {
				b.Errorf("got %v", err)
			}
			e := tag("x")
			e.Timeout = 20 * time.Second // is enough to hand it over
			sleepAfterClaim(p, 31*time.Second)
			c, err := runs.FromContext(ctx).Claim(ctx, e, time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			return c.Commit(ctx, nil, "")
		})
		if e := p.effect("c"); e.State() != "committed" || len(e.Calls) != 2 || !e.Calls[0].NotStarted {
			b.Errorf("recorded %+v", e.Calls)
		}
	})
}

func TestAClaimOfAnotherConversationIsNotFound(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		var id string
		_ = p.deliver(job(1), func(ctx context.Context) error {
			c, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Minute)
			id = c.ID()
			return err
		})
		c, err := p.ClaimByID("elsewhere", id)
		if err != nil {
			b.Fatal(err)
		}
		wantNamed(b, c.Commit(b.Context(), nil, ""), "knows no claim")
	})
}

func TestALateCommitIsRecordedAndDecides(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		var c *runs.Claim
		_ = p.deliver(job(1), func(ctx context.Context) (err error) {
			c, err = runs.FromContext(ctx).Claim(ctx, tag("x"), time.Minute)
			return err
		})
		time.Sleep(time.Hour)
		if err := c.Commit(b.Context(), 1, ""); err != nil {
			b.Error(err)
		}
		if e := p.effect("c"); e.State() != "committed" || !e.Deciding().Late || len(p.told("late")) != 1 || len(p.told("duplicate")) != 0 {
			b.Errorf("recorded %+v", e.Deciding())
		}
	})
}

func TestASettleWhoseRecordVanishedCreatesItAgain(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1), func(ctx context.Context) error {
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error { forget(b, p); return nil })
		})
		wantVerdict(b, v, runs.ActionRetry, "no_run")
		if e := p.effect("c"); e.State() != "committed" || len(p.told("vanished")) != 1 {
			b.Errorf("recorded %+v", e.Deciding())
		}
	})
}

func TestAnEchoDecidesWhatTheCallerDoesNotKnow(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			// The provider's webhook is faster than its answer, which never comes.
			err := once(ctx, reply("m1"), func(ctx context.Context, call *runs.Call) error {
				reported, err := p.Report(ctx, "c", runs.Write{ID: "w", IdempotencyKey: call.IdempotencyKey, Reference: "ref"})
				if err != nil || reported.Known || reported.Echo != call.Effect.ID {
					b.Errorf("reported %+v, %v", reported, err)
				}
				return errNoAnswer
			})
			if err != nil {
				b.Errorf("it happened, and the ledger knows: %v", err)
			}
			return err
		})
		wantVerdict(b, v, runs.ActionDone, "")
		reported, err := p.Report(b.Context(), "c", runs.Write{ID: "w"})
		if err != nil || !reported.Known {
			b.Errorf("a webhook that is delivered again: %+v, %v", reported, err)
		}
		if reported, err = p.Report(b.Context(), "c", runs.Write{ID: "w2", IdempotencyKey: "of another system"}); err != nil || reported.Echo != "" {
			b.Errorf("a stranger's key: %+v, %v", reported, err)
		}
	})
}

func TestCheckSaysWhatIsKnownAndHasNoSideEffect(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		check := func(ctx context.Context, want runs.State, calls int) runs.Record {
			writes := p.spy.count(&p.spy.writes)
			record, err := runs.FromContext(ctx).Check(ctx, tag("x"))
			if err != nil || record.State != want || record.Calls != calls || p.spy.count(&p.spy.writes) != writes {
				b.Errorf("want %q after %d calls, got %+v, %v", want, calls, record, err)
			}
			return record
		}
		_ = p.deliver(job(1), func(ctx context.Context) error {
			var value int
			wantNamed(b, check(ctx, "", 0).Decode(&value), "never claimed")
			_ = once(ctx, tag("x"), (&provider{}).does(runs.NotApplied(errNoAnswer)))
			wantNamed(b, check(ctx, "failed", 1).Decode(&value), "is failed")
			c, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			check(ctx, "pending", 2)
			time.Sleep(61 * time.Second)
			check(ctx, "ambiguous", 2) // unknown is not "no"
			if err := c.Commit(ctx, 7, ""); err != nil {
				b.Error(err)
			}
			if err := check(ctx, "committed", 2).Decode(&value); err != nil || value != 7 {
				b.Error(value, err)
			}
			wantNamed(b, check(ctx, "committed", 2).Decode(new(string)), "decode the stored result")
			return nil
		})
		if err := p.Once(b.Context(), "c", tag("y"), nothing); err != nil {
			b.Error(err)
		}
		record, err := p.Check(b.Context(), "c", tag("y"))
		if err != nil || !errors.Is(record.Decode(new(int)), runs.ErrValueNotKept) {
			b.Errorf("%+v, %v", record, err)
		}
	})
}

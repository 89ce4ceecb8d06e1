package runs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

func TestResolveDecidesWhatIsUnknownAndSaysWhyWhenItDoesNot(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		c := claim(b, p)
		id := c.Call().Effect.ID
		me := runs.Resolution{By: "me", Note: "asked the bank", Reference: "ref"}

		before, after, err := p.Resolve(b.Context(), "c", id, me)
		refused, _ := errors.AsType[*runs.NotResolvedError](err)
		if refused == nil || refused.RetryAfter != 30*time.Minute || before.State() != "pending" || after.State() != "pending" {
			b.Errorf("while it is under way: %+v, %v", after, err)
		}
		time.Sleep(31 * time.Minute)
		before, after, err = p.Resolve(b.Context(), "c", id, me)
		call := after.Deciding()
		if err != nil || before.State() != "ambiguous" || call.State != "failed" || call.ResolvedBy != "me" || call.Note != "asked the bank" || call.Reference != "ref" {
			b.Errorf("it did not happen: %+v, %v", call, err)
		}
		me.Happened = true
		if _, _, err = p.Resolve(b.Context(), "c", id, me); !errors.As(err, &refused) {
			b.Errorf("without force: %v", err)
		}
		me.Force = true
		if _, after, err = p.Resolve(b.Context(), "c", id, me); err != nil || after.State() != "committed" {
			b.Errorf("with force: %v", err)
		}
		me.Happened = false
		if _, _, err = p.Resolve(b.Context(), "c", id, me); !errors.As(err, &refused) || !strings.Contains(refused.Why, "committed") {
			b.Errorf("committed became failed: %v", err)
		}
		if _, _, err = p.Resolve(b.Context(), "c", "nonsense", me); !errors.As(err, &refused) {
			b.Errorf("of nothing: %v", err)
		}
	})
}

func TestListsAreInOrderAndHaveAges(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		began := time.Now()
		for i := range 3 {
			j := numbered(i)
			j.Inbound, j.NoInbound = []string{fmt.Sprint("m", i)}, false
			_ = p.deliver(j, func(ctx context.Context) error {
				_, err := runs.FromContext(ctx).Claim(ctx, tag("x"), time.Minute)
				return err
			})
			time.Sleep(time.Minute)
		}
		unresolved, err := p.Unresolved(b.Context(), 0, 0)
		if err != nil || len(unresolved) != 3 {
			b.Fatalf("%+v, %v", unresolved, err)
		}
		for i, u := range unresolved {
			age := time.Duration(3-i) * time.Minute
			if u.Conversation != fmt.Sprint("c", i) || u.Age != age || !u.Since.Equal(began.Add(time.Duration(i)*time.Minute)) {
				b.Errorf("%d: %+v", i, u)
			}
			if want := []runs.State{"ambiguous", "ambiguous", "pending"}[i]; u.Effect.State() != want {
				b.Errorf("%d: is %s", i, u.Effect.State())
			}
		}
		if some, err := p.Unresolved(b.Context(), 2*time.Minute, 1); err != nil || len(some) != 1 || some[0].Conversation != "c0" {
			b.Errorf("%+v, %v", some, err)
		}
		open, err := p.Open(b.Context(), 2*time.Minute, 0)
		if err != nil || len(open) != 2 || open[0].ID != "m0" || open[0].Conversation != "c0" || open[0].Age != 3*time.Minute || !open[0].Named.Equal(began) {
			b.Errorf("%+v, %v", open, err)
		}
		if closed, err := p.Dismiss(b.Context(), "c0", []string{"m0", "m9"}, "spam"); err != nil || !slices.Equal(closed, []string{"m0", "m9"}) {
			b.Errorf("%v, %v", closed, err)
		}
		if open, err = p.Open(b.Context(), 0, 0); err != nil || len(open) != 2 {
			b.Errorf("%+v, %v", open, err)
		}
	})
}

func TestPurgeDeletesWhatIsPastItsRetentionAndNothingElse(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		forever := runs.Intent[int]{Name: "contract", Forever: true}
		for i := range 3 {
			_ = p.deliver(numbered(i), func(ctx context.Context) error {
				if i == 1 {
					if _, err := forever.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (int, error) { return 1, nil }); err != nil {
						b.Error(err)
					}
				}
				if i == 2 {
					return once(ctx, tag("x"), (&provider{}).does(errNoAnswer))
				}
				return once(ctx, tag("x"), nothing)
			})
		}
		purge(b, p)
		if h := p.history("c0"); len(h.Effects) != 1 {
			b.Error("purged before its time")
		}
		time.Sleep(31 * 24 * time.Hour)
		purge(b, p)
		if h := p.history("c0"); h.Head != nil || len(h.Effects)+len(h.Runs) != 0 {
			b.Errorf("c0: %+v", h)
		}
		if h := p.history("c1"); len(h.Effects) != 1 || h.Effects[0].Intent != "contract" {
			b.Errorf("c1: %+v", h.Effects)
		}
		if h := p.history("c2"); len(h.Effects) != 1 || h.Effects[0].State() != "ambiguous" {
			b.Errorf("c2: %+v", h.Effects)
		}
	})
}

func TestCancelOfARunThatHasEndedSaysSo(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		wantVerdict(b, p.deliver(job(1), idle), runs.ActionDone, "")
		if ok, err := p.Cancel(b.Context(), key(job(1)), runs.CancelOptions{By: "me"}); ok || err != nil {
			b.Error(ok, err)
		}
	})
}

func TestStampsServeAsOrder(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		first, err := p.Stamp(b.Context(), "c")
		if err != nil {
			b.Fatal(err)
		}
		second, err := p.Stamp(b.Context(), "c")
		if err != nil || second <= first {
			b.Fatal(first, second, err)
		}
		older, newer := job(1), job(2)
		older.Order = runs.Order{Source: runs.StampSource, Number: first}
		newer.Order = runs.Order{Source: runs.StampSource, Number: second}
		_ = p.deliver(newer, func(context.Context) error {
			wantVerdict(b, p.deliver(older, idle), runs.ActionComeBack, "superseded")
			return nil
		})
	})
}

func TestEveryQuestionSaysWhenTheLedgerIsDown(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		p.spy.breaks(errors.New("down"))
		p.spy.Store = downStore{p.spy.Store}
		ctx := b.Context()
		errOf := func(_ any, err error) error { return err }
		_, _, resolved := p.Resolve(ctx, "c", "e", runs.Resolution{By: "me"})
		for verb, err := range map[string]error{
			"stamp": errOf(p.Stamp(ctx, "c")), "cancel": errOf(p.Cancel(ctx, key(job(1)), runs.CancelOptions{})),
			"report": errOf(p.Report(ctx, "c", runs.Write{ID: "w"})), "dismiss": errOf(p.Dismiss(ctx, "c", []string{"m"}, "")),
			"resolve": resolved, "history": errOf(p.History(ctx, "c")), "unresolved": errOf(p.Unresolved(ctx, 0, 0)),
			"open": errOf(p.Open(ctx, 0, 0)), "purge": errOf(p.Purge(ctx, 1)), "check": errOf(p.Check(ctx, "c", tag("x"))),
			"claim": p.Once(ctx, "c", tag("x"), nothing),
		} {
			down, ok := errors.AsType[*runs.LedgerError](err)
			if !ok || down.Verb != verb || !strings.HasPrefix(err.Error(), "fencedrun: ledger: ") {
				b.Errorf("%s: got %v", verb, err)
			}
		}
	})
}

func TestTheSlogObserverWarnsOfWhatAPersonMustKnowAndKeepsKeysToItself(t *testing.T) {
	onMemory(t, func(b *bench) {
		var quiet, loud bytes.Buffer
		logger := func(buf *bytes.Buffer) *slog.Logger {
			return slog.New(slog.NewTextHandler(buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		p := b.processWith(runs.Config{Logger: logger(&quiet), Observer: runs.SlogObserver(logger(&loud), true)}, nil)
		p.deliver(job(1, "message-1"), func(ctx context.Context) error {
			e := runs.Effect{Intent: "reply", Key: runs.ID("message-1"), Summary: "secret text"}
			return once(ctx, e, (&provider{}).does(errNoAnswer))
		})
		c := runs.Effect{Intent: "tag", Key: runs.ID("key-1")}
		if err := p.Once(b.Context(), "c", c, nothing); err != nil {
			b.Error(err)
		}
		time.Sleep(time.Hour)
		for _, u := range p.history("c").Effects {
			if u.State() == "ambiguous" {
				_, _, _ = p.Resolve(b.Context(), "c", u.ID, runs.Resolution{By: "me"})
			}
		}
		p.deliverLast(job(1, "message-1"), failing)
		p.spy.breaks(errors.New("down"))
		_, _ = p.Stamp(b.Context(), "c")
		p.spy.breaks(nil)
		for _, want := range []string{
			`level=WARN msg="fencedrun: ambiguous"`, `level=WARN msg="fencedrun: unanswered"`, `level=WARN msg="fencedrun: ledger_error"`,
			`level=DEBUG msg="fencedrun: begun"`, "conversation=c", "queue=q job=a delivery=1", "intent=reply", "call=1", "error=",
		} {
			if !strings.Contains(quiet.String(), want) || !strings.Contains(loud.String(), want) {
				b.Errorf("%s is missing", want)
			}
		}
		for _, secret := range []string{"secret text", "message-1", "key-1"} {
			if strings.Contains(quiet.String(), secret) {
				b.Errorf("%q was logged", secret)
			}
		}
		if strings.Contains(loud.String(), "secret text") || !strings.Contains(loud.String(), "key-1") || !strings.Contains(loud.String(), "inbound=message-1") {
			b.Error("asked for keys, there are none; or there is a summary")
		}
		// Nothing is made up for a logger that does not listen.
		var silent bytes.Buffer
		observe := runs.SlogObserver(slog.New(slog.NewTextHandler(&silent, &slog.HandlerOptions{Level: slog.LevelError})), false)
		observe(b.Context(), runs.Event{Kind: "begun"})
		observe(b.Context(), runs.Event{Kind: "duplicate"})
		if got := silent.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") {
			b.Errorf("logged %q", got)
		}
	})
}

func TestTheKeeperShowsItsSettingsWithDefaults(t *testing.T) {
	onMemory(t, func(b *bench) {
		c := b.process().Config()
		for name, ok := range map[string]bool{
			"Lease": c.Lease == 30*time.Second, "Beat": c.Beat == 10*time.Second, "EffectTimeout": c.EffectTimeout == time.Minute,
			"ClaimDeadline": c.ClaimDeadline == 2*time.Minute, "MaxCalls": c.MaxCalls == 3, "MaxResult": c.MaxResult == 64<<10,
			"SettleTimeout": c.SettleTimeout == 10*time.Second, "PollMin": c.PollMin == 25*time.Millisecond,
			"PollMax": c.PollMax == 250*time.Millisecond, "Rounds": c.Rounds == 3, "Retention": c.Retention == 30*24*time.Hour,
			"Quiet": c.Quiet == 2*time.Minute, "Worker": c.Worker != "",
		} {
			if !ok {
				b.Errorf("%s has another default: %+v", name, c)
			}
		}
	})
}

package runs_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Bad input is an error that names the field, and nothing is written: not a run, not a claim,
// not a message.

func TestABadJobIsDiscardedWithTheFieldsNameAndNothingWritten(t *testing.T) {
	long := strings.Repeat("x", 513)
	for _, c := range []struct {
		field  string
		change func(j *runs.Job)
	}{
		{"Job.Queue is empty", func(j *runs.Job) { j.Queue = "" }},
		{"Job.ID is empty", func(j *runs.Job) { j.ID = "" }},
		{"Job.Conversation is empty", func(j *runs.Job) { j.Conversation = "" }},
		{"Job.Queue is 513 bytes", func(j *runs.Job) { j.Queue = long }},
		{"Job.ID is 513 bytes", func(j *runs.Job) { j.ID = long }},
		{"Job.Conversation is 513 bytes", func(j *runs.Job) { j.Conversation = long }},
		{"Job.Conversation is not valid UTF-8", func(j *runs.Job) { j.Conversation = "\xff" }},
		{"Job.Reads is not chosen", func(j *runs.Job) { j.Reads = "" }},
		{`Job.Reads is "later"`, func(j *runs.Job) { j.Reads = "later" }},
		{"Job.Inbound is not chosen", func(j *runs.Job) { j.Inbound = nil }},
		{"Job.Inbound is given although", func(j *runs.Job) { j.NoInbound = true }},
		{"Job.Inbound[0] is empty", func(j *runs.Job) { j.Inbound = []string{""} }},
		{"Job.Inbound[1] is named twice", func(j *runs.Job) { j.Inbound = []string{"m", "m"} }},
		{"Job.Inbound[0] is 513 bytes", func(j *runs.Job) { j.Inbound = []string{long} }},
		{`Job.Mode is "shared"`, func(j *runs.Job) { j.Mode = "shared" }},
		{"Job.AsOf is for", func(j *runs.Job) { j.AsOf = 1 }},
		{"Job.AsOf is negative", func(j *runs.Job) { j.Reads, j.AsOf = runs.FromPayload, -1 }},
		{"Job.Order has a number and no Source", func(j *runs.Job) { j.Order.Source = "" }},
	} {
		onMemory(t, func(b *bench) {
			p := b.process()
			j := job(1, "m1")
			c.change(&j)
			v := p.deliver(j, func(context.Context) error {
				b.Errorf("%s: the handler was entered", c.field)
				return nil
			})
			wantVerdict(b, v, runs.ActionDiscard, "invalid")
			wantNamed(b, v.Err, c.field)
			if p.spy.count(&p.spy.writes)+p.spy.count(&p.spy.loads) != 0 {
				b.Errorf("%s: the ledger was asked", c.field)
			}
		})
	}
}

func wantNamed(t testing.TB, err error, field string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "fencedrun: ") || !strings.Contains(err.Error(), field) {
		t.Errorf("want an error that names %q, got %v", field, err)
	}
}

func TestADeliveryWithoutAHandlerIsDiscarded(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1), nil)
		wantVerdict(b, v, runs.ActionDiscard, "invalid")
		wantNamed(b, v.Err, "handler is nil")
		if p.spy.count(&p.spy.writes) != 0 {
			b.Error("something was written")
		}
	})
}

type order struct{ Number int }

// badEffects are effects that cannot be asked for.
var badEffects = []struct {
	field  string
	effect runs.Effect
}{
	{"Intent is empty", runs.Effect{Key: runs.ID("x")}},
	{"Intent is 129 bytes", runs.Effect{Intent: strings.Repeat("i", 129), Key: runs.ID("x")}},
	{"Intent is not valid UTF-8", runs.Effect{Intent: "\xff", Key: runs.ID("x")}},
	{"key is empty", runs.Effect{Intent: "tag"}},
	{"key: the id is empty", runs.Effect{Intent: "tag", Key: runs.ID("")}},
	{"key: the id is not valid UTF-8", runs.Effect{Intent: "tag", Key: runs.ID("\xff")}},
	{"over the limit", runs.Effect{Intent: "tag", Key: runs.ID(strings.Repeat("x", 1025))}},
	{"order", runs.Effect{Intent: "tag", Key: runs.Key("order", order{1})}},
	{"price", runs.Effect{Intent: "tag", Key: runs.Key("price", 0.1)}},
	{"at", runs.Effect{Intent: "tag", Key: runs.Key("at", time.Time{})}},
	{"order", runs.Effect{Intent: "tag", Key: runs.Key("order", nil)}},
	{"order", runs.Effect{Intent: "tag", Key: runs.Key("order", "")}},
	{"order", runs.Effect{Intent: "tag", Key: runs.Key("order", 1, "order", 2)}},
	{"Params", runs.Effect{Intent: "tag", Key: runs.ID("x"), Params: math.NaN()}},
	{"/amount", runs.Effect{Intent: "tag", Key: runs.ID("x"), Params: map[string]any{"amount": math.Inf(1)}}},
	{`Params`, runs.Effect{Intent: "tag", Key: runs.ID("x"), Params: json.RawMessage(`{"a":1,"a":2}`)}},
	{"Params", runs.Effect{Intent: "tag", Key: runs.ID("x"), Params: "\xff"}},
	{"Params", runs.Effect{Intent: "tag", Key: runs.ID("x"), Params: func() {}}},
	{"Answers", runs.Effect{Intent: "tag", Key: runs.ID("x"), Answers: []string{"m1"}}},
	{"Answers[0] is empty", runs.Effect{Intent: "reply", Key: runs.ID("x"), Answers: []string{""}}},
	{"Answers[1] is named twice", runs.Effect{Intent: "reply", Key: runs.ID("x"), Answers: []string{"m1", "m1"}}},
	{`Policy is "strict"`, runs.Effect{Intent: "tag", Key: runs.ID("x"), Policy: "strict"}},
	{"Wait is negative", runs.Effect{Intent: "tag", Key: runs.ID("x"), Wait: -1}},
	{"Timeout is negative", runs.Effect{Intent: "tag", Key: runs.ID("x"), Timeout: -1}},
	{"ClaimDeadline is negative", runs.Effect{Intent: "tag", Key: runs.ID("x"), ClaimDeadline: -1}},
	{"ClaimDeadline (1m0s) must be longer than Timeout (1m0s)", runs.Effect{Intent: "tag", Key: runs.ID("x"), ClaimDeadline: time.Minute}},
}

func TestABadEffectIsAnErrorWithTheFieldsNameAndNothingWritten(t *testing.T) {
	for _, c := range badEffects {
		onMemory(t, func(b *bench) {
			p := b.process()
			neverCalled := func(context.Context, *runs.Call) error {
				b.Errorf("%s: the effect was called", c.field)
				return nil
			}
			v := p.deliver(job(1), func(ctx context.Context) error {
				before := p.spy.count(&p.spy.writes)
				wantNamed(b, once(ctx, c.effect, neverCalled), c.field)
				_, err := runs.FromContext(ctx).Claim(ctx, c.effect, time.Hour)
				wantNamed(b, err, strings.Split(c.field, " ")[0])
				wantNamed(b, p.Once(ctx, "c", c.effect, neverCalled), c.field)
				if p.spy.count(&p.spy.writes) != before {
					b.Errorf("%s: something was written", c.field)
				}
				return errors.New("as any error")
			})
			wantVerdict(b, v, runs.ActionReturn, "")
		})
	}
}

func TestABadIntentIsAnErrorWithTheFieldsName(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		x := runs.ID("x")
		fn := func(context.Context, *runs.Call) (int, error) { b.Error("called"); return 0, nil }
		_ = p.deliver(job(1), func(ctx context.Context) error {
			before := p.spy.count(&p.spy.writes)
			for _, c := range []struct {
				field  string
				intent runs.Intent[int]
			}{
				{"Intent is empty", runs.Intent[int]{}},
				{"Intent.HonoursKey is negative", runs.Intent[int]{Name: "n", HonoursKey: -1}},
				{"Intent.MaxCalls is negative", runs.Intent[int]{Name: "n", MaxCalls: -1}},
				{"Intent.Timeout is negative", runs.Intent[int]{Name: "n", Timeout: -1}},
				{"Intent.ClaimDeadline is negative", runs.Intent[int]{Name: "n", ClaimDeadline: -1}},
				{"must be longer than Timeout", runs.Intent[int]{Name: "n", Timeout: time.Hour, ClaimDeadline: time.Minute}},
			} {
				_, err := c.intent.Once(ctx, x, fn)
				wantNamed(b, err, c.field)
			}
			in := runs.Intent[int]{Name: "n"}
			_, err := in.Once(ctx, x, nil)
			wantNamed(b, err, "fn is nil")
			wantNamed(b, once(ctx, tag("x"), nil), "fn is nil")
			_, err = in.Once(ctx, x, fn, runs.With{}, runs.With{})
			wantNamed(b, err, "more than one With")
			_, err = in.Claim(ctx, x, time.Hour, runs.With{}, runs.With{})
			wantNamed(b, err, "more than one With")
			_, err = in.Claim(ctx, x, 0)
			wantNamed(b, err, "deadline is not positive")
			_, err = in.OnceOn(ctx, nil, "c", x, fn)
			wantNamed(b, err, "keeper is nil")
			_, err = in.OnceOn(ctx, p.Keeper, "", x, fn)
			wantNamed(b, err, "conversation is empty")
			_, err = p.Check(ctx, "\xff", tag("x"))
			wantNamed(b, err, "conversation is not valid UTF-8")
			wantNamed(b, runs.FromContext(ctx).Dismiss(ctx, []string{""}, ""), "ids[0] is empty")
			wantNamed(b, runs.FromContext(ctx).SaveProgress(ctx, math.NaN()), "save progress")
			wantNamed(b, runs.FromContext(ctx).SaveProgress(ctx, strings.Repeat("x", 64<<10)), "Config.MaxResult")
			if p.spy.count(&p.spy.writes) != before {
				b.Error("something was written")
			}
			return nil
		})
	})
}

func TestBadQuestionsOfAnOperatorAreErrorsWithTheFieldsName(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		ctx := b.Context()
		long := strings.Repeat("x", 513)
		errOf := func(_ any, err error) error { return err }
		_, _, resolveNothing := p.Resolve(ctx, "c", "", runs.Resolution{By: "me"})
		_, _, resolveNobody := p.Resolve(ctx, "c", "e", runs.Resolution{})
		_, _, resolveNowhere := p.Resolve(ctx, "", "e", runs.Resolution{By: "me"})
		for _, c := range []struct {
			field string
			err   error
		}{
			{"conversation is empty", errOf(p.Stamp(ctx, ""))},
			{"conversation is 513 bytes", errOf(p.Stamp(ctx, long))},
			{"conversation is empty", errOf(p.History(ctx, ""))},
			{"conversation is empty", errOf(p.Dismiss(ctx, "", []string{"m"}, ""))},
			{"ids[0] is empty", errOf(p.Dismiss(ctx, "c", []string{""}, ""))},
			{"ids[0] is 513 bytes", errOf(p.Dismiss(ctx, "c", []string{long}, ""))},
			{"queue is empty", errOf(p.Cancel(ctx, runs.RunKey{ID: "1"}, runs.CancelOptions{}))},
			{"id is empty", errOf(p.Cancel(ctx, runs.RunKey{Queue: "q"}, runs.CancelOptions{}))},
			{"conversation is empty", errOf(p.Report(ctx, "", runs.Write{ID: "w"}))},
			{"Write.ID is empty", errOf(p.Report(ctx, "c", runs.Write{}))},
			{"Write.Intent is 513 bytes", errOf(p.Report(ctx, "c", runs.Write{ID: "w", Intent: long}))},
			{"Write.Answers[0] is empty", errOf(p.Report(ctx, "c", runs.Write{ID: "w", Answers: []string{""}}))},
			{"effect is empty", resolveNothing},
			{"Resolution.By is empty", resolveNobody},
			{"conversation is empty", resolveNowhere},
			{"limit is not positive", errOf(p.Purge(ctx, 0))},
			{"id is not one", errOf(p.ClaimByID("c", "nonsense"))},
			{"id is not one", errOf(p.ClaimByID("c", strings.Repeat("0", 40)+"."))},
			{"conversation is empty", errOf(p.ClaimByID("", strings.Repeat("0", 40)+".claim"))},
		} {
			wantNamed(b, c.err, c.field)
		}
		if p.spy.count(&p.spy.writes)+p.spy.count(&p.spy.loads) != 0 {
			b.Error("the ledger was asked")
		}
	})
}

func TestSettingsThatCannotWorkTogetherAreAnErrorThatNamesThem(t *testing.T) {
	for _, c := range []struct {
		fields []string
		config runs.Config
	}{
		{[]string{"Config.Lease (10s)", "Config.Beat (10s)"}, runs.Config{Lease: 10 * time.Second, Beat: 10 * time.Second}},
		{[]string{"Config.Lease (30s)", "Config.Beat (40s)"}, runs.Config{Beat: 40 * time.Second}},
		{[]string{"Config.ClaimDeadline (1m0s)", "Config.EffectTimeout (1m0s)"}, runs.Config{ClaimDeadline: time.Minute}},
		{[]string{"Config.PollMax (1ms)", "Config.PollMin (2ms)"}, runs.Config{PollMin: 2 * time.Millisecond, PollMax: time.Millisecond}},
		{[]string{"Config.Retention (1m0s)", "Config.ClaimDeadline", "Config.Quiet"}, runs.Config{Retention: time.Minute}},
		{[]string{"Config.Namespace"}, runs.Config{Namespace: strings.Repeat("n", 513)}},
		{[]string{"Config.Lease is negative"}, runs.Config{Lease: -1}},
		{[]string{"Config.SettleTimeout is negative"}, runs.Config{SettleTimeout: -1}},
		{[]string{"Config.MaxCalls is negative"}, runs.Config{MaxCalls: -1}},
		{[]string{"Config.MaxResult is negative"}, runs.Config{MaxResult: -1}},
		{[]string{"Config.Rounds is negative"}, runs.Config{Rounds: -1}},
	} {
		_, err := runs.New(memledger.New(), &c.config)
		for _, field := range c.fields {
			wantNamed(t, err, field)
		}
	}
	_, err := runs.New(nil, nil)
	wantNamed(t, err, "store is nil")
}

func TestAHandlerCalledOutsideItsAdapterIsRefused(t *testing.T) {
	ctx := t.Context()
	run := runs.FromContext(ctx)
	if run != nil {
		t.Fatal("a run out of nowhere")
	}
	never := func(context.Context, *runs.Call) error { t.Error("called"); return nil }
	in := runs.Intent[int]{Name: "n"}
	_, typed := in.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (int, error) { t.Error("called"); return 0, nil })
	_, claimed := in.Claim(ctx, runs.ID("x"), time.Hour)
	_, claim := run.Claim(ctx, tag("x"), time.Hour)
	_, view := run.CatchUp(ctx)
	_, checked := run.Check(ctx, tag("x"))
	_, progress := run.Progress(new(int))
	for i, err := range []error{
		run.Once(ctx, tag("x"), never), typed, claimed, claim, view, checked, progress,
		run.SaveProgress(ctx, 1), run.Dismiss(ctx, []string{"m"}, ""),
		runs.UntilCurrent(ctx, func(context.Context, runs.View) error { t.Error("called"); return nil }),
	} {
		if !errors.Is(err, runs.ErrNoRun) || !strings.Contains(err.Error(), "no run in ctx") {
			t.Errorf("%d: want ErrNoRun, got %v", i, err)
		}
	}
	if run.Delivery() != 0 || run.Job().ID != "" {
		t.Error("a nil *Run has a delivery or a job")
	}
}

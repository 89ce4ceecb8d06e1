package story

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

const conversation = "ticket-7"

// bot is a support bot under a clock of its own.
type bot struct {
	t *testing.T
	*runstest.Keeper
	chat *runstest.Provider
}

func newBot(t *testing.T) *bot {
	k := runstest.NewKeeper(t, &runs.Config{Worker: "web-3"})
	return &bot{t, k, k.NewProvider()}
}

// message is the job that brings message n.
func message(n int64) runs.Job {
	id := string(rune('0' + n))
	return runs.Job{
		Queue: "asynq:default", ID: "4" + id, Conversation: conversation, Inbound: []string{"m" + id},
		Order: runs.Order{Source: "message", Number: n}, Reads: runs.AfterBegin,
	}
}

// answer answers every message that is open, after thinking for two seconds.
func (b *bot) answer(ctx context.Context) error {
	return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
		open := view.OpenIDs()
		if len(open) == 0 {
			return nil
		}
		b.Advance(2 * time.Second)
		reply := runs.Effect{Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open, Summary: "Your parcel left our house on Monday."}
		return runs.FromContext(ctx).Once(ctx, reply, func(ctx context.Context, call *runs.Call) error {
			b.Advance(time.Second)
			call.SetReference("chat-" + call.Effect.Key)
			return b.chat.Do(ctx, call)
		})
	})
}

// refund pays an order back, and then answers.
func (b *bot) refund(ctx context.Context) error {
	order := runs.Effect{Intent: "refund", Key: runs.Key("order", "A-17", "line", 2), Params: map[string]any{"cents": 1999}}
	err := runs.FromContext(ctx).Once(ctx, order, func(ctx context.Context, call *runs.Call) error {
		b.Advance(time.Second)
		return b.chat.Do(ctx, call)
	})
	if err != nil {
		return err
	}
	return b.answer(ctx)
}

func (b *bot) resolve(happened bool, note string) {
	b.t.Helper()
	for _, e := range b.Unknown(conversation) {
		_, _, err := b.Resolve(b.t.Context(), conversation, e.ID, runs.Resolution{Happened: happened, By: "alice", Note: note})
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bot) told(o Options) Story {
	b.t.Helper()
	h, err := b.History(b.t.Context(), conversation)
	if err != nil {
		b.t.Fatal(err)
	}
	if o.Conversation == "" {
		o.Conversation = conversation
	}
	return Tell(h, o)
}

func text(t *testing.T, s Story) string {
	t.Helper()
	var b strings.Builder
	if err := s.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var stories = []struct {
	name string
	play func(b *bot)
}{
	{"answered", func(b *bot) {
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"replayed", func(b *bot) { // the reply went out, then the handler failed; the redelivery finds it done
		b.Deliver(message(1), func(ctx context.Context) error {
			if err := b.refund(ctx); err != nil {
				return err
			}
			return context.DeadlineExceeded
		})
		b.Advance(20 * time.Second)
		b.Deliver(message(1), b.refund)
		b.Advance(time.Minute)
	}},
	{"superseded", func(b *bot) { // the second message arrives while the bot thinks about the first
		b.When(runs.EventCaughtUp, func(runs.Event) {
			b.Advance(time.Second)
			b.Deliver(message(2), b.answer)
		})
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"overtaken", func(b *bot) { // the older job begins last
		b.Deliver(message(2), func(ctx context.Context) error {
			b.Advance(time.Second)
			b.Deliver(message(1), b.answer)
			b.Advance(time.Second)
			return b.answer(ctx)
		})
		b.Advance(5 * time.Second)
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"comes back", func(b *bot) { // the newer job left the older one's message open
		b.Deliver(message(2), func(ctx context.Context) error {
			b.Advance(time.Second)
			b.Deliver(message(1), b.answer)
			b.Advance(time.Second)
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m2")}, b.chat.Do)
		})
		b.Advance(5 * time.Second)
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"turned away", func(b *bot) { // a job that had begun comes back while a newer one is at work
		b.chat.Next(runstest.Fail)
		b.Deliver(message(1), b.answer)
		b.Advance(5 * time.Second)
		b.Deliver(message(2), func(context.Context) error {
			b.Advance(time.Second)
			b.Deliver(message(1), b.answer)
			b.Advance(time.Second)
			return errors.New("out of memory")
		})
		b.Advance(time.Second)
	}},
	{"again", func(b *bot) { // the queue lost the acknowledgement of a finished job
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"underway", func(b *bot) { // right in the middle of a call
		b.chat.Next(runstest.ActAndCrash)
		b.Deliver(message(1), b.answer)
		b.Advance(20 * time.Second)
	}},
	{"killed", func(b *bot) { // the worker died in the effect, and nobody knows
		b.chat.Next(runstest.ActAndCrash)
		b.Deliver(message(1), b.refund)
		b.Advance(time.Minute)
		b.Deliver(message(1), b.refund)
		b.Advance(4 * time.Minute)
		b.Deliver(message(1), b.refund)
		b.Advance(3 * time.Hour)
	}},
	{"resolved", func(b *bot) { // and alice found out, but nobody has run the job again
		b.chat.Next(runstest.ActAndCrash)
		b.Deliver(message(1), b.refund)
		b.Advance(5 * time.Minute)
		b.Deliver(message(1), b.refund)
		b.Advance(time.Hour)
		b.resolve(true, "found in the provider's dashboard, 19.99 EUR")
		b.Advance(time.Minute)
	}},
	{"rerun", func(b *bot) { // the whole of it
		b.chat.Next(runstest.ActAndCrash)
		b.Deliver(message(1), b.refund)
		b.Advance(5 * time.Minute)
		b.Deliver(message(1), b.refund)
		b.Advance(time.Hour)
		b.resolve(false, "no refund in the provider's dashboard")
		b.Advance(time.Minute)
		b.Deliver(message(1), b.refund)
		b.Advance(20 * time.Hour)
	}},
	{"duplicate", func(b *bot) { // a verdict that was wrong: the claimer comes back
		b.Deliver(message(1), func(ctx context.Context) error {
			claim, err := runs.FromContext(ctx).Claim(ctx, runs.Effect{Intent: "refund", Key: runs.Key("order", "A-17")}, 5*time.Minute)
			if err != nil {
				return err
			}
			b.Advance(10 * time.Minute)
			b.resolve(false, "nothing there")
			b.Advance(time.Minute)
			if err := b.refundAgain(ctx); err != nil {
				return err
			}
			b.Advance(time.Minute)
			return claim.Commit(ctx, nil, "re_81")
		})
		b.Advance(time.Minute)
	}},
	{"denied", func(b *bot) { // the same, and nobody has called again
		b.Deliver(message(1), func(ctx context.Context) error {
			claim, err := runs.FromContext(ctx).Claim(ctx, runs.Effect{Intent: "refund", Key: runs.Key("order", "A-17")}, 5*time.Minute)
			if err != nil {
				return err
			}
			b.Advance(10 * time.Minute)
			b.resolve(false, "nothing there")
			b.Advance(time.Minute)
			return claim.Commit(ctx, nil, "re_81")
		})
		b.Advance(time.Minute)
	}},
	{"timeout", func(b *bot) { // the provider did not answer; its webhook did
		b.chat.Next(runstest.ActAndTimeout)
		b.Deliver(message(1), b.answer)
		b.Advance(10 * time.Second)
		e := b.Unknown(conversation)[0]
		_, err := b.Report(b.t.Context(), conversation, runs.Write{ID: "hook-1", Intent: "reply", Reference: e.Calls[0].Reference, By: "chat webhook"})
		if err != nil {
			b.t.Fatal(err)
		}
		b.Advance(10 * time.Second)
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"failed", func(b *bot) { // the provider said no, twice
		b.chat.Next(runstest.Fail, runstest.Fail)
		b.Deliver(message(1), b.answer)
		b.Advance(15 * time.Second)
		b.DeliverTo(b.t.Context(), message(1), runs.Delivery{Permanent: func(error) bool { return true }}, b.answer)
		b.Advance(time.Minute)
	}},
	{"takeover", func(b *bot) { // a person answers while the bot thinks
		b.When(runs.EventCaughtUp, func(runs.Event) {
			b.Advance(2 * time.Second)
			_, err := b.Report(b.t.Context(), conversation, runs.Write{
				ID: "zendesk-991", Intent: "reply", Answers: []string{"m1"}, Summary: "Hi, Bob here, I am on it.", By: "bob",
			})
			if err != nil {
				b.t.Error(err)
			}
		})
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"stale", func(b *bot) { // the payload's snapshot was old
		job := message(1)
		job.Reads = runs.FromPayload
		stamp, err := b.Stamp(b.t.Context(), conversation)
		if err != nil {
			b.t.Fatal(err)
		}
		job.AsOf = stamp
		b.Advance(time.Second)
		if _, err := b.Report(b.t.Context(), conversation, runs.Write{ID: "note-1", Intent: "note", By: "bob", Summary: "Customer is a VIP."}); err != nil {
			b.t.Fatal(err)
		}
		b.Advance(time.Second)
		b.Deliver(job, func(ctx context.Context) error {
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, b.chat.Do)
		})
		b.Advance(time.Minute)
	}},
	{"cancelled", func(b *bot) { // before it began
		if _, err := b.Cancel(b.t.Context(), runs.RunKey{Queue: "asynq:default", ID: "41"}, runs.CancelOptions{By: "carol", Why: "spam"}); err != nil {
			b.t.Fatal(err)
		}
		b.Advance(time.Minute)
		b.Deliver(message(1), b.answer)
		b.Advance(time.Minute)
	}},
	{"left open", func(b *bot) { // the job ended well, and did not answer
		b.Deliver(message(1), func(context.Context) error { b.Advance(time.Second); return nil })
		b.Advance(time.Hour)
		b.Deliver(message(2), b.refund)
		b.Advance(time.Second)
		if _, err := b.Dismiss(b.t.Context(), conversation, []string{"m9"}, "an out-of-office note"); err != nil {
			b.t.Fatal(err)
		}
		b.Deliver(message(3), func(context.Context) error { b.Advance(time.Second); return nil })
		b.Advance(30 * time.Minute)
	}},
	{"never looks", func(b *bot) { // a handler that repeats what was refused
		blind := func(ctx context.Context) error {
			b.Advance(time.Second)
			if _, err := b.Report(b.t.Context(), conversation, runs.Write{ID: "note-1", By: "bob"}); err != nil {
				b.t.Error(err)
			}
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, b.chat.Do)
		}
		b.Deliver(message(1), func(ctx context.Context) error { _ = blind(ctx); return blind(ctx) })
		b.Advance(time.Minute)
	}},
	{"probed", func(b *bot) { // the job comes back and asks the provider
		b.chat.Next(runstest.ActAndCrash)
		answers := []error{errors.New("503 service unavailable"), nil}
		in := b.probed(func() error { err := answers[0]; answers = answers[1:]; return err })
		b.Deliver(message(1), in)
		b.Advance(5 * time.Minute)
		b.Deliver(message(1), in)
		b.Advance(time.Hour)
		b.Deliver(message(1), in)
		b.Advance(time.Minute)
	}},
	{"probing", func(b *bot) { // which does not know either
		b.chat.Next(runstest.ActAndCrash)
		in := b.probed(func() error { return errors.New("503 service unavailable") })
		b.Deliver(message(1), in)
		b.Advance(5 * time.Minute)
		b.Deliver(message(1), in)
		b.Advance(30 * time.Second)
	}},
	{"died", func(b *bot) { // between two effects: nothing is in doubt
		b.Deliver(message(1), func(ctx context.Context) error {
			b.Advance(time.Second)
			runstest.Crash(ctx)
			return nil
		})
		b.Advance(time.Minute)
	}},
	{"retrying", func(b *bot) { // the provider said no; the queue delivers again, and the call goes on
		b.chat.Next(runstest.Fail, runstest.ActAndCrash)
		b.Deliver(message(1), b.answer)
		b.Advance(30 * time.Second)
		b.Deliver(message(1), b.answer)
		b.Advance(30 * time.Second)
	}},
	{"waiting", func(b *bot) { // in its queue
		b.chat.Next(runstest.Fail)
		b.Deliver(message(1), b.answer)
		b.Advance(30 * time.Second)
	}},
	{"nothing", func(*bot) {}},
}

// probed is a handler whose refund has a probe, which finds it unless ask fails.
func (b *bot) probed(ask func() error) func(ctx context.Context) error {
	in := runs.Intent[string]{Name: "refund", Probe: func(context.Context, runs.Question) (runs.Found[string], error) {
		return runs.Applied("done", "re_81"), ask()
	}}
	return func(ctx context.Context) error {
		_, err := in.Once(ctx, runs.Key("order", "A-17"), func(ctx context.Context, call *runs.Call) (string, error) {
			b.Advance(time.Second)
			return "done", b.chat.Do(ctx, call)
		})
		if err != nil {
			return err
		}
		return b.answer(ctx)
	}
}

// refundAgain makes the call that a verdict allowed.
func (b *bot) refundAgain(ctx context.Context) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "refund", Key: runs.Key("order", "A-17")}, func(ctx context.Context, call *runs.Call) error {
		call.SetReference("re_82")
		return b.chat.Do(ctx, call)
	})
}

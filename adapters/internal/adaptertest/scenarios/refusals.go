package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// refusals: what becomes of a job whose effect is refused or unknown.
func refusals() []scenario {
	return []scenario{
		{"conversation_changed is retried and the handler looks again", Options{}, changedIsRetried},
		{"conversation_changed with nothing left to answer is done", Options{}, nothingLeft},
		{"refused twice without a look is parked, and resumed by a person", Options{}, refusedTwice},
		{"stale payload is parked at once", Options{Reads: runs.FromPayload}, stalePayload},
		{"ambiguous comes back, parks, and ends when a person has decided", Options{}, ambiguous},
		{"params_changed is discarded visibly", Options{}, paramsChanged},
		{"effect in flight elsewhere: the job comes back and replays", Options{}, inFlight},
	}
}

// report says that something else wrote to the conversation.
func (b *bench) report(id string, answers ...string) {
	b.Helper()
	w := runs.Write{ID: id, Intent: "reply", Answers: answers, By: "a human agent"}
	if _, err := b.keeper.Report(context.Background(), conversation, w); err != nil {
		b.Errorf("report: %v", err)
	}
}

func changedIsRetried(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			b.report("w1")
			err := b.reply(ctx, "m1")
			if !errors.Is(err, runs.ErrConversationChanged) {
				b.Errorf("reply: %v, want conversation_changed", err)
			}
			return err
		}
		return b.reply(ctx, "m1")
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	if r := b.awaitSpent("a", 1); !strings.Contains(r.Error, "conversation_changed") {
		b.Errorf("the queue's error is %q, want the reason", r.Error)
	}
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 2)
	b.wantSent("reply m1", 1)
}

func nothingLeft(b *bench) {
	b.start(func(ctx context.Context, _ string, _ int) error {
		b.report("w1", "m1")
		return b.reply(ctx, "m1")
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 1)
	b.wantSent("reply m1", 0)
}

func refusedTwice(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			b.report("w1")
			_ = b.reply(ctx, "m1")
		}
		return b.reply(ctx, "m1")
	})
	b.Queue.Enqueue(job("a", "m1"))
	if r := b.await("a", adaptertest.Stopped); !strings.Contains(r.Error, "refused_twice") {
		b.Errorf("the queue's error is %q, want the reason", r.Error)
	}
	if r := b.record("a"); r.State != fence.RunActive || r.Parked != fence.ReasonRefusedTwice {
		b.Errorf("the run is %s, parked %q, want it active and parked", r.State, r.Parked)
	}
	b.wantEntered("a", 1)
	b.Queue.Rerun("a")
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 2)
	b.wantSent("reply m1", 1)
}

func stalePayload(b *bench) {
	b.report("w1")
	b.start(func(ctx context.Context, _ string, _ int) error { return b.reply(ctx, "m1") })
	b.Queue.Enqueue(job("a", "m1"))
	if r := b.await("a", adaptertest.Stopped); !strings.Contains(r.Error, "stale_payload") {
		b.Errorf("the queue's error is %q, want the reason", r.Error)
	}
	b.wantEntered("a", 1)
	b.wantSent("reply m1", 0)
}

func ambiguous(b *bench) {
	b.start(func(ctx context.Context, _ string, _ int) error {
		err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(context.Context, *runs.Call) error {
			b.sent.send("reply m1")
			return context.DeadlineExceeded // sent, and no answer came
		})
		if err != nil {
			return fmt.Errorf("reply: %w", err)
		}
		return nil
	})
	spec := job("a", "m1")
	spec.Tries = 2 // coming back must not use them up
	b.Queue.Enqueue(spec)
	b.untilEntered("a", 1)
	b.awaitSpent("a", 0)
	r := b.await("a", adaptertest.Stopped)
	if !strings.Contains(r.Error, "unknown") {
		b.Errorf("the queue's error is %q, want it to say that the outcome is unknown", r.Error)
	}
	b.wantSent("reply m1", 1)

	unresolved, err := b.keeper.Unresolved(context.Background(), 0, 0)
	if err != nil || len(unresolved) != 1 {
		b.Fatalf("%d unresolved effects, %v, want 1", len(unresolved), err)
	}
	if _, _, err := b.keeper.Resolve(context.Background(), conversation, unresolved[0].Effect.ID, runs.Resolution{Happened: true, By: "test"}); err != nil {
		b.Fatal(err)
	}
	b.Queue.Rerun("a")
	b.await("a", adaptertest.Done)
	b.wantSent("reply m1", 1)
}

// refund asks for the same refund with an amount.
func (b *bench) refund(ctx context.Context, amount int) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "refund", Key: runs.ID("order 1"), Params: map[string]any{"amount": amount}}, func(context.Context, *runs.Call) error {
		b.sent.send("refund")
		return nil
	})
}

func paramsChanged(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		return errors.Join(b.refund(ctx, 10), b.refund(ctx, 20))
	})
	b.Queue.Enqueue(job("a", "m1"))
	if r := b.await("a", adaptertest.Stopped); !strings.Contains(r.Error, "params_changed") {
		b.Errorf("the queue's error is %q, want the reason", r.Error)
	}
	time.Sleep(10 * time.Second)
	b.wantEntered("a", 1)
	b.wantSent("refund", 1)
	if r := b.record("a"); r.End != fence.EndDiscarded {
		b.Errorf("the run is %s (%s), want it discarded", r.State, r.End)
	}
}

// held plays a job that is in the middle of an effect until the gate opens, and
// another that asks for the same effect and returns what wrap makes of the
// refusal.
func held(b *bench, wrap func(error) error) gate {
	b.Helper()
	hold := make(gate)
	b.start(func(ctx context.Context, name string, entry int) error {
		err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "charge", Key: runs.ID("order 1")}, func(context.Context, *runs.Call) error {
			hold.wait()
			b.sent.send("charge")
			return nil
		})
		if err != nil {
			return wrap(err)
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("first", "m1"))
	b.untilEntered("first", 1)
	time.Sleep(time.Second)
	b.Queue.Enqueue(job("second", "m2"))
	b.untilEntered("second", 1)
	return hold
}

func inFlight(b *bench) {
	hold := held(b, func(err error) error { return err })
	b.awaitSpent("second", 0)
	time.Sleep(10 * time.Second)
	b.awaitSpent("second", 0)
	hold.open()
	b.await("first", adaptertest.Done)
	b.await("second", adaptertest.Done)
	b.wantSent("charge", 1)
	b.wantSent("reply m1", 1)
	b.wantSent("reply m2", 1)
}

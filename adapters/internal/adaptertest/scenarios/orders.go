package scenarios

import (
	"context"
	"errors"
	"time"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
	"github.com/fencedrun/fencedrun/runs"
)

// orders: several jobs on one conversation, and cancelling.
func orders() []scenario {
	return []scenario{
		{"superseded job comes back, then is dropped for good", Options{}, supersededForGood},
		{"superseded job comes back for the message that is still open", Options{}, supersededOpen},
		{"busy job waits without spending an attempt", Options{Mode: runs.Exclusive}, busy},
		{"busy job on its last attempt is not given up", Options{Mode: runs.Exclusive}, busyOnLastAttempt},
		{"job cancelled before it began is dropped", Options{}, cancelledBefore},
		{"job cancelled at work is dropped, whatever it returns", Options{}, cancelledAtWork},
	}
}

// superseded plays an old job that thinks while a newer one comes; the newer one
// answers with reply when it is let.
func superseded(b *bench, reply func(ctx context.Context) error) {
	b.Helper()
	newer := make(gate)
	b.start(func(ctx context.Context, name string, entry int) error {
		if name == "new" {
			newer.wait()
			return reply(ctx)
		}
		if entry == 1 { // a model call that honours its ctx
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, runs.ErrSuperseded) {
				b.Errorf("cause of the old job's ctx: %v, want superseded", cause)
			}
			return ctx.Err()
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("old", "m1"))
	b.untilEntered("old", 1)
	b.Queue.Enqueue(job("new", "m2"))
	b.untilEntered("new", 1)
	b.awaitSpent("old", 0)
	time.Sleep(30 * time.Second) // several times back, never entered
	b.awaitSpent("old", 0)
	b.wantEntered("old", 1)
	newer.open()
	b.await("new", adaptertest.Done)
}

func supersededForGood(b *bench) {
	superseded(b, func(ctx context.Context) error { return b.reply(ctx, "m1", "m2") })
	if r := b.await("old", adaptertest.Done); r.Note == "" {
		b.Error("the queue's record has no note for people")
	}
	b.wantEntered("old", 1)
	b.wantSent("reply m1", 1)
	b.wantSent("reply m2", 1)
}

func supersededOpen(b *bench) {
	superseded(b, func(ctx context.Context) error { return b.reply(ctx, "m2") })
	b.await("old", adaptertest.Done)
	b.wantEntered("old", 2)
	b.wantSent("reply m1", 1)
	b.wantSent("reply m2", 1)
}

// holder starts workers whose job "holder" holds the conversation until the gate
// opens.
func holder(b *bench) gate {
	b.Helper()
	hold := make(gate)
	b.start(func(ctx context.Context, name string, _ int) error {
		if name == "holder" {
			hold.wait()
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("holder", "m1"))
	b.untilEntered("holder", 1)
	return hold
}

func busy(b *bench) {
	hold := holder(b)
	b.Queue.Enqueue(job("a", "m2"))
	time.Sleep(45 * time.Second) // more than a lease
	b.awaitSpent("a", 0)
	b.wantEntered("a", 0)
	hold.open()
	b.await("holder", adaptertest.Done)
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 1)
	b.wantSent("reply m1", 1)
	b.wantSent("reply m2", 1)
}

func busyOnLastAttempt(b *bench) {
	hold := holder(b)
	last := job("a", "m2")
	last.Tries = 1
	b.Queue.Enqueue(last)
	time.Sleep(45 * time.Second)
	if r := b.Queue.Record("a"); r.State == adaptertest.Stopped || r.State == adaptertest.Done {
		b.Errorf("the job is %s (%s: %s) while the conversation is busy", r.State, r.Word, r.Error)
	}
	b.wantEntered("a", 0)
	hold.open()
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 1)
	b.wantSent("reply m2", 1)
}

func (b *bench) cancel(name string) {
	b.Helper()
	ok, err := b.keeper.Cancel(context.Background(), b.run(name), runs.CancelOptions{By: "test", Why: "to see", Dismiss: true})
	if err != nil || !ok {
		b.Fatalf("cancel %s: %v, %v", name, ok, err)
	}
}

func cancelledBefore(b *bench) {
	b.Queue.Enqueue(job("a", "m1"))
	b.cancel("a")
	b.start(func(ctx context.Context, _ string, _ int) error { return b.answerOpen(ctx) })
	if r := b.await("a", adaptertest.Done); r.Note == "" {
		b.Error("the queue's record has no note for people")
	}
	b.wantEntered("a", 0)
	b.wantSent("reply m1", 0)
}

func cancelledAtWork(b *bench) {
	b.start(func(ctx context.Context, _ string, _ int) error {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, runs.ErrCancelled) {
			b.Errorf("cause of the job's ctx: %v, want cancelled", cause)
		}
		if err := b.reply(ctx, "m1"); !errors.Is(err, runs.ErrCancelled) {
			b.Errorf("an effect of a cancelled job: %v, want cancelled", err)
		}
		return errors.New("interrupted")
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	b.cancel("a")
	b.await("a", adaptertest.Done)
	time.Sleep(10 * time.Second)
	b.wantEntered("a", 1)
	b.wantSent("reply m1", 0)
}

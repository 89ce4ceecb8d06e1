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

// deliveries: one job, delivered in every way a queue delivers.
func deliveries() []scenario {
	list := []scenario{
		{"fresh job is done", Options{}, freshJob},
		{"redelivery resumes and replays", Options{}, redeliveryReplays},
		{"finished job delivered again is acknowledged without the handler", Options{}, finishedAgain},
		{"redelivery after a shutdown does nothing twice", Options{}, afterShutdown},
		{"panic passes through and the run resumes at once", Options{Mode: runs.Exclusive}, panicPasses},
		{"ReplayOnly does not enter a run that wrote", Options{ReplayOnly: true}, replayOnly},
		{"ReplayOnly enters a run that did not write", Options{ReplayOnly: true}, replayOnlyUnwritten},
		{"job without a conversation is an error", Options{}, noConversation},
		{"job without a conversation passes unfenced if allowed", Options{Unfenced: true}, unfenced},
	}
	for _, returns := range []string{"the refusal", "nil", "an error of its own", "the queue's never", "with a panic"} {
		list = append(list, scenario{
			"stale delivery that returns " + returns + " leaves the job to the newer one", Options{},
			func(b *bench) { twoLive(b, returns) },
		})
	}
	return list
}

func freshJob(b *bench) {
	b.start(func(ctx context.Context, _ string, _ int) error {
		if runs.FromContext(ctx).Job().Conversation != conversation {
			b.Errorf("the run is on conversation %q", runs.FromContext(ctx).Job().Conversation)
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.await("a", adaptertest.Done)
	b.wantSent("reply m1", 1)
	if r := b.record("a"); !r.Finished() {
		b.Errorf("the run is %s (%s), want it ended with success", r.State, r.End)
	}
}

func redeliveryReplays(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if err := b.do(ctx, "look up", "account"); err != nil {
			return err
		}
		if got := runs.FromContext(ctx).Delivery(); got != int64(entry) {
			b.Errorf("delivery %d in entry %d", got, entry)
		}
		if entry < 3 {
			return errors.New("the model is down")
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 3)
	b.wantSent("look up account", 1)
	b.wantSent("reply m1", 1)
}

func finishedAgain(b *bench) {
	b.start(func(ctx context.Context, _ string, _ int) error { return b.answerOpen(ctx) })
	b.Queue.Enqueue(job("a", "m1"))
	b.await("a", adaptertest.Done)
	b.Queue.Rerun("a")
	time.Sleep(10 * time.Second)
	b.is("a", adaptertest.Done)
	b.wantEntered("a", 1)
	b.wantSent("reply m1", 1)
	if n := b.told(fence.EventFinishedAgain); n != 1 {
		b.Errorf("finished_again was told %d times, want 1", n)
	}
}

// Two deliveries of one job live at once, as after a rescue or a failover. The
// first one is stale from the moment at which the second begins.
func twoLive(b *bench, returns string) {
	first, second := make(gate), make(gate)
	b.start(func(ctx context.Context, _ string, entry int) error {
		if err := b.do(ctx, "look up", "account"); err != nil {
			return err
		}
		if entry > 1 {
			second.wait()
			return b.reply(ctx, "m1")
		}
		first.wait()
		err := b.reply(ctx, "m1")
		if !errors.Is(err, runs.ErrSuperseded) {
			b.Errorf("the stale delivery's effect: %v, want superseded", err)
		}
		switch returns {
		case "nil":
			return nil
		case "an error of its own":
			return errors.New("something went wrong")
		case "the queue's never":
			return b.Never(errors.New("something went wrong"))
		case "with a panic":
			panic("something went wrong")
		}
		return fmt.Errorf("reply: %w", err)
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	b.Queue.Redeliver("a")
	b.untilEntered("a", 2)

	first.open()
	time.Sleep(25 * time.Second)
	b.is("a", adaptertest.Running)
	b.wantEntered("a", 2)

	second.open()
	b.await("a", adaptertest.Done)
	time.Sleep(30 * time.Second)
	b.is("a", adaptertest.Done)
	b.wantEntered("a", 2)
	b.wantSent("look up account", 1)
	b.wantSent("reply m1", 1)
}

func afterShutdown(b *bench) {
	handler := func(ctx context.Context, _ string, entry int) error {
		if err := b.do(ctx, "look up", "account"); err != nil {
			return err
		}
		if entry == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return b.answerOpen(ctx)
	}
	b.start(handler)
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	b.Queue.Shutdown()
	if r := b.is("a", adaptertest.Waiting); r.Spent != 0 {
		b.Errorf("the shutdown spent %d attempts", r.Spent)
	}
	b.start(handler)
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 2)
	b.wantSent("look up account", 1)
	b.wantSent("reply m1", 1)
}

func panicPasses(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			panic("kaboom")
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	if r := b.awaitSpent("a", 1); !strings.Contains(r.Error, "kaboom") {
		b.Errorf("the queue's error is %q, want the panic's text", r.Error)
	}
	began := time.Now()
	b.await("a", adaptertest.Done)
	if d := time.Since(began); d > 10*time.Second {
		b.Errorf("done after %v: the lease of the panicked delivery was not released", d)
	}
	b.wantEntered("a", 2)
	b.wantSent("reply m1", 1)
}

func replayOnly(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if err := b.reply(ctx, "m1"); err != nil {
			return err
		}
		return errors.New("after the reply")
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 1)
	b.wantSent("reply m1", 1)
}

func replayOnlyUnwritten(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			return errors.New("before the reply")
		}
		return b.reply(ctx, "m1")
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 2)
	b.wantSent("reply m1", 1)
}

// foreign is a job whose producer knows nothing of the adapter.
func foreign(name string) adaptertest.Spec {
	return adaptertest.Spec{Name: name, Payload: name, Tries: 1}
}

func noConversation(b *bench) {
	b.start(func(context.Context, string, int) error { return nil })
	b.Queue.Enqueue(foreign("a"))
	if r := b.await("a", adaptertest.Stopped); !strings.Contains(r.Error, "has no conversation") {
		b.Errorf("the queue's error is %q, want it to say what is missing", r.Error)
	}
	b.wantEntered("a", 0)
}

func unfenced(b *bench) {
	b.start(func(ctx context.Context, _ string, _ int) error {
		if runs.FromContext(ctx) != nil {
			b.Error("an unfenced job has a run")
		}
		if err := b.do(ctx, "look up", "account"); !errors.Is(err, runs.ErrNoRun) {
			b.Errorf("an effect of an unfenced job: %v, want no_run", err)
		}
		return nil
	})
	b.Queue.Enqueue(foreign("a"))
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 1)
	b.wantSent("look up account", 0)
}

package asynqruns_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/runs"
)

func TestWithoutTheConfigDecoratorBusyWaitsInside(t *testing.T) {
	fenced(t, asynqruns.Config{Mode: runs.Exclusive}, func(t *testing.T, b *bench) {
		hold := make(gate)
		var entered list[string]
		b.Start(asynq.Config{}, b.fenced.Middleware(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			entered.add(string(task.Payload()))
			if string(task.Payload()) == "holder" {
				hold.wait()
			}
			return nil
		})))
		b.Enqueue(b.task("holder"), asynq.TaskID("holder"))
		time.Sleep(5 * time.Second)
		b.Enqueue(b.task("a"), asynq.TaskID("a"))
		time.Sleep(time.Minute)
		if info := wantState(t, b.Bench, "a", asynq.TaskStateActive); info.Retried != 0 {
			t.Errorf("retried %d times", info.Retried)
		}
		hold.open()
		time.Sleep(20 * time.Second)
		wantGone(t, b.Bench, "a")
		if got, want := entered.String(), "[holder a]"; got != want {
			t.Errorf("entered %s, want %s", got, want)
		}
	})
}

func TestWaitingInsideEndsWithTheTasksTimeoutAndIsVisible(t *testing.T) {
	fenced(t, asynqruns.Config{Mode: runs.Exclusive}, func(t *testing.T, b *bench) {
		hold := make(gate)
		var entered list[string]
		b.start(func(_ context.Context, task *asynq.Task) error {
			entered.add(string(task.Payload()))
			if string(task.Payload()) == "holder" {
				hold.wait()
			}
			return nil
		})
		b.Enqueue(b.task("holder"), asynq.TaskID("holder"))
		time.Sleep(5 * time.Second)
		b.Enqueue(b.task("a"), asynq.TaskID("a"), asynq.MaxRetry(0), asynq.Timeout(30*time.Second))
		time.Sleep(time.Minute)
		wantState(t, b.Bench, "a", asynq.TaskStateArchived)
		hold.open()
		time.Sleep(10 * time.Second)
		if err := b.Inspector.RunTask("default", "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantGone(t, b.Bench, "a")
		if got, want := entered.String(), "[holder a]"; got != want {
			t.Errorf("entered %s, want %s", got, want)
		}
	})
}

func TestStaleReturnIsHeldUntilTheNewerDeliveryHasEnded(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		first, second := make(gate), make(gate)
		var entered, returned atomic.Int32
		handler := b.fenced.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			if entered.Add(1) == 1 {
				first.wait()
			} else {
				second.wait()
			}
			return nil
		}))
		watched := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			defer returned.Add(1)
			return handler.ProcessTask(ctx, task)
		})
		config := b.fenced.Config(asynq.Config{})
		a := b.Start(config, watched)
		b.Enqueue(b.task("p"), asynq.TaskID("j"))
		time.Sleep(5 * time.Second)
		a.Stop()
		b.Failover("default", "j")
		b.Start(config, watched)
		time.Sleep(5 * time.Second)
		first.open()
		time.Sleep(time.Minute)
		if n := returned.Load(); n != 0 {
			t.Fatalf("%d deliveries returned while the newer one is at work", n)
		}
		wantState(t, b.Bench, "j", asynq.TaskStateActive)
		second.open()
		time.Sleep(10 * time.Second)
		if n := returned.Load(); n != 2 {
			t.Errorf("%d deliveries returned in the end, want 2", n)
		}
		wantGone(t, b.Bench, "j")
	})
}

func TestStaleReturnIsNotHeldPastTheEndOfItsCtx(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		second := make(gate)
		var sent list[string]
		var entered atomic.Int32
		handler := b.fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			if entered.Add(1) == 1 {
				time.Sleep(10 * time.Second)
				return nil
			}
			second.wait()
			return note(ctx, "k", &sent)
		}))
		config := b.fenced.Config(asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }})
		returned := make(chan error, 1)
		a := b.Start(config, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			err := handler.ProcessTask(ctx, task)
			returned <- err
			return err
		}))
		began := time.Now()
		b.Enqueue(b.task("p"), asynq.TaskID("j"), asynq.Timeout(30*time.Second))
		time.Sleep(5 * time.Second)
		a.Stop()
		b.Failover("default", "j")
		b.Start(config, handler)

		if err := <-returned; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the stale delivery returned %v, want its ctx's error", err)
		}
		if d := time.Since(began); d < 30*time.Second || d > 32*time.Second {
			t.Errorf("it returned after %v, want 30 s", d)
		}
		second.open()
		time.Sleep(30 * time.Second)
		if got, want := sent.String(), "[k]"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		wantGone(t, b.Bench, "j")
	})
}

func TestOldHandlerAfterAShutdownWritesNothing(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		hold := make(gate)
		var sent list[string]
		var entered atomic.Int32
		stale := make(chan error, 1)
		handler := func(ctx context.Context, _ *asynq.Task) error {
			if entered.Add(1) == 1 {
				hold.wait() // through the shutdown
				err := note(context.WithoutCancel(ctx), "k", &sent)
				stale <- err
				return err
			}
			return note(ctx, "k", &sent)
		}
		a := b.start(handler)
		b.Enqueue(b.task("p"), asynq.TaskID("j"))
		time.Sleep(3 * time.Second)
		a.Shutdown()
		b.start(handler)
		time.Sleep(5 * time.Second)
		wantGone(t, b.Bench, "j")
		hold.open()
		if err := <-stale; err != nil {
			t.Errorf("the old handler's effect: %v, want the replay of the new one's", err)
		}
		if got, want := sent.String(), "[k]"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}

func TestOneTaskIDInTwoQueuesIsTwoRuns(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		var keys list[string]
		handler := b.fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			job := runs.FromContext(ctx).Job()
			keys.add(job.Queue + "/" + job.ID)
			return nil
		}))
		b.Start(b.fenced.Config(asynq.Config{Queues: map[string]int{"high": 1, "low": 1}}), handler)
		b.Enqueue(b.task("p"), asynq.TaskID("j"), asynq.Queue("high"))
		time.Sleep(5 * time.Second)
		b.Enqueue(b.task("p"), asynq.TaskID("j"), asynq.Queue("low"))
		time.Sleep(5 * time.Second)
		if got, want := keys.String(), "[asynq:high/j asynq:low/j]"; got != want {
			t.Errorf("runs %s, want %s", got, want)
		}
	})
}

// cancelAtWork plays a task that is cancelled while at work.
func cancelAtWork(t *testing.T, b *bench, opts ...asynq.Option) {
	t.Helper()
	b.start(func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		return ctx.Err()
	})
	b.Enqueue(b.task("p", append(opts, asynq.TaskID("j"))...))
	cancelRun(t, b)
}

func cancelRun(t *testing.T, b *bench) {
	t.Helper()
	time.Sleep(5 * time.Second)
	if _, err := b.keeper.Cancel(t.Context(), runs.RunKey{Queue: "asynq:default", ID: "j"}, runs.CancelOptions{By: "t", Why: "w"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Second)
}

func TestDroppedTaskLeavesANoteOnlyWhereItDoesNoHarm(t *testing.T) {
	t.Run("with a Retention", func(t *testing.T) {
		fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
			cancelAtWork(t, b, asynq.Retention(time.Hour))
			if info := wantState(t, b.Bench, "j", asynq.TaskStateCompleted); string(info.Result) != "cancelled" {
				t.Errorf("Result = %q, want the note", info.Result)
			}
		})
	})
	t.Run("without", func(t *testing.T) {
		fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
			cancelAtWork(t, b)
			wantGone(t, b.Bench, "j")
		})
	})
	t.Run("without, and the task is gone", func(t *testing.T) {
		fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
			b.start(func(ctx context.Context, _ *asynq.Task) error {
				<-ctx.Done()
				// Another delivery has done it meanwhile.
				b.Redis.LRem(context.Background(), "asynq:{default}:active", 0, "j")
				b.Mini.Del("asynq:{default}:t:j")
				return ctx.Err()
			})
			b.Enqueue(b.task("p"), asynq.TaskID("j"))
			cancelRun(t, b)
			if b.Mini.Exists("asynq:{default}:t:j") {
				t.Error("a record was left behind that blocks the id")
			}
		})
	})
	t.Run("Revoke", func(t *testing.T) {
		fenced(t, asynqruns.Config{Revoke: true}, func(t *testing.T, b *bench) {
			cancelAtWork(t, b, asynq.Retention(time.Hour))
			wantGone(t, b.Bench, "j")
		})
	})
}

func TestErrorHandlerFindsTheVerdict(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		told := make(chan error, 1)
		b.Start(b.fenced.Config(asynq.Config{
			ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { told <- err }),
		}), b.fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			for _, amount := range []int{1, 2} {
				err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "refund", Key: runs.ID("o"), Params: amount}, func(context.Context, *runs.Call) error { return nil })
				if err != nil {
					return errors.Join(err, asynq.RevokeTask)
				}
			}
			return nil
		})))
		b.Enqueue(b.task("p"), asynq.TaskID("j"))
		err := <-told
		var verdict *runs.VerdictError
		if !errors.As(err, &verdict) || verdict.Action != runs.ActionDiscard || !errors.Is(err, runs.ErrParamsChanged) {
			t.Errorf("err = %v, want the verdict and its reason", err)
		}
		if errors.Is(err, asynq.RevokeTask) || !strings.Contains(err.Error(), asynq.RevokeTask.Error()) {
			t.Errorf("err = %v, want the handler's words as text only", err)
		}
		time.Sleep(5 * time.Second)
		wantState(t, b.Bench, "j", asynq.TaskStateArchived)
	})
}

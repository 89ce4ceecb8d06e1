package asynqruns_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
)

// When a handler's ctx ends, and what that does not do. As in hazards_test.go,
// without our library.

func TestHazardShutdownPutsTheTaskBackBeforeItCancels(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		handlers := make(chan context.Context, 1)
		var before, after atomic.Value
		var handlerCtx context.Context
		server := startTapped(b, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if op(cmd) == "requeue" {
				before.Store(handlerCtx.Err() == nil)
				info, infoErr := b.Inspector.GetTaskInfo("default", "j")
				after.Store(infoErr == nil && info.State == asynq.TaskStatePending)
			}
			return err
		}, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			handlers <- ctx
			<-ctx.Done()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		handlerCtx = <-handlers
		server.Shutdown()
		if before.Load() != true || after.Load() != true {
			t.Errorf("the handler was at work: %v, while others could have the task: %v; want both", before.Load(), after.Load())
		}
	})
}

func TestHazardCancelProcessingRedeliversWhileTheHandlerLives(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		hold := make(gate)
		var live atomic.Int32
		second := make(chan int32, 1)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			n := live.Add(1)
			defer live.Add(-1)
			if retried(ctx) == 0 {
				hold.wait() // ignores its ctx
			} else {
				second <- n
			}
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(5 * time.Second)
		if err := b.Inspector.CancelProcessing("j"); err != nil {
			t.Fatal(err)
		}
		if n := <-second; n != 2 {
			t.Errorf("%d handlers at work, want 2", n)
		}
		hold.open()
	})
}

func TestHazardTimeoutIsWholeSecondsAndHalfAnHourByDefault(t *testing.T) {
	for name, opts := range map[string][]asynq.Option{"none": nil, "half a second": {asynq.Timeout(500 * time.Millisecond)}} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *asynqharness.Bench) {
				left := make(chan time.Duration, 1)
				b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					deadline, _ := ctx.Deadline()
					left <- time.Until(deadline)
					return nil
				}))
				b.Enqueue(asynq.NewTask("t", nil), opts...)
				if d := <-left; d < 29*time.Minute || d > 30*time.Minute {
					t.Errorf("%v left, want 30 minutes", d)
				}
			})
		})
	}
}

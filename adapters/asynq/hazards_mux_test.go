package asynqruns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
)

func TestHazardMiddlewareIsRebuiltForEveryTaskAndWrapsNotFound(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var built atomic.Int32
		errs := make(chan error, 10)
		mux := asynq.NewServeMux()
		mux.Use(func(next asynq.Handler) asynq.Handler {
			built.Add(1)
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				err := next.ProcessTask(ctx, task)
				errs <- err
				return err
			})
		})
		mux.HandleFunc("known", func(context.Context, *asynq.Task) error { return nil })
		b.Start(asynq.Config{}, mux)
		b.Enqueue(asynq.NewTask("known", nil))
		b.Enqueue(asynq.NewTask("known", nil))
		b.Enqueue(asynq.NewTask("unknown", nil), asynq.MaxRetry(0))
		time.Sleep(time.Minute)
		if n := built.Load(); n != 3 {
			t.Errorf("built %d times for 3 tasks, want 3", n)
		}
		var notFound int
		for range 3 {
			if errors.Is(<-errs, asynq.ErrHandlerNotFound) {
				notFound++
			}
		}
		if notFound != 1 {
			t.Errorf("the middleware saw %d ErrHandlerNotFound, want 1", notFound)
		}
	})
}

func TestHazardNestedMuxRunsTheMiddlewareTwiceForOneDelivery(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var ran atomic.Int32
		middleware := func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				ran.Add(1)
				return next.ProcessTask(ctx, task)
			})
		}
		inner := asynq.NewServeMux()
		inner.Use(middleware)
		inner.HandleFunc("a:", func(context.Context, *asynq.Task) error { return nil })
		outer := asynq.NewServeMux()
		outer.Use(middleware)
		outer.Handle("a:", inner)
		b.Start(asynq.Config{}, outer)
		b.Enqueue(asynq.NewTask("a:b", nil))
		time.Sleep(time.Minute)
		if n := ran.Load(); n != 2 {
			t.Errorf("ran %d times, want 2", n)
		}
	})
}

func TestHazardTaskIDIsReusableAfterCompletionWithAnotherPayload(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var seen list[string]
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			seen.add(fmt.Sprintf("%s/%d/%s", id, retried(ctx), task.Payload()))
			return nil
		}))
		for _, payload := range []string{"one", "two", "two"} {
			b.Enqueue(asynq.NewTask("t", []byte(payload)), asynq.TaskID("j"))
			time.Sleep(time.Minute)
		}
		if got, want := seen.String(), "[j/0/one j/0/two j/0/two]"; got != want {
			t.Errorf("deliveries %q, want %q", got, want)
		}
	})
}

func TestHazardHeadersSurviveRetryAndArchive(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var seen list[string]
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			switch seen.add(task.Headers()["h"]) {
			case 1:
				return errors.New("a failure")
			case 2:
				return asynq.SkipRetry
			}
			return nil
		}))
		b.Enqueue(asynq.NewTaskWithHeaders("t", nil, map[string]string{"h": "v"}), asynq.TaskID("j"))
		time.Sleep(time.Minute)
		if err := b.Inspector.RunTask("default", "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got, want := seen.String(), "[v v v]"; got != want {
			t.Errorf("header seen as %q, want %q", got, want)
		}
	})
}

func TestHazardTaskWithoutHeadersHasNone(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		seen := make(chan map[string]string, 1)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			seen <- task.Headers()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil))
		if headers := <-seen; len(headers) != 0 {
			t.Errorf("headers = %v, want none", headers)
		}
	})
}

func TestHazardBareContextHasNoMetadata(t *testing.T) {
	mux := asynq.NewServeMux()
	mux.HandleFunc("t", func(ctx context.Context, task *asynq.Task) error {
		if id, ok := asynq.GetTaskID(ctx); ok {
			t.Errorf("GetTaskID = %q, true with a bare context", id)
		}
		if q, ok := asynq.GetQueueName(ctx); ok {
			t.Errorf("GetQueueName = %q, true with a bare context", q)
		}
		if task.ResultWriter() != nil {
			t.Error("a task made by hand has a ResultWriter")
		}
		return nil
	})
	if err := mux.ProcessTask(context.Background(), asynq.NewTask("t", nil)); err != nil {
		t.Fatal(err)
	}
}

func TestHazardCancelOfAChildContextIsInvisibleToAsynq(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		mux := asynq.NewServeMux()
		mux.Use(func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				child, cancel := context.WithCancel(ctx)
				cancel()
				time.Sleep(time.Second)
				if err := next.ProcessTask(child, task); err == nil {
					t.Error("the handler's ctx was not canceled")
				}
				return asynq.SkipRetry
			})
		})
		mux.HandleFunc("t", func(ctx context.Context, _ *asynq.Task) error { return ctx.Err() })
		b.Start(asynq.Config{}, mux)
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(time.Minute)
		wantState(t, b, "j", asynq.TaskStateArchived)
	})
}

func TestHazardPanicUnwindsThroughDefersAndNamesItsPlace(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var unwound atomic.Bool
		mux := asynq.NewServeMux()
		mux.Use(func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				defer unwound.Store(true)
				return next.ProcessTask(ctx, task)
			})
		})
		mux.HandleFunc("t", func(context.Context, *asynq.Task) error { panic("kaboom") })
		var isPanic atomic.Bool
		b.Start(asynq.Config{
			ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
				isPanic.Store(asynq.IsPanicError(err))
			}),
		}, mux)
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.MaxRetry(0))
		time.Sleep(time.Minute)
		info := wantState(t, b, "j", asynq.TaskStateArchived)
		if !unwound.Load() || !isPanic.Load() {
			t.Errorf("unwound %v, panic error %v, want both", unwound.Load(), isPanic.Load())
		}
		if !strings.Contains(info.LastErr, "hazards_mux_test.go") || !strings.Contains(info.LastErr, "kaboom") {
			t.Errorf("LastErr = %q, want the place and the value of the panic", info.LastErr)
		}
	})
}

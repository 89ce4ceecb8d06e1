package asynqruns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
)

// The tests of this file show, on the real Asynq and without our library, what
// the adapter relies on. One that fails says that the queue has changed: look
// at what the adapter makes of it before touching the test.

// hazard runs f in a bubble with a bench.
func hazard(t *testing.T, f func(t *testing.T, b *asynqharness.Bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, asynqharness.New(t)) })
}

// gate holds handlers until it is opened.
type gate chan struct{}

func (g gate) wait() { <-g }
func (g gate) open() { close(g) }

// retried reads the retry counter that the handler sees.
func retried(ctx context.Context) int {
	n, _ := asynq.GetRetryCount(ctx)
	return n
}

func wantState(t *testing.T, b *asynqharness.Bench, id string, want asynq.TaskState) *asynq.TaskInfo {
	t.Helper()
	info := b.Info(id)
	if info == nil {
		t.Fatalf("task %s is gone, want %v", id, want)
	}
	if info.State != want {
		t.Fatalf("task %s is %v (%s), want %v", id, info.State, info.LastErr, want)
	}
	return info
}

func wantGone(t *testing.T, b *asynqharness.Bench, id string) {
	t.Helper()
	if info := b.Info(id); info != nil {
		t.Fatalf("task %s is still there as %v", id, info.State)
	}
}

func TestHazardReturnValueIsIgnoredOnceCtxIsDone(t *testing.T) {
	for name, late := range map[string]error{"nil": nil, "SkipRetry": asynq.SkipRetry, "RevokeTask": asynq.RevokeTask} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *asynqharness.Bench) {
				var entered atomic.Int32
				b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					if entered.Add(1) == 1 {
						<-ctx.Done()
						time.Sleep(time.Millisecond)
						return late
					}
					return nil
				}))
				b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.Timeout(2*time.Second))
				time.Sleep(time.Minute)
				if n := entered.Load(); n != 2 {
					t.Fatalf("entered %d times, want 2: the late return value must not count", n)
				}
			})
		})
	}
}

func TestHazardNotAFailureOnTheLastAttemptIsArchived(t *testing.T) {
	errBusy := errors.New("busy")
	config := asynq.Config{IsFailure: func(err error) bool { return !errors.Is(err, errBusy) }}
	for name, tries := range map[string]int{"MaxRetry(0)": 0, "last attempt": 1} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *asynqharness.Bench) {
				b.Start(config, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					if retried(ctx) < tries {
						return errors.New("a real failure")
					}
					return errBusy
				}))
				b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.MaxRetry(tries))
				time.Sleep(time.Minute)
				info := wantState(t, b, "j", asynq.TaskStateArchived)
				if info.LastErr != "busy" {
					t.Errorf("LastErr = %q, want busy", info.LastErr)
				}
			})
		})
	}
}

func TestHazardNotAFailureKeepsTheRetryCount(t *testing.T) {
	errBusy := errors.New("busy")
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var seen list[int]
		var delays list[int]
		b.Start(asynq.Config{
			IsFailure: func(err error) bool { return !errors.Is(err, errBusy) },
			RetryDelayFunc: func(n int, err error, _ *asynq.Task) time.Duration {
				delays.add(n)
				return time.Second
			},
		}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			if n := seen.add(retried(ctx)); n < 4 {
				return fmt.Errorf("wrapped: %w", errBusy)
			}
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.MaxRetry(1))
		time.Sleep(time.Minute)
		if got, want := seen.String()+" "+delays.String(), "[0 0 0 0] [0 0 0]"; got != want {
			t.Errorf("retry counts seen by handler and by the delay = %s, want %s", got, want)
		}
		wantGone(t, b, "j")
	})
}

func TestHazardShutdownRequeuesAndTheOldHandlerLives(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		hold := make(gate)
		ended := make(chan error, 1)
		a := b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			hold.wait()
			ended <- ctx.Err()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(3 * time.Second)
		a.Shutdown() // waits ShutdownTimeout (8 s) for the handler, then gives up
		wantState(t, b, "j", asynq.TaskStatePending)

		counts := make(chan int, 1)
		down := time.Now()
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			counts <- retried(ctx)
			return nil
		}))
		if n := <-counts; n != 0 {
			t.Errorf("redelivered with retry count %d, want 0 as before", n)
		}
		if d := time.Since(down); d > 2*time.Second {
			t.Errorf("redelivered after %v, want at once", d)
		}
		select {
		case <-ended:
			t.Fatal("the old handler ended before the second one began")
		default:
		}
		hold.open()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ctx of the old handler: %v, want canceled", err)
		}
	})
}

func TestHazardTimeoutRedeliversWhileTheFirstHandlerLives(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		hold := make(gate)
		var live, most atomic.Int32
		counts := make(chan int, 2)
		b.Start(asynq.Config{Concurrency: 1}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			n := live.Add(1)
			defer live.Add(-1)
			most.Store(max(most.Load(), n))
			counts <- retried(ctx)
			if retried(ctx) == 0 {
				hold.wait()
			}
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.Timeout(2*time.Second))
		time.Sleep(time.Minute)
		hold.open()
		if first, second := <-counts, <-counts; first != 0 || second != 1 {
			t.Errorf("retry counts %d, %d, want 0, 1", first, second)
		}
		if most.Load() != 2 {
			t.Errorf("at most %d handlers lived at once, want 2 with Concurrency 1", most.Load())
		}
	})
}

func TestHazardFailoverGivesTwoLiveDeliveriesOneRecord(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		firstHold, secondHold := make(gate), make(gate)
		counts := make(chan int, 2)
		canceled := make(chan struct{}, 2)
		handler := func(hold gate) asynq.HandlerFunc {
			return func(ctx context.Context, _ *asynq.Task) error {
				counts <- retried(ctx)
				hold.wait()
				if ctx.Err() != nil {
					canceled <- struct{}{}
				}
				return nil
			}
		}
		a := b.Start(asynq.Config{}, handler(firstHold))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		first := <-counts
		a.Stop()
		b.Failover("default", "j")
		b.Start(asynq.Config{}, handler(secondHold))
		if second := <-counts; first != 0 || second != 0 {
			t.Errorf("retry counts %d, %d, want the same for both", first, second)
		}
		time.Sleep(2 * time.Minute)
		if len(canceled) != 0 {
			t.Error("one of the deliveries was canceled, want neither")
		}

		firstHold.open()
		time.Sleep(time.Second)
		wantGone(t, b, "j") // though the second delivery is still at work
		secondHold.open()
	})
}

func TestHazardOneTaskIDInTwoQueuesOfOneServerRunsTwice(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		hold := make(gate)
		var low atomic.Int32
		var mostLow atomic.Int32
		b.Start(asynq.Config{Queues: map[string]int{"high": 1, "low": 1}}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			if q, _ := asynq.GetQueueName(ctx); q == "high" {
				time.Sleep(time.Second)
				return nil
			}
			mostLow.Store(max(mostLow.Load(), low.Add(1)))
			hold.wait()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.Queue("low"))
		time.Sleep(2 * time.Second)
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.Queue("high"))
		time.Sleep(5 * time.Minute)
		if mostLow.Load() < 2 {
			t.Errorf("%d handlers of the task in the low queue lived at once, want 2 or more: the one in the high queue ended its heartbeat", mostLow.Load())
		}
		hold.open()
	})
}

func TestHazardCrashIsRedeliveredAfterOurLeaseAndAsAFailure(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		hold := make(gate)
		entered := make(chan int, 2)
		a := b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			entered <- retried(ctx)
			hold.wait()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		<-entered
		a.Link.Cut()
		cut := time.Now()
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			entered <- retried(ctx)
			return nil
		}))
		if n := <-entered; n != 1 {
			t.Errorf("redelivered with retry count %d, want 1: a crash counts as a failure", n)
		}
		if d := time.Since(cut); d < 30*time.Second {
			t.Errorf("redelivered after %v, sooner than the default lease of a run", d)
		}
		hold.open()
	})
}

func TestHazardSkipRetryArchivesAndRunTaskKeepsTheRetryCount(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var seen list[int]
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			switch seen.add(retried(ctx)) {
			case 1:
				return errors.New("a failure")
			case 2:
				return fmt.Errorf("parked: %w", asynq.SkipRetry)
			}
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(time.Minute)
		info := wantState(t, b, "j", asynq.TaskStateArchived)
		if !strings.HasPrefix(info.LastErr, "parked: ") {
			t.Errorf("LastErr = %q, want the text we returned", info.LastErr)
		}
		if err := b.Inspector.RunTask("default", "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got, want := seen.String(), "[0 1 1]"; got != want {
			t.Errorf("retry counts %s, want %s: RunTask cannot be told from a redelivery", got, want)
		}
		wantGone(t, b, "j")
	})
}

func TestHazardRunTaskRunsACompletedTaskAgain(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var entered atomic.Int32
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			entered.Add(1)
			_, err := task.ResultWriter().Write([]byte("a note"))
			return err
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.Retention(time.Hour))
		time.Sleep(time.Minute)
		if info := wantState(t, b, "j", asynq.TaskStateCompleted); string(info.Result) != "a note" {
			t.Errorf("Result = %q, want the note", info.Result)
		}
		if err := b.Inspector.RunTask("default", "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := entered.Load(); n != 2 {
			t.Errorf("entered %d times, want 2", n)
		}
	})
}

func TestHazardRevokeTaskWinsAnywhereInTheChainAndDeletesTheRecord(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		told := make(chan error, 1)
		b.Start(asynq.Config{
			ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { told <- err }),
		}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			return fmt.Errorf("ours: %w", errors.Join(asynq.SkipRetry, errors.New("theirs"), asynq.RevokeTask))
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.Retention(time.Hour))
		time.Sleep(time.Minute)
		wantGone(t, b, "j")
		if len(told) != 1 {
			t.Errorf("ErrorHandler called %d times, want 1", len(told))
		}
	})
}

func TestHazardCancelProcessingMakesARetry(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		counts := make(chan int, 2)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			counts <- retried(ctx)
			if retried(ctx) == 0 {
				<-ctx.Done()
				time.Sleep(time.Millisecond)
				return asynq.SkipRetry
			}
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		if n := <-counts; n != 0 {
			t.Fatalf("retry count %d, want 0", n)
		}
		time.Sleep(time.Second)
		if err := b.Inspector.CancelProcessing("j"); err != nil {
			t.Fatal(err)
		}
		if n := <-counts; n != 1 {
			t.Errorf("retry count %d, want 1", n)
		}
	})
}

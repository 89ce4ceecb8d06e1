package asynqruns_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
)

// What asynq does when Redis, or the way to it, fails. As in hazards_test.go,
// without our library.

const leaseKey = "asynq:{default}:lease"

func TestHazardPartitionCancelsLateAndRedeliversWhileTheHandlerLives(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var link line
		hold := make(gate)
		entered := make(chan time.Time, 2)
		canceled := make(chan time.Duration, 1)
		var cut time.Time
		startTapped(b, link.pass, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			entered <- time.Now()
			<-ctx.Done()
			canceled <- time.Since(cut)
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				t.Errorf("cause %v: asynq says why a ctx ends, and the adapter could tell", cause)
			}
			hold.wait()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		<-entered
		time.Sleep(3 * time.Second)
		cut = time.Now()
		link.down.Store(true)
		count := make(chan int, 1)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			count <- retried(ctx)
			entered <- time.Now()
			return nil
		}))
		// The lease of 30 s is looked at every 5 s, and an unreachable Redis delays that.
		if d := <-canceled; d < 20*time.Second || d > 45*time.Second {
			t.Errorf("the ctx was canceled after %v, want about half a minute", d)
		}
		if n, d := <-count, (<-entered).Sub(cut); n != 1 || d < 55*time.Second {
			t.Errorf("redelivered with retry count %d after %v, want 1, a minute or more", n, d)
		}
		hold.open() // it lived all the time
	})
}

func TestHazardAckThatIsLostRunsAFinishedTaskAgain(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var link line
		var seen list[int]
		startTapped(b, link.pass, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			if seen.add(retried(ctx)) == 1 {
				link.down.Store(true)
			}
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(45 * time.Second) // longer than its lease
		if seen.len() != 1 {
			t.Fatalf("entered %d times before Redis was back, want 1", seen.len())
		}
		link.down.Store(false)
		time.Sleep(3 * time.Minute)
		if got, want := seen.String(), "[0 1]"; got != want {
			t.Errorf("retry counts %s, want %s: it had been done", got, want)
		}
		wantGone(t, b, "j")
	})
}

// Asynq means to write the ack later when it fails, and does so under a ctx that
// it has canceled by then. So one failure is enough, with Redis well and the lease
// young.
func TestHazardAckThatFailsOnceIsNeverWritten(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var failed atomic.Bool
		var seen list[int]
		startTapped(b, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if op(cmd) == "done" && !failed.Swap(true) {
				cmd.SetErr(errCut)
				return errCut
			}
			return next(ctx, cmd)
		}, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			seen.add(retried(ctx))
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(20 * time.Second) // it tries again every 5 s
		wantState(t, b, "j", asynq.TaskStateActive)
		time.Sleep(3 * time.Minute)
		if got, want := seen.String(), "[0 1]"; got != want {
			t.Errorf("retry counts %s, want %s", got, want)
		}
		wantGone(t, b, "j")
	})
}

func TestHazardDequeueWhoseReplyIsLostSpendsAnAttempt(t *testing.T) {
	for name, retries := range map[string]int{"one retry": 1, "MaxRetry(0)": 0} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *asynqharness.Bench) {
				var lost atomic.Bool
				var seen list[int]
				startTapped(b, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					err := next(ctx, cmd)
					if op(cmd) == "dequeue" && err == nil && !lost.Swap(true) {
						cmd.SetErr(errCut)
						return errCut
					}
					return err
				}, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					seen.add(retried(ctx))
					return nil
				}))
				b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.MaxRetry(retries))
				time.Sleep(4 * time.Minute)
				if retries > 0 {
					if got, want := seen.String(), "[1]"; got != want {
						t.Errorf("retry counts %s, want %s", got, want)
					}
					return
				}
				info := wantState(t, b, "j", asynq.TaskStateArchived)
				if seen.len() != 0 || info.Retried != 0 || info.LastErr != asynq.ErrLeaseExpired.Error() {
					t.Errorf("entered %d times, retried %d, %q, want it archived and never run", seen.len(), info.Retried, info.LastErr)
				}
			})
		})
	}
}

// A worker's clock is behind: its leases are over before they begin. They are
// moved after each command that wrote them, because a bubble has one clock only.
func TestHazardClockThatIsBehindRedeliversALiveTaskAndTellsNobody(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		const behind = 61 * time.Second // 30 s of lease, 30 s that the recoverer allows for
		hold := make(gate)
		var beats atomic.Int32
		entered := make(chan int, 2)
		canceled := make(chan struct{})
		a := startTapped(b, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if what := op(cmd); err == nil && (what == "dequeue" || what == "zadd") {
				if what == "zadd" {
					beats.Add(1)
				}
				b.Redis.ZAddXX(context.Background(), leaseKey, redis.Z{Score: float64(time.Now().Add(30*time.Second - behind).Unix()), Member: "j"})
			}
			return err
		}, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			context.AfterFunc(ctx, func() { close(canceled) })
			entered <- retried(ctx)
			hold.wait()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		<-entered
		a.Stop()
		second := make(gate)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			entered <- retried(ctx)
			second.wait()
			return nil
		}))
		if n := <-entered; n != 1 {
			t.Errorf("redelivered with retry count %d, want 1", n)
		}
		before := beats.Load()
		time.Sleep(20 * time.Second)
		select {
		case <-canceled:
			t.Error("the old handler was told; a heartbeat notices by now that its task is another's")
		default:
		}
		if beats.Load() == before {
			t.Error("the old worker no longer extends its lease, so this shows nothing")
		}
		second.open()
		hold.open()
	})
}

// raceOfRecoverers plays two recoverers that list one expired task at once. The
// second is held up until the first one's retry runs; then its stale copy of the
// task puts it back once more. again takes each delivery after the crash and
// returns when the delivery is to end.
func raceOfRecoverers(b *asynqharness.Bench, config asynq.Config, id string, again asynq.Handler) (release func()) {
	b.T.Helper()
	b.Redis.ZAddXX(context.Background(), leaseKey, redis.Z{Score: 1, Member: id}) // both look when they start
	listed, hold := make(chan struct{}), make(gate)
	var held atomic.Bool
	startTapped(b, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if op(cmd) == "retry" && !held.Swap(true) {
			close(listed)
			hold.wait()
		}
		return next(ctx, cmd)
	}, config, again)
	<-listed
	b.Start(config, again)
	return hold.open
}

func TestHazardTwoRecoverersGiveTwoLiveDeliveriesOneRetryCount(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		crashed, hold := make(gate), make(gate)
		entered := make(chan int, 3)
		a := b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			entered <- retried(ctx)
			crashed.wait()
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		<-entered
		a.Link.Cut()
		release := raceOfRecoverers(b, asynq.Config{}, "j", asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			entered <- retried(ctx)
			hold.wait()
			return nil
		}))
		first := <-entered
		release()
		if second := <-entered; first != 1 || second != 1 {
			t.Errorf("retry counts %d, %d, want 1 for both, who are at work at once", first, second)
		}
		hold.open()
		crashed.open()
	})
}

func TestHazardLostLeaseKeyLeavesTheTaskActiveForEver(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		hold := make(gate)
		var entered atomic.Int32
		handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			entered.Add(1)
			hold.wait()
			return nil
		})
		a := b.Start(asynq.Config{}, handler)
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(3 * time.Second)
		a.Link.Cut() // crashed
		b.Mini.Del(leaseKey)
		b.Start(asynq.Config{}, handler)
		time.Sleep(10 * time.Minute) // ten looks of the recoverer
		info := wantState(t, b, "j", asynq.TaskStateActive)
		if n := entered.Load(); n != 1 || info.IsOrphaned {
			t.Errorf("entered %d times, orphaned %v, want 1, and nobody to notice", n, info.IsOrphaned)
		}
		hold.open()
	})
}

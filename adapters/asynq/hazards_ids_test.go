package asynqruns_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
)

// What a task's id, retry count and payload say, and what they do not. As in
// hazards_test.go, without our library.

func TestHazardErrorAndPanicSpendARetry(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var seen list[int]
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			switch seen.add(retried(ctx)) {
			case 1:
				return errors.New("a failure")
			case 2:
				panic("a panic")
			}
			return nil
		}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		time.Sleep(time.Minute)
		if got, want := seen.String(), "[0 1 2]"; got != want {
			t.Errorf("retry counts %s, want %s", got, want)
		}
		wantGone(t, b, "j")
	})
}

func TestHazardRunTaskOfAWaitingRetryKeepsTheRetryCount(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var seen list[int]
		b.Start(asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }},
			asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				if seen.add(retried(ctx)) < 3 {
					return errors.New("a failure")
				}
				return nil
			}))
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"))
		for range 2 {
			time.Sleep(10 * time.Second)
			wantState(t, b, "j", asynq.TaskStateRetry)
			if err := b.Inspector.RunTask("default", "j"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if got, want := seen.String(), "[0 1 2]"; got != want {
			t.Errorf("retry counts %s, want %s: it was failures that spent, not RunTask", got, want)
		}
	})
}

func TestHazardTaskIDIsReusableOnceTheRecordIsGone(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, b *asynqharness.Bench){
		"retention over": func(*testing.T, *asynqharness.Bench) { time.Sleep(2 * time.Minute) },
		"deleted": func(t *testing.T, b *asynqharness.Bench) {
			if err := b.Inspector.DeleteTask("default", "j"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *asynqharness.Bench) {
				var seen list[int]
				b.Start(asynq.Config{JanitorInterval: time.Second}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					seen.add(retried(ctx))
					return nil
				}))
				enqueue := func() error {
					_, err := b.Client.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("j"), asynq.Retention(time.Minute))
					return err
				}
				if err := enqueue(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if err := enqueue(); !errors.Is(err, asynq.ErrTaskIDConflict) {
					t.Errorf("a task with the id of one that is kept: %v, want a conflict", err)
				}
				remove(t, b)
				if err := enqueue(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if got, want := seen.String(), "[0 0]"; got != want {
					t.Errorf("retry counts %s, want %s", got, want)
				}
			})
		})
	}
}

func TestHazardPayloadOfAScheduledTaskCanBeEdited(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		seen := make(chan *asynq.Task, 1)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			seen <- task
			return nil
		}))
		b.Enqueue(asynq.NewTaskWithHeaders("t", []byte("one"), map[string]string{"h": "v"}), asynq.TaskID("j"), asynq.ProcessIn(time.Minute))
		if err := b.Inspector.UpdateTaskPayload("default", "j", []byte("two")); err != nil {
			t.Fatal(err)
		}
		if task := <-seen; string(task.Payload()) != "two" || task.Headers()["h"] != "v" {
			t.Errorf("payload %q, headers %v, want the new payload under the old headers", task.Payload(), task.Headers())
		}
	})
}

// deafConn breaks, instead of handing over the first answer after deaf was set.
type deafConn struct {
	net.Conn

	deaf   *atomic.Bool // of all connections
	broken atomic.Bool
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p) // Redis has done it
	if c.deaf.CompareAndSwap(true, false) {
		c.broken.Store(true)
		_ = c.Close()
	}
	if c.broken.Load() {
		return 0, io.EOF
	}
	return n, err
}

func TestHazardEnqueueWhoseReplyIsLostSaysConflict(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var deaf atomic.Bool
		rdb := dial(b, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if op(cmd) == "enqueue" {
				deaf.Store(true) // go-redis tries again below this
			}
			return next(ctx, cmd)
		}, func() (net.Conn, error) {
			conn, err := b.Mini.Dial()
			return &deafConn{Conn: conn, deaf: &deaf}, err
		})
		b.Enqueue(asynq.NewTask("t", nil), asynq.TaskID("warm")) // the script is known
		if err := rdb.Ping(t.Context()).Err(); err != nil {      // and so is the connection
			t.Fatal(err)
		}
		task := asynq.NewTask("t", nil)
		_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task)
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Errorf("enqueued and not heard: %v, want a conflict with itself", err)
		}
		b.Enqueue(task) // what such a producer does: now there are two
		pending, err := b.Inspector.ListPendingTasks("default")
		if err != nil || len(pending) != 3 || pending[1].ID == pending[2].ID {
			t.Errorf("%d tasks, %v, want the warm one and two of one intent", len(pending), err)
		}
	})
}

func TestHazardUniqueLockEndsWhileTheTaskRuns(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		hold := make(gate)
		ids := make(chan string, 2)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			ids <- id
			hold.wait()
			return nil
		}))
		enqueue := func() error {
			_, err := b.Client.Enqueue(asynq.NewTask("t", []byte("p")), asynq.Unique(10*time.Second))
			return err
		}
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
		first := <-ids
		if err := enqueue(); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("within its time: %v, want a duplicate", err)
		}
		time.Sleep(11 * time.Second)
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
		if second := <-ids; first == second {
			t.Error("both have one id")
		}
		hold.open()
	})
}

// batching is a server that makes one task of those in a group.
func batching(aggregate func(tasks []*asynq.Task) *asynq.Task) asynq.Config {
	return asynq.Config{
		GroupGracePeriod: time.Second,
		GroupAggregator: asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
			return aggregate(tasks)
		}),
	}
}

func TestHazardAggregatedTaskHasAnIDAndHeadersOfItsOwn(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		members := make(chan map[string]string, 2)
		type delivery struct {
			id      string
			headers map[string]string
		}
		seen := make(chan delivery, 1)
		b.Start(batching(func(tasks []*asynq.Task) *asynq.Task {
			for _, task := range tasks {
				members <- task.Headers()
			}
			return asynq.NewTask("t", []byte("batch"))
		}), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			seen <- delivery{id, task.Headers()}
			return nil
		}))
		for _, id := range []string{"a", "b"} {
			b.Enqueue(asynq.NewTaskWithHeaders("t", nil, map[string]string{"h": id}), asynq.TaskID(id), asynq.Group("g"))
		}
		d := <-seen
		if d.id == "a" || d.id == "b" || len(d.headers) != 0 {
			t.Errorf("the batch is %q with headers %v, want an id of its own and none", d.id, d.headers)
		}
		if one, two := <-members, <-members; one["h"]+two["h"] != "ab" && one["h"]+two["h"] != "ba" {
			t.Errorf("the aggregator saw the headers %v, %v", one, two)
		}
	})
}

// The tasks of a batch whose end got lost wait in their group for another one, and
// come again with it.
func TestHazardGroupIsAggregatedAgainWhenItsEndIsLost(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		var batches, ids list[string]
		var lost atomic.Bool
		startTapped(b, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if op(cmd) == "delete set" && !lost.Swap(true) {
				cmd.SetErr(errCut)
				return errCut
			}
			return next(ctx, cmd)
		}, batching(func(tasks []*asynq.Task) *asynq.Task {
			var members string
			for _, task := range tasks {
				members += string(task.Payload())
			}
			return asynq.NewTask("t", []byte(members))
		}), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			ids.add(id)
			batches.add(string(task.Payload()))
			return nil
		}))
		for _, id := range []string{"a", "b"} {
			b.Enqueue(asynq.NewTask("t", []byte(id)), asynq.TaskID(id), asynq.Group("g"))
			time.Sleep(5 * time.Minute)
		}
		if got, want := batches.String(), "[a ab]"; got != want || ids.items[0] == ids.items[1] {
			t.Errorf("batches %s under %s, want %s under ids of their own", got, ids.String(), want)
		}
	})
}

func TestHazardEverySchedulerEnqueuesEveryTickUnderOneSetOfHeaders(t *testing.T) {
	hazard(t, func(t *testing.T, b *asynqharness.Bench) {
		type delivery struct {
			id      string
			headers map[string]string
		}
		seen := make(chan delivery, 100)
		b.Start(asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			seen <- delivery{id, task.Headers()}
			return nil
		}))
		headers := map[string]string{"nonce": "n"}
		for range 2 {
			s := asynq.NewSchedulerFromRedisClient(dial(b, nil, nil), &asynq.SchedulerOpts{Logger: quiet{}})
			if _, err := s.Register("@every 1m", asynq.NewTaskWithHeaders("t", nil, headers)); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
		}
		time.Sleep(2*time.Minute + 30*time.Second)
		ids := map[string]bool{}
		for range len(seen) {
			d := <-seen
			ids[d.id] = true
			if !maps.Equal(d.headers, headers) {
				t.Errorf("headers %v", d.headers)
			}
		}
		if len(ids) != 4 {
			t.Errorf("%d tasks from two schedulers in two ticks, want 4 of different ids", len(ids))
		}
	})
}

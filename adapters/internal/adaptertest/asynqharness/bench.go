// Package asynqharness runs the real Asynq server, client and inspector on
// miniredis in virtual time. For tests only.
//
// Everything must be made and used inside one testing/synctest bubble: minutes
// of leases, back-offs and recoveries then take milliseconds.
package asynqharness

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// ErrCut is what a worker sees of Redis after [Link.Cut].
var ErrCut = errors.New("asynqharness: connection cut")

// Bench is one Redis with a client and an inspector on it.
type Bench struct {
	T         testing.TB
	Mini      *miniredis.Miniredis
	Redis     *redis.Client
	Client    *asynq.Client
	Inspector *asynq.Inspector
}

// New starts a bench. It is taken down when the test of the bubble ends.
func New(t testing.TB) *Bench {
	t.Helper()
	mini := miniredis.NewMiniRedis()
	mini.ClockTTL(true)
	t.Cleanup(mini.Close)
	b := &Bench{T: t, Mini: mini}
	b.Redis = b.dial()
	b.Client = asynq.NewClientFromRedisClient(b.Redis)
	b.Inspector = asynq.NewInspectorFromRedisClient(b.Redis)
	return b
}

func (b *Bench) dial() *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		// An IP literal: for a host name go-redis resolves it, and the
		// resolver's goroutines belong to the first bubble of the process.
		Addr: "127.0.0.1:1",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return b.Mini.Dial()
		},
	})
	b.T.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Worker is one worker process: a server with its own connection to Redis.
type Worker struct {
	*asynq.Server
	Link *Link
}

// Link is a worker's connection to Redis.
type Link struct{ cut atomic.Bool }

// Cut makes every further command of the worker fail, as a network partition
// or a killed process would.
func (l *Link) Cut() { l.cut.Store(true) }

// DialHook implements [redis.Hook].
func (l *Link) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (l *Link) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.cut.Load() {
			// asynq asks again at once; a bubble in which nobody ever
			// blocks has no time.
			time.Sleep(time.Second)
			cmd.SetErr(ErrCut)
			return ErrCut
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (l *Link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if l.cut.Load() {
			return ErrCut
		}
		return next(ctx, cmds)
	}
}

// Start starts a worker process. A silent logger, and a fixed retry delay of
// one second unless config has its own, are filled in. The worker is shut down
// when the test ends.
func (b *Bench) Start(config asynq.Config, handler asynq.Handler) *Worker {
	b.T.Helper()
	if config.Logger == nil {
		config.Logger = silent{}
	}
	if config.RetryDelayFunc == nil {
		config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}
	if config.Concurrency == 0 {
		config.Concurrency = 10
	}
	link := new(Link)
	rdb := b.dial()
	rdb.AddHook(link)
	w := &Worker{Server: asynq.NewServerFromRedisClient(rdb, config), Link: link}
	if err := w.Server.Start(handler); err != nil {
		b.T.Fatalf("start asynq server: %v", err)
	}
	b.T.Cleanup(w.Shutdown)
	return w
}

// Enqueue enqueues a task or fails the test.
func (b *Bench) Enqueue(task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	b.T.Helper()
	info, err := b.Client.Enqueue(task, opts...)
	if err != nil {
		b.T.Fatalf("enqueue: %v", err)
	}
	return info
}

// Info reads a task of queue "default"; nil if the queue no longer has it.
func (b *Bench) Info(id string) *asynq.TaskInfo {
	b.T.Helper()
	info, err := b.Inspector.GetTaskInfo("default", id)
	switch {
	case err == nil:
		return info
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		return nil
	}
	b.T.Fatalf("read task %s: %v", id, err)
	return nil
}

// Failover puts a running task back at the head of its queue as a Redis
// failover does that lost the dequeue: both deliveries live, neither is told.
func (b *Bench) Failover(queue, id string) {
	b.T.Helper()
	prefix := "asynq:{" + queue + "}:"
	ctx := context.Background()
	pipe := b.Redis.TxPipeline()
	pipe.LRem(ctx, prefix+"active", 0, id)
	pipe.ZRem(ctx, prefix+"lease", id)
	pipe.HSet(ctx, prefix+"t:"+id, "state", "pending")
	pipe.RPush(ctx, prefix+"pending", id)
	if _, err := pipe.Exec(ctx); err != nil {
		b.T.Fatalf("failover of task %s: %v", id, err)
	}
}

// silent drops asynq's log lines.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

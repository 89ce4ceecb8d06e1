package live

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/chaos/proxy"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/runs"
)

func TestAsynqsConnectionCutAtAnyFrameDoublesNothing(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"redis": 0, "redis, the client sends nothing twice": -1} {
		t.Run(name, func(t *testing.T) { sweepAsynq(t, false, retries) })
	}
}

func TestTheSweepOfAsynqsConnectionWouldNotice(t *testing.T) {
	t.Parallel()
	sweepAsynq(t, true, -1)
}

func sweepAsynq(t *testing.T, bare bool, retries int) {
	t.Helper()
	at := private.ServiceRedis.Need(t)
	options, err := redis.ParseURL(at)
	if err != nil {
		t.Fatal(err)
	}
	clean := redis.NewClient(options)
	t.Cleanup(func() { _ = clean.Close() })
	store, err := redisledger.Open(t.Context(), clean, &redisledger.Config{Prefix: prefixOn(t, at)})
	if err != nil {
		t.Fatal(err)
	}
	k, err := runs.New(store, brisk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	s := &queueCuts{keeper: k, bare: bare}
	sweepQueue(t, s, func(t *testing.T, _ int) *cutQueue {
		queue := "live-" + strings.ToLower(rand.Text()[:12])
		t.Cleanup(func() {
			removeKeys(t, options, "asynq:{"+queue+"}")
			if err := clean.SRem(context.Background(), "asynq:queues", queue).Err(); err != nil {
				t.Error(err)
			}
		})
		q := onAsynq(clean, queue)
		q.proxy = asynqLane(t, s, *options, retries, queue)
		return q
	})
}

// onAsynq looks at a queue of Asynq's over a good connection.
func onAsynq(clean *redis.Client, queue string) *cutQueue {
	producer, inspector := asynq.NewClientFromRedisClient(clean), asynq.NewInspectorFromRedisClient(clean)
	key := func(name string) string { return "asynq:{" + queue + "}:" + name }
	return &cutQueue{
		insert: func(t *testing.T, c string) string {
			headers, err := asynqruns.Headers(asynqruns.Conversation{ID: c, Inbound: []string{"m1"}})
			if err != nil {
				t.Error(err)
				return ""
			}
			info, err := producer.EnqueueContext(t.Context(), asynq.NewTaskWithHeaders("cut", []byte(c), headers),
				asynq.Queue(queue), asynq.MaxRetry(100), asynq.Timeout(20*time.Second))
			if err != nil {
				t.Error(err)
				return ""
			}
			return info.ID
		},
		stage: func(t *testing.T, id string) stage {
			info, err := inspector.GetTaskInfo(queue, id)
			switch {
			case errors.Is(err, asynq.ErrTaskNotFound):
				return done
			case err != nil:
				t.Error(err)
				return parked
			case info.State == asynq.TaskStateActive:
				return working
			case info.State == asynq.TaskStateArchived:
				return parked
			}
			return waiting
		},
		// What the recoverer does a minute after the lease has expired, without the delay of a retry.
		again: func(t *testing.T, id string) {
			n, err := clean.LRem(t.Context(), key("active"), 0, id).Result()
			if err != nil {
				t.Error(err)
			}
			if n == 0 {
				return
			}
			if _, err := clean.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.ZRem(t.Context(), key("lease"), id)
				p.HSet(t.Context(), key("t:"+id), "state", "pending")
				p.RPush(t.Context(), key("pending"), id)
				return nil
			}); err != nil {
				t.Error(err)
			}
		},
	}
}

// asynqLane starts a server whose connections go through a proxy, on a queue of its own.
func asynqLane(t *testing.T, s *queueCuts, via redis.Options, retries int, queue string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Listen(proxy.Redis, via.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	via.Addr, via.MaxRetries = p.Addr(), retries
	client := redis.NewClient(&via)
	t.Cleanup(func() { _ = client.Close() })
	adapter, err := asynqruns.New(s.keeper, &asynqruns.Config{Reads: runs.AfterBegin, Inbound: asynqruns.FromHeaders})
	if err != nil {
		t.Fatal(err)
	}
	mux := asynq.NewServeMux()
	if !s.bare {
		mux.Use(adapter.Middleware)
	}
	mux.HandleFunc("cut", func(ctx context.Context, task *asynq.Task) error { return s.handle(ctx, string(task.Payload())) })
	server := asynq.NewServerFromRedisClient(client, adapter.Config(asynq.Config{
		Concurrency: 1, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel,
		DelayedTaskCheckInterval: 500 * time.Millisecond, TaskCheckInterval: 20 * time.Millisecond, ShutdownTimeout: time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 50 * time.Millisecond },
	}))
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return p
}

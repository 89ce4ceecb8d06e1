package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/runs"
)

const taskType = "live"

type asynqQueue struct {
	stage   *stage
	name    string
	client  *redis.Client
	asynq   *asynq.Client
	adapter *asynqruns.Adapter // nil without the library
	script  *redis.Script
}

func (s *stage) openAsynq(ctx context.Context) (queue, error) {
	client, err := dialRedis(s.spec.URL)
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("the queue's server cannot be used: %w", errors.Join(err, client.Close()))
	}
	s.spec.URL = named(redisKV, s.spec.URL, s.tag, "")
	q := &asynqQueue{
		stage: s, name: s.spec.Space, client: client, asynq: asynq.NewClientFromRedisClient(client), script: redis.NewScript(text("lua/again.lua")),
	}
	if s.keeper != nil {
		if q.adapter, err = asynqruns.New(s.keeper, asynqSettings()); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	return q, nil
}

func asynqSettings() *asynqruns.Config {
	return &asynqruns.Config{Reads: runs.AfterBegin, Inbound: asynqruns.FromHeaders}
}

func (q *asynqQueue) key(name string) string { return "asynq:{" + q.name + "}:" + name }

func (q *asynqQueue) enqueue(ctx context.Context, j job) (string, error) {
	payload, err := json.Marshal(j)
	if err != nil {
		return "", fmt.Errorf("storm: enqueue: %w", err)
	}
	options := []asynq.Option{asynq.Queue(q.name), asynq.MaxRetry(maxAttempts), asynq.Timeout(jobTimeout)}
	task := asynq.NewTask(taskType, payload, options...)
	if q.adapter != nil {
		about := asynqruns.Conversation{ID: j.Conversation, Inbound: []string{j.Message}}
		if task, err = q.adapter.NewTask(ctx, taskType, payload, about, options...); err != nil {
			return "", fmt.Errorf("storm: enqueue: %w", err)
		}
	}
	info, err := q.asynq.EnqueueContext(ctx, task)
	if err != nil {
		return "", fmt.Errorf("storm: enqueue: %w", err)
	}
	return info.ID, nil
}

func (q *asynqQueue) left(ctx context.Context) (left, error) {
	var pending, active *redis.StringSliceCmd
	var scheduled, retry *redis.StringSliceCmd
	var archived *redis.IntCmd
	_, err := q.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		pending, active = p.LRange(ctx, q.key("pending"), 0, -1), p.LRange(ctx, q.key("active"), 0, -1)
		scheduled, retry = p.ZRange(ctx, q.key("scheduled"), 0, -1), p.ZRange(ctx, q.key("retry"), 0, -1)
		archived = p.ZCard(ctx, q.key("archived"))
		return nil
	})
	if err != nil {
		return left{}, fmt.Errorf("storm: look at the queue: %w", err)
	}
	return left{
		waiting: append(append(pending.Val(), scheduled.Val()...), retry.Val()...), running: active.Val(), parked: int(archived.Val()),
	}, nil
}

func (q *asynqQueue) again(ctx context.Context, id string) (bool, error) {
	keys := []string{q.key("active"), q.key("lease"), q.key("pending"), q.key("t:" + id)}
	n, err := q.script.Run(ctx, q.client, keys, id).Int()
	if err != nil {
		return false, fmt.Errorf("storm: deliver again: %w", err)
	}
	return n == 1, nil
}

// lose moves the leases back beyond what Asynq's recoverer forgives. It looks when a server starts,
// and then once a minute.
func (q *asynqQueue) lose(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	expired := make([]redis.Z, len(ids))
	for i, id := range ids {
		expired[i] = redis.Z{Score: float64(time.Now().Add(-time.Hour).Unix()), Member: id}
	}
	if err := q.client.ZAddXX(ctx, q.key("lease"), expired...).Err(); err != nil {
		return fmt.Errorf("storm: expire leases: %w", err)
	}
	return nil
}

// reconnect does nothing: go-redis looks whether a connection is there before it uses it.
func (q *asynqQueue) reconnect() {}

// close removes the queue, and what its workers told of themselves before they were killed.
func (q *asynqQueue) close(ctx context.Context) error {
	err := removeKeys(ctx, q.client, q.key("*"))
	err = errors.Join(err, q.client.SRem(ctx, "asynq:queues", q.name).Err())
	host, herr := os.Hostname()
	err = errors.Join(err, herr)
	for _, pid := range q.stage.processes() {
		mine := fmt.Sprintf(":{%s:%d:", host, pid)
		for _, all := range []string{"asynq:servers", "asynq:workers"} {
			err = errors.Join(err, removeKeys(ctx, q.client, all+mine+"*"))
			members, merr := q.client.ZRange(ctx, all, 0, -1).Result()
			err = errors.Join(err, merr)
			for _, m := range members {
				if strings.HasPrefix(m, all+mine) {
					err = errors.Join(err, q.client.ZRem(ctx, all, m).Err())
				}
			}
		}
	}
	return errors.Join(err, q.client.Close())
}

// asynqWork runs Asynq's own server.
func (w *worker) asynqWork(ctx context.Context) error {
	client, err := dialRedis(w.Queue.URL)
	if err != nil {
		return err
	}
	defer client.Close()
	config := asynq.Config{
		Concurrency: concurrency, DelayedTaskCheckInterval: 2 * poll, LogLevel: asynq.FatalLevel, Queues: map[string]int{w.Queue.Space: 1},
		RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return backOff },
		ShutdownTimeout: stopLimit / 4, TaskCheckInterval: poll,
	}
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			return w.deliver(id, func() error { return next.ProcessTask(ctx, task) })
		})
	})
	if w.keeper != nil {
		adapter, err := asynqruns.New(w.keeper, asynqSettings())
		if err != nil {
			return err
		}
		config = adapter.Config(config)
		mux.Use(adapter.Middleware)
	}
	mux.HandleFunc(taskType, func(ctx context.Context, task *asynq.Task) error {
		var j job
		if err := json.Unmarshal(task.Payload(), &j); err != nil {
			return fmt.Errorf("storm: job: %w", err)
		}
		return w.handle(ctx, j)
	})
	var server *asynq.Server
	err = persist(ctx, func(context.Context) error {
		server = asynq.NewServerFromRedisClient(client, config)
		return server.Start(mux)
	})
	if err != nil {
		return err
	}
	w.emit(event{Kind: ready})
	<-ctx.Done()
	server.Shutdown()
	return nil
}

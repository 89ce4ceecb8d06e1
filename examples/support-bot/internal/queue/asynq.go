package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	asynqQueue  = "support"
	asynqPrefix = "asynq:{" + asynqQueue + "}:"
	// ours marks a Redis database as used by this example.
	ours = "fencedrun:support-bot"
	// RedisLedger begins the keys of a ledger that shares the queue's database. Whoever opens
	// the ledger removes them.
	RedisLedger = ours + ":ledger"
)

type asynqQ struct {
	url       string
	mini      *miniredis.Miniredis // nil on a real server
	redis     redis.UniversalClient
	client    *asynq.Client
	inspector *asynq.Inspector
	additions Additions
}

func openAsynq(ctx context.Context, url string, additions Additions) (Queue, error) {
	silence()
	q := &asynqQ{url: url, additions: additions}
	if url == "" {
		q.mini = miniredis.NewMiniRedis()
		q.mini.ClockTTL(true)
		if err := q.mini.StartAddr("127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("start miniredis: %w", err)
		}
		q.url = "redis://" + q.mini.Addr()
	}
	var err error
	if q.redis, err = dial(q.url); err != nil {
		return nil, err
	}
	if q.mini == nil {
		if err := claim(ctx, q.redis); err != nil {
			_ = q.redis.Close()
			return nil, err
		}
	}
	q.client = asynq.NewClientFromRedisClient(q.redis)
	q.inspector = asynq.NewInspectorFromRedisClient(q.redis)
	return q, nil
}

func dial(url string) (redis.UniversalClient, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return redis.NewClient(options), nil
}

// silence keeps go-redis from writing to standard error: workers are killed on purpose here, and a server that goes away
// under its clients is nothing to report.
func silence() { redis.SetLogger(quiet{}) }

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// claim takes a real Redis database for this run. Asynq's keys cannot be given a prefix, so the database must be empty, or
// hold nothing but what an earlier run of this example left.
func claim(ctx context.Context, client redis.UniversalClient) error {
	size, err := foreign(ctx, client)
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if size > 0 {
		if err := client.Get(ctx, ours).Err(); errors.Is(err, redis.Nil) {
			return fmt.Errorf("redis: this database holds %d keys that are not this example's: name an empty one, such as redis://host:6379/9", size)
		} else if err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		if err := clearOurs(ctx, client); err != nil {
			return err
		}
		if size, err = foreign(ctx, client); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		if size > 0 {
			return fmt.Errorf("redis: this database holds %d keys that are not this example's: name an empty one", size)
		}
	}
	if err := client.Set(ctx, ours, time.Now().UTC().Format(time.RFC3339), 0).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// foreign counts the keys that are not a ledger's of this example.
func foreign(ctx context.Context, client redis.UniversalClient) (int64, error) {
	size, err := client.DBSize(ctx).Result()
	if err != nil {
		return 0, err
	}
	scan := client.Scan(ctx, 0, RedisLedger+":*", 1000).Iterator()
	for scan.Next(ctx) {
		size--
	}
	return size, scan.Err()
}

// clearOurs removes what this example and its Asynq servers write, and nothing else.
func clearOurs(ctx context.Context, client redis.UniversalClient) error {
	keys := []string{ours, "asynq:queues", "asynq:servers", "asynq:workers", "asynq:schedulers"}
	return RemoveKeys(ctx, client, keys, asynqPrefix, "asynq:servers:{", "asynq:workers:{")
}

// RemoveKeys removes keys, and every key that begins with one of the prefixes.
func RemoveKeys(ctx context.Context, client redis.UniversalClient, keys []string, prefixes ...string) error {
	for _, prefix := range prefixes {
		scan := client.Scan(ctx, 0, escapeGlob(prefix)+"*", 1000).Iterator()
		for scan.Next(ctx) {
			keys = append(keys, scan.Val())
		}
		if err := scan.Err(); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
	}
	for len(keys) > 0 {
		n := min(len(keys), 1000)
		if err := client.Del(ctx, keys[:n]...).Err(); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		keys = keys[n:]
	}
	return nil
}

// escapeGlob keeps braces literal; Redis gives them no meaning, but a server that is only like Redis may.
func escapeGlob(pattern string) string {
	return strings.NewReplacer("{", `\{`, "}", `\}`).Replace(pattern)
}

func (q *asynqQ) Spec() Spec { return Spec{Name: Asynq, Address: q.url} }

func (q *asynqQ) Where() string {
	if q.mini != nil {
		return "Asynq on miniredis at " + q.mini.Addr()
	}
	return "Asynq on a Redis server"
}

func (q *asynqQ) Enqueue(ctx context.Context, job Job) (string, error) {
	payload, err := json.Marshal(job)
	if err != nil {
		return "", fmt.Errorf("enqueue: %w", err)
	}
	options := []asynq.Option{asynq.Queue(asynqQueue), asynq.MaxRetry(maxAttempts - 1), asynq.Timeout(jobTimeout)}
	var task *asynq.Task
	if q.additions.AsynqTask != nil {
		if task, err = q.additions.AsynqTask(ctx, job, taskType, payload, options...); err != nil {
			return "", fmt.Errorf("enqueue: %w", err)
		}
	} else {
		task = asynq.NewTask(taskType, payload, options...)
	}
	info, err := q.client.EnqueueContext(ctx, task)
	if err != nil {
		return "", fmt.Errorf("enqueue: %w", err)
	}
	return info.ID, nil
}

func (q *asynqQ) Running(ctx context.Context) ([]string, error) {
	ids, err := q.redis.LRange(ctx, asynqPrefix+"active", 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list running jobs: %w", err)
	}
	return ids, nil
}

// Expire moves the leases back beyond what the recoverer forgives. It looks at its start and then once a minute, so the
// worker that is started next redelivers these jobs.
func (q *asynqQ) Expire(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	expired := float64(time.Now().Add(-time.Hour).Unix())
	members := make([]redis.Z, len(ids))
	for i, id := range ids {
		members[i] = redis.Z{Score: expired, Member: id}
	}
	if err := q.redis.ZAddXX(ctx, asynqPrefix+"lease", members...).Err(); err != nil {
		return fmt.Errorf("expire leases: %w", err)
	}
	return nil
}

// again leaves behind what a Redis failover does that loses a task's dequeue: the task is pending once more, and the worker
// that has it does not know.
//
// Its KEYS are active, lease, pending and task, its ARGV the task id.
var again = redis.NewScript(`
if redis.call("LREM", KEYS[1], 0, ARGV[1]) == 0 then
	return 0
end
redis.call("ZREM", KEYS[2], ARGV[1])
if redis.call("EXISTS", KEYS[4]) == 0 then
	return 0
end
redis.call("RPUSH", KEYS[3], ARGV[1])
redis.call("HSET", KEYS[4], "state", "pending")
return 1`)

func (q *asynqQ) Again(ctx context.Context, id string) (bool, error) {
	keys := []string{asynqPrefix + "active", asynqPrefix + "lease", asynqPrefix + "pending", asynqPrefix + "t:" + id}
	n, err := again.Run(ctx, q.redis, keys, id).Int()
	if err != nil {
		return false, fmt.Errorf("deliver again: %w", err)
	}
	return n == 1, nil
}

func (q *asynqQ) Left(ctx context.Context) (Left, error) {
	// A queue on which nothing was ever put does not exist, which the inspector reports with an error of no known type.
	if exists, err := q.redis.SIsMember(ctx, "asynq:queues", asynqQueue).Result(); err != nil {
		return Left{}, fmt.Errorf("look at the queue: %w", err)
	} else if !exists {
		return Left{}, nil
	}
	info, err := q.inspector.GetQueueInfo(asynqQueue)
	if err != nil {
		return Left{}, fmt.Errorf("look at the queue: %w", err)
	}
	return Left{Waiting: info.Pending + info.Scheduled + info.Retry, Running: info.Active, Parked: info.Archived}, nil
}

func (q *asynqQ) Close() error {
	var err error
	if q.mini != nil {
		q.mini.Close()
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = clearOurs(ctx, q.redis)
	}
	_ = q.redis.Close()
	return err
}

// workAsynq runs Asynq's own server.
func workAsynq(ctx context.Context, spec Spec, additions Additions, watch Watch, handler Handler, ready func()) error {
	silence()
	client, err := dial(spec.Address)
	if err != nil {
		return err
	}
	defer client.Close()
	config := asynq.Config{
		Concurrency:              concurrency,
		DelayedTaskCheckInterval: 4 * poll,
		LogLevel:                 asynq.FatalLevel,
		Queues:                   map[string]int{asynqQueue: 1},
		RetryDelayFunc:           func(n int, _ error, _ *asynq.Task) time.Duration { return retryAfter(n) },
		ShutdownTimeout:          grace,
		TaskCheckInterval:        poll,
	}
	if additions.AsynqConfig != nil {
		config = additions.AsynqConfig(config)
	}
	server := asynq.NewServerFromRedisClient(client, config)
	mux := asynq.NewServeMux()
	mux.Use(watchAsynq(watch))
	mux.Use(additions.AsynqMiddleware...)
	mux.HandleFunc(taskType, func(ctx context.Context, task *asynq.Task) error {
		var job Job
		if err := json.Unmarshal(task.Payload(), &job); err != nil {
			return fmt.Errorf("read job: %w", err)
		}
		return handler(ctx, job)
	})
	if err := server.Start(mux); err != nil {
		return fmt.Errorf("start asynq: %w", err)
	}
	ready()
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func watchAsynq(watch Watch) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
			id, _ := asynq.GetTaskID(ctx)
			var job Job
			_ = json.Unmarshal(task.Payload(), &job) // the handler complains if it cannot be read
			watch.Began(id, job)
			defer func() { watch.Ended(id, job, err) }()
			return next.ProcessTask(ctx, task)
		})
	}
}

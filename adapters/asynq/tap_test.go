package asynqruns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
)

// tap stands between a worker and Redis. It sees every command, and passes it on
// with next or does not.
type tap func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (t tap) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return t(ctx, cmd, next) }
}

func (t tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next // asynq's workers send no pipelines
}

// dial returns a client of b's Redis with a tap. Its connections come from open,
// or straight from Redis if that is nil.
func dial(b *asynqharness.Bench, t tap, open func() (net.Conn, error)) *redis.Client {
	if open == nil {
		open = b.Mini.Dial
	}
	rdb := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:1", // a name would be looked up
		Dialer: func(context.Context, string, string) (net.Conn, error) { return open() },
	})
	if t != nil {
		rdb.AddHook(t)
	}
	b.T.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// startTapped starts a worker process whose way to Redis has a tap.
func startTapped(b *asynqharness.Bench, t tap, config asynq.Config, handler asynq.Handler) *asynq.Server {
	b.T.Helper()
	config.Logger, config.Concurrency = quiet{}, 10
	if config.RetryDelayFunc == nil {
		config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}
	server := asynq.NewServerFromRedisClient(dial(b, t, nil), config)
	if err := server.Start(handler); err != nil {
		b.T.Fatalf("start asynq server: %v", err)
	}
	b.T.Cleanup(server.Shutdown)
	return server
}

// op says what asynq wants of Redis with a command: the name of its script, as
// the keys tell it, or of the command.
func op(cmd redis.Cmder) string {
	args := cmd.Args()
	if name := strings.ToLower(cmd.Name()); name != "evalsha" && name != "eval" || len(args) < 3 {
		return name
	}
	n, _ := strconv.Atoi(fmt.Sprint(args[2]))
	var kinds []string
	for _, k := range args[3 : 3+n] {
		_, kind, _ := strings.Cut(fmt.Sprint(k), "}:")
		kind, _, _ = strings.Cut(kind, ":")
		kinds = append(kinds, kind)
	}
	switch joined := strings.Join(kinds, " "); {
	case joined == "pending paused active lease":
		return "dequeue"
	case strings.HasPrefix(joined, "active lease t processed"):
		return "done"
	case strings.HasPrefix(joined, "active lease pending"):
		return "requeue"
	case strings.HasPrefix(joined, "t active lease retry"):
		return "retry"
	case joined == "lease":
		return "list expired"
	case joined == "g aggregation_sets" && len(args) == 6:
		return "delete set"
	case joined == "t pending":
		return "enqueue"
	default:
		return "eval " + joined
	}
}

var errCut = errors.New("the connection is cut")

// line is a way to a server, and can go down.
type line struct{ down atomic.Bool }

// pass is a tap.
func (l *line) pass(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if !l.down.Load() {
		return next(ctx, cmd)
	}
	time.Sleep(time.Second) // asynq asks again at once, and then no time passes
	cmd.SetErr(errCut)
	return errCut
}

// quiet drops asynq's log lines.
type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}

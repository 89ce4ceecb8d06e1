package asynqruns_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// must is for examples: a program handles its errors.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A support bot whose worker answers all open messages of a thread, once.
func Example() {
	redis := must(miniredis.Run()) // stands for a real Redis
	defer redis.Close()
	connection := asynq.RedisClientOpt{Addr: redis.Addr()}

	keeper := must(runs.New(memledger.New(), nil)) // use a ledger that outlives the process
	defer keeper.Close()
	fenced := must(asynqruns.New(keeper, &asynqruns.Config{
		Inbound: asynqruns.FromHeaders,
		Reads:   runs.AfterBegin,
	}))

	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(fenced.Middleware)
	mux.HandleFunc("answer", func(ctx context.Context, _ *asynq.Task) error {
		defer close(done)
		return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
			open := view.OpenIDs()
			if len(open) == 0 {
				return nil
			}
			reply := runs.Effect{Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open}
			return runs.FromContext(ctx).Once(ctx, reply, func(_ context.Context, call *runs.Call) error {
				fmt.Println("answering", open, "- call", call.Number)
				return nil
			})
		})
	})
	server := asynq.NewServer(connection, fenced.Config(asynq.Config{
		LogLevel:          asynq.FatalLevel,
		TaskCheckInterval: 5 * time.Millisecond,
	}))
	if err := server.Start(mux); err != nil {
		panic(err)
	}
	defer server.Shutdown()

	client := asynq.NewClient(connection)
	defer client.Close()
	task := must(fenced.NewTask(context.Background(), "answer", nil, asynqruns.Conversation{
		ID:      "thread-7",
		Inbound: []string{"m1", "m2"},
	}))
	must(client.Enqueue(task))
	<-done
	// Output: answering [m1 m2] - call 1
}

// What an operator sees in asynq's own tools of a task made with NewTask.
func ExampleAdapter_NewTask() {
	keeper := must(runs.New(memledger.New(), nil))
	defer keeper.Close()
	fenced := must(asynqruns.New(keeper, &asynqruns.Config{Inbound: asynqruns.FromHeaders, Reads: runs.AfterBegin}))

	task := must(fenced.NewTask(context.Background(), "answer", []byte("payload"), asynqruns.Conversation{
		ID: "thread-7", Inbound: []string{"m1"},
	}, asynq.MaxRetry(5)))
	headers := task.Headers()
	fmt.Println(headers["fencedrun-conversation"], headers["fencedrun-inbound"])
	// Output: thread-7 ["m1"]
}

// A producer without a ledger gives an order of its own, here the number of the
// message in its thread, and a nonce wherever task ids can be used again.
func ExampleHeaders() {
	headers := must(asynqruns.Headers(asynqruns.Conversation{
		ID:      "thread-7",
		Inbound: []string{"m3"},
		Order:   runs.Order{Source: "thread-7", Number: 3},
		Nonce:   "webhook-4711",
	}))
	task := asynq.NewTaskWithHeaders("answer", nil, headers, asynq.TaskID("answer-m3"))
	fmt.Println(task.Headers()["fencedrun-order"])
	// Output: 3 thread-7
}

// A choice that has no default is asked for when the adapter is made.
func ExampleNew() {
	keeper := must(runs.New(memledger.New(), nil))
	defer keeper.Close()
	_, err := asynqruns.New(keeper, &asynqruns.Config{Inbound: asynqruns.NoInbound})
	fmt.Println(err)
	// Output: fencedrun: asynqruns: Config.Reads is not chosen: runs.AfterBegin or runs.FromPayload
}

// The server's own IsFailure and RetryDelayFunc go on deciding for the handler's
// errors.
func ExampleAdapter_Config() {
	keeper := must(runs.New(memledger.New(), nil))
	defer keeper.Close()
	fenced := must(asynqruns.New(keeper, &asynqruns.Config{Inbound: asynqruns.NoInbound, Reads: runs.AfterBegin}))
	config := fenced.Config(asynq.Config{
		Concurrency:    20,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Minute },
	})
	busy := &runs.VerdictError{Action: runs.ActionComeBack, After: 3 * time.Second}
	fmt.Println(config.IsFailure(busy), config.RetryDelayFunc(0, busy, nil))
	fmt.Println(config.IsFailure(context.Canceled), config.RetryDelayFunc(0, context.Canceled, nil))
	// Output:
	// false 3s
	// true 1m0s
}

package asynqruns_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// A scheduler entry asks about unknown outcomes. Here the ledger has one refund whose answer was lost.
func ExampleAdapter_sweep() {
	redis := must(miniredis.Run()) // stands for a real Redis
	defer redis.Close()
	connection := asynq.RedisClientOpt{Addr: redis.Addr()}

	keeper := refundInDoubt() // for runs.New(ledger, &runs.Config{Intents: []runs.Declared{refund}})
	defer keeper.Close()
	fenced := must(asynqruns.New(keeper, &asynqruns.Config{Inbound: asynqruns.FromHeaders, Reads: runs.AfterBegin}))

	// The sweep has no conversation, so it is not among the tasks that Middleware is for.
	support := asynq.NewServeMux()
	support.Use(fenced.Middleware)
	support.HandleFunc("support:answer", func(context.Context, *asynq.Task) error { return nil })

	answers := make(chan runs.Swept, 1)
	mux := asynq.NewServeMux()
	mux.Handle("support:", support)
	mux.HandleFunc("fencedrun:sweep", func(ctx context.Context, _ *asynq.Task) error {
		swept, err := keeper.Sweep(ctx)
		select {
		case answers <- swept:
		default: // it has come again already
		}
		return err
	})
	server := asynq.NewServer(connection, fenced.Config(asynq.Config{
		LogLevel:          asynq.FatalLevel,
		TaskCheckInterval: 5 * time.Millisecond,
	}))
	if err := server.Start(mux); err != nil {
		panic(err)
	}
	defer server.Shutdown()

	// One attempt, because the next sweep is the better retry; and no second one while one waits or works.
	every := time.Second // five minutes are often enough
	sweep := asynq.NewTask("fencedrun:sweep", nil, asynq.MaxRetry(0), asynq.Timeout(5*time.Minute), asynq.Unique(5*time.Minute))
	scheduler := asynq.NewScheduler(connection, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	must(scheduler.Register("@every "+every.String(), sweep))
	if err := scheduler.Start(); err != nil {
		panic(err)
	}
	defer scheduler.Shutdown()
	swept := <-answers
	fmt.Printf("asked %d: %d had happened, %d had not, %d stay unknown\n", swept.Asked, swept.Applied, swept.NotApplied, swept.Unknown)
	// Output: asked 1: 1 had happened, 0 had not, 0 stay unknown
}

// refundInDoubt returns a keeper over a ledger with a refund of which nobody knows that it was made. The quiet period is over.
func refundInDoubt() *runs.Keeper {
	made := map[string]bool{}
	refund := runs.Intent[string]{
		Name: "refund",
		Probe: func(_ context.Context, q runs.Question) (runs.Found[string], error) {
			if made[q.IdempotencyKey] {
				return runs.Applied("re_1", "re_1"), nil
			}
			return runs.NotFound[string](), nil
		},
	}
	k := runstest.NewKeeper(exampleT{}, &runs.Config{Intents: []runs.Declared{refund}})
	_, _ = refund.OnceOn(context.Background(), k.Keeper, "thread-7", runs.Key("order", "A-1"), func(_ context.Context, call *runs.Call) (string, error) {
		made[call.IdempotencyKey] = true
		return "", errors.New("connection reset by peer")
	})
	k.Advance(5 * time.Minute)
	return k.Keeper
}

// exampleT is what runstest needs of a test.
type exampleT struct{}

func (exampleT) Helper()                           {}
func (exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (exampleT) FailNow()                          { panic("failed") }
func (exampleT) Cleanup(func())                    {}

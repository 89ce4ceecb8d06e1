package runs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func ExampleNew() {
	// The memory ledger forgets everything at a restart; programs use another one.
	keeper, err := runs.New(memledger.New(), &runs.Config{
		EffectTimeout: 20 * time.Second,
		Logger:        slog.Default(), // warns of what a person must know
	})
	if err != nil {
		panic(err)
	}
	defer keeper.Close()
	fmt.Println(keeper.Config().EffectTimeout, keeper.Config().ClaimDeadline)

	_, err = runs.New(memledger.New(), &runs.Config{Lease: 5 * time.Second, Beat: 10 * time.Second})
	fmt.Println(err)
	// Output:
	// 20s 40s
	// fencedrun: Config.Lease (5s) must be longer than Config.Beat (10s)
}

func ExampleKeeper_Do() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	job := runs.Job{
		Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true,
		Digest: "of the payload", Reads: runs.AfterBegin,
	}
	handler := func(ctx context.Context) error {
		fmt.Println("delivery", runs.FromContext(ctx).Delivery())
		return nil
	}
	for range 2 {
		if err := keeper.Do(context.Background(), job, handler); err != nil {
			panic(err)
		}
	}
	fmt.Println("a job that is done is not entered again")
	// Output:
	// delivery 1
	// a job that is done is not entered again
}

func ExampleSlogObserver() {
	// Without the time, so that the output is always the same.
	text := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelInfo,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})
	keeper, _ := runs.New(memledger.New(), &runs.Config{
		Observer: runs.SlogObserver(slog.New(text), false), // true logs keys and message ids too
	})
	defer keeper.Close()

	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"}, Reads: runs.AfterBegin}
	_ = keeper.Do(context.Background(), job, func(ctx context.Context) error {
		return nil // and the customer hears nothing
	})
	// Output:
	// level=WARN msg="fencedrun: unanswered" conversation=thread-7 queue=support job=job-1
}

// A job whose payload carries a snapshot of the conversation says, with a stamp taken before
// it was read, what the snapshot had seen.
func ExampleKeeper_Stamp() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	ctx := context.Background()

	stamp, err := keeper.Stamp(ctx, "thread-7") // first this, then read the conversation
	if err != nil {
		panic(err)
	}
	job := runs.Job{
		Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"},
		Reads: runs.FromPayload, AsOf: stamp,
		Order: runs.Order{Source: runs.StampSource, Number: stamp}, // a later stamp is a newer job
	}
	// A person writes before the job is delivered, and a payload never gets fresher.
	_, _ = keeper.Report(ctx, "thread-7", runs.Write{ID: "note-1", By: "anna"})

	v := keeper.Deliver(ctx, job, runs.Delivery{}, func(ctx context.Context) error {
		return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(context.Context, *runs.Call) error {
			fmt.Println("sent from a stale view")
			return nil
		})
	})
	fmt.Println(v.Action, v.Reason)
	// Output:
	// park stale_payload
}

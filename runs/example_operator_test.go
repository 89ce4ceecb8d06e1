package runs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func ExampleKeeper_Cancel() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	ctx := context.Background()
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"}, Reads: runs.AfterBegin}

	// From any process, also before the job began.
	cancelled, err := keeper.Cancel(ctx, runs.RunKey{Queue: "support", ID: "job-1"}, runs.CancelOptions{By: "anna", Why: "spam", Dismiss: true})
	fmt.Println(cancelled, err)

	v := keeper.Deliver(ctx, job, runs.Delivery{}, func(context.Context) error {
		fmt.Println("entered")
		return nil
	})
	fmt.Println(v.Action, v.Reason)
	// Output:
	// true <nil>
	// drop cancelled
}

func ExampleKeeper_Report() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	ctx := context.Background()
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"}, Reads: runs.AfterBegin}

	// The helpdesk's webhook says that a person has answered. It may say so twice.
	answer := runs.Write{ID: "event-81", Intent: "reply", Answers: []string{"m1"}, By: "anna"}
	for range 2 {
		reported, err := keeper.Report(ctx, "thread-7", answer)
		fmt.Println("known:", reported.Known, err)
	}

	v := keeper.Deliver(ctx, job, runs.Delivery{}, func(ctx context.Context) error {
		return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(context.Context, *runs.Call) error {
			fmt.Println("answered twice")
			return nil
		})
	})
	fmt.Println(v.Action) // nothing is left to do
	// Output:
	// known: false <nil>
	// known: true <nil>
	// done
}

func ExampleKeeper_Dismiss() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()

	dismissed, err := keeper.Dismiss(context.Background(), "thread-7", []string{"m1"}, "spam")
	fmt.Println(dismissed, err)
	// Output:
	// [m1] <nil>
}

// lose makes a refund whose outcome nobody knows.
func lose(keeper *runs.Keeper) {
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	_ = keeper.Do(context.Background(), job, func(ctx context.Context) error {
		_, err := cardRefund.Once(ctx, runs.ID("o-1"), func(context.Context, *runs.Call) (cardReceipt, error) {
			return cardReceipt{}, errors.New("connection reset")
		}, runs.With{Summary: "refund of order 1"})
		return err
	})
}

func ExampleKeeper_Unresolved() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	lose(keeper)

	unresolved, err := keeper.Unresolved(context.Background(), 0, 100) // of any age, at most 100
	if err != nil {
		panic(err)
	}
	for _, u := range unresolved {
		fmt.Println(u.Conversation, u.Effect.Intent, u.Effect.Key, u.Effect.State())
		fmt.Println(u.Effect.Deciding().Error)
	}
	// Output:
	// thread-7 refund "o-1" ambiguous
	// connection reset
}

func ExampleKeeper_Resolve() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	ctx := context.Background()
	lose(keeper)

	unresolved, _ := keeper.Unresolved(ctx, 0, 1)
	before, after, err := keeper.Resolve(ctx, unresolved[0].Conversation, unresolved[0].Effect.ID, runs.Resolution{
		Happened: true, By: "anna", Note: "it is in the bank's books", Reference: "re_77",
		Force: true, // or wait for the claim's deadline: late evidence may arrive until then
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(before.State(), "to", after.State(), "by", after.Deciding().ResolvedBy)
	// Output:
	// ambiguous to committed by anna
}

func ExampleKeeper_History() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	lose(keeper)

	history, err := keeper.History(context.Background(), "thread-7")
	if err != nil {
		panic(err)
	}
	for _, run := range history.Runs {
		fmt.Println("run", run.Key, run.State)
	}
	for _, effect := range history.Effects {
		for _, call := range effect.Calls {
			fmt.Println("effect", effect.Intent, effect.Key, "call", call.Number, call.State, "-", call.Summary)
		}
	}
	// Output:
	// run support/job-1 active
	// effect refund "o-1" call 1 ambiguous - refund of order 1
}

func ExampleKeeper_Open() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	ctx := context.Background()
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"}, Reads: runs.AfterBegin}
	_ = keeper.Do(ctx, job, func(context.Context) error { return nil }) // which answers nothing

	open, err := keeper.Open(ctx, 0, 0)
	if err != nil {
		panic(err)
	}
	for _, message := range open {
		fmt.Println(message.Conversation, message.ID)
	}
	// What no job has named for ten minutes is forgotten by everybody but this list.
	open, err = keeper.Open(ctx, 10*time.Minute, 0)
	fmt.Println(len(open), err)
	// Output:
	// thread-7 m1
	// 0 <nil>
}

// A cron script calls Purge until nothing is left that is due.
func ExampleKeeper_Purge() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()

	for {
		purged, err := keeper.Purge(context.Background(), 1000)
		if err != nil {
			panic(err)
		}
		fmt.Println(purged.Runs, "runs and", purged.Effects, "effects")
		if !purged.More {
			break
		}
	}
	// Output:
	// 0 runs and 0 effects
}

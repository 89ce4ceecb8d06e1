package runs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// newKeeper is for the examples: a ledger in memory, which a restart forgets.
func newKeeper() *runs.Keeper {
	keeper, err := runs.New(memledger.New(), nil)
	if err != nil {
		panic(err)
	}
	return keeper
}

// message is a job that brings one customer message. Adapters make such jobs from what the
// queue delivers.
func message(id string, number int64) runs.Job {
	return runs.Job{
		Queue: "support", ID: "job-" + id, Conversation: "thread-1", Inbound: []string{id},
		Order: runs.Order{Source: "message", Number: number}, Reads: runs.AfterBegin,
	}
}

func ExampleKeeper_Deliver() {
	keeper := newKeeper()
	defer keeper.Close()
	ctx := context.Background()

	verdict := keeper.Deliver(ctx, message("m1", 1), runs.Delivery{}, func(context.Context) error {
		return errors.New("the model is overloaded")
	})
	fmt.Println(verdict.Action, verdict.Err)
	verdict = keeper.Deliver(ctx, message("m1", 1), runs.Delivery{}, func(ctx context.Context) error {
		fmt.Println("delivery", runs.FromContext(ctx).Delivery())
		return nil
	})
	fmt.Println(verdict.Action)
	verdict = keeper.Deliver(ctx, message("m1", 1), runs.Delivery{}, func(context.Context) error {
		panic("not entered")
	})
	fmt.Println(verdict.Action, verdict.Reason)
	// Output:
	// return the model is overloaded
	// delivery 2
	// done
	// done finished
}

func ExampleRun_Once() {
	keeper := newKeeper()
	defer keeper.Close()
	err := keeper.Do(context.Background(), message("m1", 1), func(ctx context.Context) error {
		run := runs.FromContext(ctx)
		for _, text := range []string{"Hi, refunded.", "Hello! Your refund is on its way."} {
			// The key is the message that is answered, not the wording: the second call finds
			// that it is done.
			err := run.Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1"), Summary: text}, func(context.Context, *runs.Call) error {
				fmt.Println("sent:", text)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// sent: Hi, refunded.
	// <nil>
}

type cardReceipt struct {
	ID    string
	Cents int
}

var errCardIsClosed = errors.New("card is closed")

var cardRefund = runs.Intent[cardReceipt]{
	Name:     "refund",
	Distinct: true, // another order or line is another deal
	Timeout:  20 * time.Second,
	Classify: func(err error) bool { return errors.Is(err, errCardIsClosed) }, // certainly did not apply
}

func ExampleIntent_Once() {
	keeper := newKeeper()
	defer keeper.Close()
	ctx := context.Background()
	handler := func(ctx context.Context) error {
		r, err := cardRefund.Once(ctx, runs.Key("order", "A-1", "line", 2), func(_ context.Context, call *runs.Call) (cardReceipt, error) {
			fmt.Println("calling the provider, call", call.Number)
			if call.Number == 1 {
				return cardReceipt{}, errCardIsClosed
			}
			call.SetReference("re_99")
			return cardReceipt{ID: "re_99", Cents: 392}, nil
		}, runs.With{Params: map[string]any{"cents": 392}})
		fmt.Println(r, err)
		return nil
	}
	for _, id := range []string{"m1", "m2", "m3"} {
		if err := keeper.Do(ctx, message(id, 0), handler); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// calling the provider, call 1
	// { 0} fencedrun: refund: call 1: failed: card is closed
	// calling the provider, call 2
	// {re_99 392} <nil>
	// {re_99 392} <nil>
}

func ExampleUntilCurrent() {
	keeper := newKeeper()
	defer keeper.Close()
	ctx := context.Background()
	rounds := 0
	err := keeper.Do(ctx, message("m1", 1), func(ctx context.Context) error {
		return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
			rounds++
			open := view.OpenIDs()
			fmt.Println("round", rounds, "open", open)
			if len(open) == 0 {
				return nil
			}
			if rounds == 1 { // while the model thinks, a human agent answers
				if _, err := keeper.Report(ctx, "thread-1", runs.Write{ID: "w1", Intent: "reply", Answers: []string{"m1"}, By: "ana"}); err != nil {
					return err
				}
			}
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID(open[0]), Answers: open}, func(context.Context, *runs.Call) error {
				panic("the customer would read two answers")
			})
		})
	})
	fmt.Println(err)
	// Output:
	// round 1 open [m1]
	// round 2 open []
	// <nil>
}

func ExampleRun_CatchUp() {
	keeper := newKeeper()
	defer keeper.Close()
	ctx := context.Background()
	err := keeper.Do(ctx, message("m1", 1), func(ctx context.Context) error {
		if _, err := keeper.Report(ctx, "thread-1", runs.Write{ID: "w1", Intent: "move", By: "ana"}); err != nil {
			return err
		}
		view, err := runs.FromContext(ctx).CatchUp(ctx)
		fmt.Println(len(view.Happened), view.Happened[0].Intent, view.OpenIDs(), err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1 move [m1] <nil>
	// <nil>
}

func ExampleRun_Dismiss() {
	keeper := newKeeper()
	defer keeper.Close()
	ctx := context.Background()
	_ = keeper.Do(ctx, message("thanks!", 1), func(ctx context.Context) error {
		return runs.FromContext(ctx).Dismiss(ctx, []string{"thanks!"}, "needs no answer")
	})
	open, err := keeper.Open(ctx, 0, 0)
	fmt.Println(len(open), err)
	// Output: 0 <nil>
}

func ExampleRun_SaveProgress() {
	keeper := newKeeper()
	defer keeper.Close()
	handler := func(ctx context.Context) error {
		run := runs.FromContext(ctx)
		var done struct{ Pages int }
		found, err := run.Progress(&done)
		if err != nil {
			return err
		}
		fmt.Println("starting after page", done.Pages, found)
		done.Pages += 10
		if err := run.SaveProgress(ctx, done); err != nil {
			return err
		}
		if done.Pages < 20 {
			return errors.New("the worker is shut down")
		}
		return nil
	}
	for range 2 {
		fmt.Println(keeper.Do(context.Background(), message("m1", 1), handler))
	}
	// Output:
	// starting after page 0 false
	// the worker is shut down
	// starting after page 10 true
	// <nil>
}

func ExampleRun_Check() {
	keeper := newKeeper()
	defer keeper.Close()
	_ = keeper.Do(context.Background(), message("m1", 1), func(ctx context.Context) error {
		run := runs.FromContext(ctx)
		tag := runs.Effect{Intent: "tag", Key: runs.Key("name", "billing")}
		before, err := run.Check(ctx, tag)
		fmt.Printf("%q %v\n", before.State, err)
		if err := run.Once(ctx, tag, func(context.Context, *runs.Call) error { return nil }); err != nil {
			return err
		}
		after, err := run.Check(ctx, tag)
		fmt.Printf("%q after %d call, %v\n", after.State, after.Calls, err)
		return nil
	})
	// Output:
	// "" <nil>
	// "committed" after 1 call, <nil>
}

func ExampleRun_Claim() {
	keeper := newKeeper()
	defer keeper.Close()
	ctx := context.Background()

	// The handler starts a payout that the provider finishes later.
	var claimID string
	handler := func(ctx context.Context) error {
		claim, err := runs.FromContext(ctx).Claim(ctx, runs.Effect{Intent: "payout", Key: runs.Key("order", "A-1")}, time.Hour)
		if err != nil {
			return err
		}
		if claim.Done() {
			fmt.Println("paid out before")
			return nil
		}
		claimID = claim.ID() // handed to the provider, with claim.Call().IdempotencyKey
		return nil
	}
	verdict := keeper.Deliver(ctx, message("m1", 1), runs.Delivery{}, handler)
	fmt.Println(verdict.Action, verdict.Reason)

	// The provider's webhook, in any process, records the outcome.
	claim, err := keeper.ClaimByID("thread-1", claimID)
	if err != nil {
		panic(err)
	}
	fmt.Println(claim.Commit(ctx, nil, "po_7"))
	fmt.Println(keeper.Do(ctx, message("m1", 1), handler))
	// Output:
	// come_back in_flight
	// <nil>
	// paid out before
	// <nil>
}

func ExampleExplain() {
	keeper := newKeeper()
	defer keeper.Close()
	_ = keeper.Do(context.Background(), message("m1", 1), func(ctx context.Context) error {
		run := runs.FromContext(ctx)
		pay := runs.Effect{Intent: "pay", Key: runs.Key("invoice", 7)}
		err := run.Once(ctx, pay, func(context.Context, *runs.Call) error { return errors.New("timeout") })
		e := runs.Explain(err)
		fmt.Println(e.Message)
		fmt.Println("terminal:", e.Terminal, "retryable:", e.Retryable)
		return err
	})
	// Output:
	// Nobody knows whether this action happened. Do not repeat it; a person or a check will find out.
	// terminal: false retryable: false
}

package runs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func ExampleKeeper_Once() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()

	// A cron script has no job. Its effect is somebody else's write to every run.
	reminder := runs.Effect{Intent: "remind", Key: runs.Key("invoice", "i-9", "month", "2026-03")}
	for range 2 {
		err := keeper.Once(context.Background(), "thread-7", reminder, func(ctx context.Context, call *runs.Call) error {
			fmt.Println("reminded")
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// reminded
}

// An error that does not say otherwise leaves the outcome unknown, and it stays unknown until
// somebody knows.
func ExampleOutcomeError() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}

	handler := func(ctx context.Context) error {
		_, err := cardRefund.Once(ctx, runs.ID("o-1"), func(ctx context.Context, call *runs.Call) (cardReceipt, error) {
			return cardReceipt{}, context.DeadlineExceeded // no answer: it may have happened
		})
		if outcome, ok := errors.AsType[*runs.OutcomeError](err); ok {
			fmt.Println("outcome:", outcome.Outcome)
		}
		return err
	}
	for range 2 {
		v := keeper.Deliver(context.Background(), job, runs.Delivery{}, handler)
		fmt.Println(v.Action, v.Reason)
	}
	// Output:
	// outcome: ambiguous
	// come_back unresolved
	// come_back ambiguous
}

func ExampleClaim_Fail() {
	keeper, _ := runs.New(memledger.New(), nil)
	defer keeper.Close()
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}

	_ = keeper.Do(context.Background(), job, func(ctx context.Context) error {
		claim, err := cardRefund.Claim(ctx, runs.ID("o-1"), time.Hour)
		if err != nil {
			return err
		}
		// The bank says that it did nothing. Any other error would leave the outcome unknown.
		if err := claim.Fail(ctx, runs.NotApplied(errors.New("account closed"))); err != nil {
			return err
		}
		record, err := runs.FromContext(ctx).Check(ctx, runs.Effect{Intent: "refund", Key: runs.ID("o-1")})
		fmt.Println(record.State, record.Call.Error)
		return err
	})
	// Output:
	// failed account closed
}

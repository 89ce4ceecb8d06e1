package guides

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func newKeeper() *runs.Keeper {
	keeper, err := runs.New(memledger.New(), nil)
	if err != nil {
		panic(err)
	}
	return keeper
}

// line is one line of an order that may be refunded.
type line struct {
	Order  string
	Number int
	Cents  int
}

var refundLine = runs.Intent[string]{
	Name:     "refund",
	Distinct: true, // another order or line is another deal
}

func refund(ctx context.Context, l line, bank func(key string) (string, error)) (string, error) {
	return refundLine.Once(ctx, runs.Key("order", l.Order, "line", l.Number), func(_ context.Context, call *runs.Call) (string, error) {
		return bank(call.IdempotencyKey)
	}, runs.With{Params: map[string]any{"cents": l.Cents}})
}

func Example_keys() {
	keeper := newKeeper()
	defer keeper.Close()
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	err := keeper.Do(context.Background(), job, func(ctx context.Context) error {
		for _, l := range []line{{"A-1", 1, 392}, {"A-1", 2, 392}, {"A-1", 1, 392}, {"A-1", 1, 400}} {
			receipt, err := refund(ctx, l, func(string) (string, error) {
				fmt.Println("the bank refunds line", l.Number)
				return fmt.Sprint("re_", l.Number), nil
			})
			fmt.Println(l.Number, l.Cents, receipt, err)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// the bank refunds line 1
	// 1 392 re_1 <nil>
	// the bank refunds line 2
	// 2 392 re_2 <nil>
	// 1 392 re_1 <nil>
	// 1 400  fencedrun: refund refused: params_changed (1 in the way)
	// <nil>
}

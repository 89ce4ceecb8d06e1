package guides

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/runs"
)

var refundOrder = runs.Intent[string]{Name: "refund", Distinct: true}

// refundOnOrder makes the refund an effect of the order, whichever thread asks for it.
func refundOnOrder(ctx context.Context, keeper *runs.Keeper, order string, bank func(key string) (string, error)) (string, error) {
	return refundOrder.OnceOn(ctx, keeper, "order:"+order, runs.Key("order", order), func(_ context.Context, call *runs.Call) (string, error) {
		return bank(call.IdempotencyKey)
	})
}

func Example_severalConversations() {
	keeper := newKeeper()
	defer keeper.Close()
	for _, thread := range []string{"thread-7", "mail-3"} {
		job := runs.Job{Queue: "support", ID: "job-" + thread, Conversation: thread, Inbound: []string{"m-" + thread}, Reads: runs.AfterBegin}
		err := keeper.Do(context.Background(), job, func(ctx context.Context) error {
			receipt, err := refundOnOrder(ctx, keeper, "A-1", func(string) (string, error) {
				fmt.Println("the bank refunds A-1")
				return "re_1", nil
			})
			if err != nil {
				return err
			}
			reply := runs.Effect{Intent: "reply", Key: runs.ID(job.Inbound[0])}
			return runs.FromContext(ctx).Once(ctx, reply, func(context.Context, *runs.Call) error {
				fmt.Println(thread, "is told of", receipt)
				return nil
			})
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// the bank refunds A-1
	// thread-7 is told of re_1
	// mail-3 is told of re_1
}

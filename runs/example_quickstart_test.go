package runs_test

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func Example_quickStart() {
	keeper, err := runs.New(memledger.New(), nil) // sqliteledger.Open(ctx, "ledger.sqlite3", nil) keeps it
	if err != nil {
		panic(err)
	}
	defer keeper.Close()

	handler := func(ctx context.Context) error {
		reply := runs.Effect{Intent: "reply", Key: runs.ID("message-1")}
		return runs.FromContext(ctx).Once(ctx, reply, func(ctx context.Context, call *runs.Call) error {
			fmt.Println("sent: your refund is on its way")
			return nil
		})
	}
	job := runs.Job{
		Queue: "support", ID: "job-17", Conversation: "thread-4711",
		Inbound: []string{"message-1"}, Reads: runs.AfterBegin,
	}
	fmt.Println("first delivery:", keeper.Do(context.Background(), job, handler))
	fmt.Println("redelivered:", keeper.Do(context.Background(), job, handler))

	job.ID = "job-18" // the webhook came twice: the same message is another job
	fmt.Println("another job for the same message:", keeper.Do(context.Background(), job, handler))
	// Output:
	// sent: your refund is on its way
	// first delivery: <nil>
	// redelivered: <nil>
	// another job for the same message: <nil>
}

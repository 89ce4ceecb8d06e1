package stripe_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/stripe"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// Stripe makes the refund, and its answer is lost. A sweep finds the refund, and the job goes on as if it had heard the answer.
func Example() {
	network := &lossy.Network{}
	refunds := &stripe.Refunds{Client: network.Client(), Key: "sk_test_1"}
	k := runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{refunds.Intent()}})
	server := &fake{now: k.Now, saved: map[string]saved{}}
	network.Server = server

	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	handler := func(ctx context.Context) error {
		refund, err := refunds.Once(ctx, runs.Key("order", "A-1", "line", 2), stripe.Deal{PaymentIntent: "pi_1", Amount: 990})
		if err == nil {
			fmt.Println("refunded:", refund.ID, refund.Amount, refund.Currency, refund.Status)
		}
		return err
	}

	network.Next = []lossy.Loss{lossy.Answer}
	d := k.Deliver(job, handler)
	fmt.Println(d.Action, d.Reason)

	k.Advance(5 * time.Minute) // the claim's deadline and the quiet period
	swept, err := k.Sweep(context.Background())
	fmt.Println("asked:", swept.Asked, "applied:", swept.Applied, err)

	d = k.Redeliver(job, handler)
	fmt.Println(d.Action, "- requests:", server.posts, "refunds:", len(server.made))
	// Output:
	// retry unresolved
	// asked: 1 applied: 1 <nil>
	// refunded: re_1 990 eur succeeded
	// done - requests: 1 refunds: 1
}

// t is the *testing.T that a test has.
var t noTest

type noTest struct{}

func (noTest) Helper()                           {}
func (noTest) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (noTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (noTest) FailNow()                          { panic("failed") }
func (noTest) Cleanup(func())                    {}

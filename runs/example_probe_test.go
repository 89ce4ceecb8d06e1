package runs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// The shop makes the refund, and its answer is lost. Whoever needs to know later asks the shop.
func ExampleIntent_probe() {
	shop := map[string]string{} // what it has refunded, by idempotency key
	refund := runs.Intent[string]{
		Name: "refund",
		Probe: func(_ context.Context, q runs.Question) (runs.Found[string], error) {
			if id, ok := shop[q.IdempotencyKey]; ok {
				return runs.Applied(id, id), nil
			}
			return runs.NotFound[string](), nil
		},
		ReadYourWrites: true, // the shop shows a refund as soon as it has made it
	}
	t := new(exampleT) // the *testing.T that a test has
	defer t.end()
	k := runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{refund}})

	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	handler := func(ctx context.Context) error {
		id, err := refund.Once(ctx, runs.Key("order", "A-1"), func(_ context.Context, call *runs.Call) (string, error) {
			fmt.Println("refunding, call", call.Number)
			shop[call.IdempotencyKey] = "re_1"
			return "", errors.New("connection reset by peer")
		})
		if err == nil {
			fmt.Println("refunded:", id)
		}
		return err
	}

	d := k.Deliver(job, handler)
	fmt.Println(d.Action, d.Reason)

	k.Advance(time.Minute) // the claim's deadline and the quiet period are not over
	d = k.Redeliver(job, handler)
	fmt.Println(d.Action, d.Reason)

	k.Advance(5 * time.Minute)
	fmt.Println(k.Redeliver(job, handler).Action)
	// Output:
	// refunding, call 1
	// come_back unresolved
	// come_back ambiguous
	// refunded: re_1
	// done
}

// exampleT is what runstest needs of a test.
type exampleT struct{ cleanups []func() }

func (*exampleT) Helper()                           {}
func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*exampleT) FailNow()                          { panic("failed") }
func (t *exampleT) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }

func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

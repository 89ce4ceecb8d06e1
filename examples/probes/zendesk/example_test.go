package zendesk_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/zendesk"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// Zendesk opens the ticket, and its answer is lost. When the job comes back, three hours later, Zendesk has forgotten the
// idempotency key; the claim itself asks for the external id, and finds the ticket.
func Example() {
	network := &lossy.Network{}
	desk := &zendesk.Desk{Client: network.Client(), Subdomain: "shop", Email: "bot@example.com", Token: "t1"}
	k := runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{desk.Intent()}})
	server := &fake{now: k.Now, saved: map[string]saved{}}
	network.Server = server

	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	handler := func(ctx context.Context) error {
		opened, err := desk.Once(ctx, runs.Key("order", "A-1", "about", "damaged"), zendesk.Ticket{
			Subject: "Order A-1 arrived damaged", Body: "The customer has sent a photo.",
		})
		if err == nil {
			fmt.Println("opened:", opened.ID)
		}
		return err
	}

	network.Next = []lossy.Loss{lossy.Answer}
	d := k.Deliver(job, handler)
	fmt.Println(d.Action, d.Reason)

	k.Advance(3 * time.Hour)
	d = k.Redeliver(job, handler)
	fmt.Println(d.Action, "- requests:", server.posts, "tickets:", len(server.tickets))
	// Output:
	// retry unresolved
	// opened: 101
	// done - requests: 1 tickets: 1
}

// t is the *testing.T that a test has.
var t noTest

type noTest struct{}

func (noTest) Helper()                           {}
func (noTest) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (noTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (noTest) FailNow()                          { panic("failed") }
func (noTest) Cleanup(func())                    {}

package mailgun_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/mailgun"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// Mailgun sends the answer to m1, and the worker does not hear of it. The job comes back when Mailgun's events can be relied
// on, finds the message among them, and ends.
func Example() {
	network := &lossy.Network{}
	mail := &mailgun.Mail{Client: network.Client(), Key: "key-1", Domain: "mg.example.com"}
	k := runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{mail.Intent()}})
	server := &fake{now: k.Now, lag: 20 * time.Minute}
	network.Server = server

	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"}, Reads: runs.AfterBegin}
	handler := func(ctx context.Context) error {
		_, err := mail.Once(ctx, runs.ID("m1"), mailgun.Message{
			From: "support@example.com", To: "kim@example.org", Subject: "Re: my order", Text: "It is on its way.",
		}, []string{"m1"})
		return err
	}

	network.Next = []lossy.Loss{lossy.Answer}
	d := k.Deliver(job, handler)
	fmt.Println(d.Action, d.Reason, "after", d.After)

	k.Advance(10 * time.Minute)
	swept, err := k.Sweep(context.Background())
	fmt.Println("asked:", swept.Asked, "not yet:", swept.NotYet, err)

	k.Advance(d.After - 10*time.Minute)
	d = k.Redeliver(job, handler)
	fmt.Println(d.Action, "- asked:", server.asked, "sent:", server.sent, "open:", k.OpenMessages("thread-7"))
	// Output:
	// come_back unresolved after 32m0s
	// asked: 0 not yet: 1 <nil>
	// done - asked: 1 sent: 1 open: []
}

// t is the *testing.T that a test has.
var t noTest

type noTest struct{}

func (noTest) Helper()                           {}
func (noTest) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (noTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (noTest) FailNow()                          { panic("failed") }
func (noTest) Cleanup(func())                    {}

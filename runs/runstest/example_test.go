package runstest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// SupportBot is the handler to be tested: it answers every message that is open.
type SupportBot struct {
	Send func(ctx context.Context, call *runs.Call) error
}

func (bot *SupportBot) Handle(ctx context.Context) error {
	return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
		open := view.OpenIDs()
		if len(open) == 0 {
			return nil
		}
		reply := runs.Effect{Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open}
		return runs.FromContext(ctx).Once(ctx, reply, bot.Send)
	})
}

func message(n int64) runs.Job {
	id := fmt.Sprintf("m%d", n)
	return runs.Job{
		Queue: "support", ID: "job-" + id, Conversation: "thread-7", Inbound: []string{id},
		Order: runs.Order{Source: "message", Number: n}, Reads: runs.AfterBegin,
	}
}

// The worker dies after the chat provider has sent the answer and before anybody could write
// that down.
func Example() {
	k := runstest.NewKeeper(t, nil)
	chat := k.NewProvider()
	bot := &SupportBot{Send: chat.Do}

	chat.Next(runstest.ActAndCrash)
	d := k.Deliver(message(1), bot.Handle)
	fmt.Println("crashed:", d.Crashed, "sent:", chat.Acted())

	k.Advance(time.Minute) // the queue notices, and delivers again
	d = k.Redeliver(message(1), bot.Handle)
	fmt.Println(d.Action, d.Reason, "sent:", chat.Acted())

	k.Advance(5 * time.Minute) // nobody has settled the claim: the outcome is unknown
	d = k.Redeliver(message(1), bot.Handle)
	fmt.Println(d.Action, d.Reason, "sent:", chat.Acted())

	k.ResolveUnknown("thread-7", true) // a person has looked into the chat
	d = k.Redeliver(message(1), bot.Handle)
	fmt.Println(d.Action, "sent:", chat.Acted(), "open:", k.OpenMessages("thread-7"))
	// Output:
	// crashed: true sent: 1
	// come_back in_flight sent: 1
	// park unresolved sent: 1
	// done sent: 1 open: []
}

// The customer writes again while the bot thinks about the first message.
func ExampleKeeper_When() {
	k := runstest.NewKeeper(t, nil)
	chat := k.NewProvider()
	bot := &SupportBot{Send: chat.Do}

	var second runstest.Delivered
	k.When("caught_up", func(runs.Event) { second = k.Deliver(message(2), bot.Handle) })
	first := k.Deliver(message(1), bot.Handle)

	fmt.Println("second:", second.Action)
	fmt.Println("first: ", first.Action, first.Reason)
	fmt.Println("sent:", chat.Acted(), "open:", k.OpenMessages("thread-7"))
	// Output:
	// second: done
	// first:  drop superseded
	// sent: 1 open: []
}

// The queue gives the job away while its handler still works on it.
func ExampleKeeper_Redeliver() {
	k := runstest.NewKeeper(t, nil)
	chat := k.NewProvider()
	bot := &SupportBot{Send: chat.Do}

	var second runstest.Delivered
	chat.During(func(context.Context, *runs.Call) { second = k.Redeliver(message(1), bot.Handle) })
	first := k.Deliver(message(1), bot.Handle)

	fmt.Println("second:", second.Action, second.Reason)
	fmt.Println("first: ", first.Action)
	fmt.Println("third: ", k.Redeliver(message(1), bot.Handle).Action, "sent:", chat.Acted())
	// Output:
	// second: come_back in_flight
	// first:  stale
	// third:  done sent: 1
}

// t is the *testing.T that a test has.
var t = noTest{}

type noTest struct{}

func (noTest) Helper()                           {}
func (noTest) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (noTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (noTest) FailNow()                          { panic("failed") }
func (noTest) Cleanup(func())                    {}

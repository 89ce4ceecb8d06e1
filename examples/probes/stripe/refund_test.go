package stripe_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/stripe"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// desk is a job that refunds one order line, and what it needs.
type desk struct {
	*runstest.Keeper
	t       *testing.T
	server  *fake
	network *lossy.Network
	refunds *stripe.Refunds
	amount  int64
	got     stripe.Refund
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, network: &lossy.Network{}, amount: 990}
	d.refunds = &stripe.Refunds{Client: d.network.Client(), Key: "sk_test_1"}
	d.Keeper = runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{d.refunds.Intent()}})
	d.server = &fake{now: d.Now, saved: map[string]saved{}}
	d.network.Server = d.server
	return d
}

// deliver delivers the job, for the first time or again.
func (d *desk) deliver() runstest.Delivered {
	d.got = stripe.Refund{}
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	return d.Deliver(job, func(ctx context.Context) (err error) {
		deal := stripe.Deal{PaymentIntent: "pi_1", Amount: d.amount}
		d.got, err = d.refunds.Once(ctx, runs.Key("order", "A-1", "line", 2), deal)
		return err
	})
}

// lose delivers the job for the first time, which ends in doubt.
func (d *desk) lose(what lossy.Loss) {
	d.t.Helper()
	d.network.Next = []lossy.Loss{what}
	if v := d.deliver(); v.Action != runs.ActionRetry || len(d.Unknown("thread-7")) != 1 {
		d.t.Fatalf("no doubt: %+v", v.Verdict)
	}
}

func (d *desk) sweep(want runs.Swept) {
	d.t.Helper()
	if got, err := d.Sweep(d.t.Context()); got != want || err != nil {
		d.t.Fatalf("swept %+v, %v; want %+v", got, err, want)
	}
}

func (d *desk) want(v runstest.Delivered, action runs.Action, posts, made int) {
	d.t.Helper()
	if v.Action != action || d.server.posts != posts || len(d.server.made) != made {
		d.t.Errorf("got %s after %d requests and %d refunds, want %s, %d, %d (%s %v)",
			v.Action, d.server.posts, len(d.server.made), action, posts, made, v.Reason, v.Err)
	}
}

// reference is Stripe's name for the refund, in the ledger.
func (d *desk) reference() string {
	d.t.Helper()
	done := d.Done("thread-7")
	if len(done) != 1 {
		d.t.Fatalf("%d effects are done", len(done))
	}
	return done[0].Deciding().Reference
}

func TestARefundThatNeverArrivedIsMadeOnceMore(t *testing.T) {
	d := newDesk(t)
	d.lose(lossy.Request)
	d.sweep(runs.Swept{NotYet: 1}) // it may still be on its way
	d.Advance(5 * time.Minute)
	d.sweep(runs.Swept{Asked: 1, NotApplied: 1})
	d.want(d.deliver(), runs.ActionDone, 1, 1)
	d.want(d.deliver(), runs.ActionDone, 1, 1)
	if d.got.ID != "" {
		t.Errorf("a finished job was entered: %+v", d.got)
	}
}

func TestWhileStripeKnowsTheKeyNothingHasToBeAsked(t *testing.T) {
	for _, lost := range []lossy.Loss{lossy.Request, lossy.Answer} {
		d := newDesk(t)
		d.lose(lost)
		d.Advance(time.Hour)
		posts := map[lossy.Loss]int{lossy.Request: 1, lossy.Answer: 2}[lost]
		d.want(d.deliver(), runs.ActionDone, posts, 1)
		if d.got.ID != "re_1" || d.server.lists != 0 || d.reference() != "re_1" {
			t.Errorf("got %+v, reference %q, after %d lists", d.got, d.reference(), d.server.lists)
		}
	}
}

func TestWhenStripeMayHaveForgottenTheKeyTheClaimerAsks(t *testing.T) {
	for _, lost := range []lossy.Loss{lossy.Request, lossy.Answer} {
		d := newDesk(t)
		d.lose(lost)
		d.Advance(25 * time.Hour) // calling again would now make a second refund
		d.want(d.deliver(), runs.ActionDone, 1, 1)
		if d.got.ID != "re_1" || d.server.lists != 1 || d.reference() != "re_1" {
			t.Errorf("got %+v, reference %q, after %d lists", d.got, d.reference(), d.server.lists)
		}
	}
}

func TestAnErrorThatStripeSavedForTheKeyIsNoAnswer(t *testing.T) {
	d := newDesk(t)
	d.server.breaksOn = 1
	for posts := 1; posts <= 2; posts++ {
		d.want(d.deliver(), runs.ActionRetry, posts, 1)
		d.Advance(5 * time.Minute)
	}
	d.sweep(runs.Swept{Asked: 1, Applied: 1})
	d.want(d.deliver(), runs.ActionDone, 2, 1)
	if d.got.ID != "re_1" {
		t.Errorf("got %+v", d.got)
	}
}

func TestTheProbeReadsEveryPage(t *testing.T) {
	d := newDesk(t)
	d.lose(lossy.Answer)
	for range 250 { // somebody refunds the same payment penny by penny
		d.server.add("pi_1", 1, nil)
	}
	d.Advance(5 * time.Minute)
	d.sweep(runs.Swept{Asked: 1, Applied: 1})
	if d.server.lists != 3 {
		t.Errorf("%d pages", d.server.lists)
	}
}

func TestAnotherRefundOfThePaymentIsNotTheRefund(t *testing.T) {
	d := newDesk(t)
	d.lose(lossy.Request)
	d.server.add("pi_1", 990, map[string]string{"fencedrun": "fr1_of_another_effect"})
	d.server.add("pi_1", 990, nil) // made by hand
	d.Advance(5 * time.Minute)
	d.sweep(runs.Swept{Asked: 1, NotApplied: 1})
}

func TestWhatIsNoListIsNoAnswer(t *testing.T) {
	for _, answer := range []string{`{}`, `null`, `{"object": "list", "has_more": true, "data": []}`, `<html>`} {
		d := newDesk(t)
		d.lose(lossy.Answer)
		d.server.list = answer
		d.Advance(5 * time.Minute)
		d.sweep(runs.Swept{Asked: 1, Unknown: 1})
	}
	d := newDesk(t)
	d.lose(lossy.Answer)
	d.refunds.Key = "sk_test_of_another_account"
	d.Advance(5 * time.Minute)
	d.sweep(runs.Swept{Asked: 1, Unknown: 1})
}

func TestWhatStripeRefusesHasNotHappened(t *testing.T) {
	d := newDesk(t)
	d.amount = -1
	d.want(d.deliver(), runs.ActionReturn, 1, 0)
	if len(d.Unknown("thread-7")) != 0 {
		t.Error("a refused refund is in doubt")
	}
}

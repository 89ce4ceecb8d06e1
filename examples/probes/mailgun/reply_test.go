package mailgun_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/mailgun"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// desk is a job that answers one message, and what it needs.
type desk struct {
	*runstest.Keeper
	t       *testing.T
	server  *fake
	network *lossy.Network
	mail    *mailgun.Mail
	to      string
	got     mailgun.Sent
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, network: &lossy.Network{}, to: "kim@example.org"}
	d.mail = &mailgun.Mail{Client: d.network.Client(), Key: "key-1", Domain: "mg.example.com"}
	d.Keeper = runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{d.mail.Intent()}})
	d.server = &fake{now: d.Now}
	d.network.Server = d.server
	return d
}

// deliver delivers the job, for the first time or again.
func (d *desk) deliver() runstest.Delivered {
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"}, Reads: runs.AfterBegin}
	return d.Deliver(job, func(ctx context.Context) (err error) {
		message := mailgun.Message{From: "support@example.com", To: d.to, Subject: "Re: my order", Text: "It is on its way."}
		d.got, err = d.mail.Once(ctx, runs.ID("m1"), message, []string{"m1"})
		return err
	})
}

// lose delivers the job for the first time, which ends in doubt.
func (d *desk) lose(what lossy.Loss) {
	d.t.Helper()
	d.network.Next = []lossy.Loss{what}
	if v := d.deliver(); v.Action != runs.ActionComeBack || len(d.Unknown("thread-7")) != 1 {
		d.t.Fatalf("no doubt: %+v", v.Verdict)
	}
}

func (d *desk) sweep(want runs.Swept) {
	d.t.Helper()
	if got, err := d.Sweep(d.t.Context()); got != want || err != nil {
		d.t.Fatalf("swept %+v, %v; want %+v", got, err, want)
	}
}

func TestAMessageThatNeverArrivedStaysUnknownUntilAPersonDecides(t *testing.T) {
	d := newDesk(t)
	d.lose(lossy.Request)
	for range 24 {
		d.Advance(2 * time.Hour) // no pause between probes is longer than an hour
		d.sweep(runs.Swept{Asked: 1, Unknown: 1})
	}
	if v := d.deliver(); v.Action != runs.ActionPark || d.server.sent != 0 || len(d.Unknown("thread-7")) != 1 {
		t.Fatalf("%+v, %d sent", v.Verdict, d.server.sent)
	}
	if d.Told(runs.EventProbed) < 24 || d.Told(runs.EventResolved) != 0 {
		t.Errorf("told %d probes, %d decisions", d.Told(runs.EventProbed), d.Told(runs.EventResolved))
	}
	d.ResolveUnknown("thread-7", false) // somebody has asked the customer
	if v := d.deliver(); v.Action != runs.ActionDone || d.server.sent != 1 {
		t.Errorf("%+v, %d sent", v.Verdict, d.server.sent)
	}
}

func TestTheClaimerFindsTheMessageByItsID(t *testing.T) {
	d := newDesk(t)
	d.lose(lossy.Answer)
	d.Advance(35 * time.Minute)
	if v := d.deliver(); v.Action != runs.ActionDone || d.server.sent != 1 || d.server.asked != 1 {
		t.Fatalf("%+v, %d sent, asked %d times", v.Verdict, d.server.sent, d.server.asked)
	}
	if want := d.server.events[0].Message.Headers["message-id"]; d.got.MessageID != want {
		t.Errorf("got %q, sent as %q", d.got.MessageID, want)
	}
}

// The job has been stopped for a person by then, who only has to let it run again.
func TestAnEventThatComesVeryLateIsFoundByALaterSweep(t *testing.T) {
	d := newDesk(t)
	d.server.lag = 3 * time.Hour
	d.lose(lossy.Answer)
	d.Advance(35 * time.Minute)
	v := d.deliver()
	for v.Action == runs.ActionComeBack { // for the next question, three times
		d.Advance(v.After)
		v = d.deliver()
	}
	if v.Action != runs.ActionPark || d.server.asked != 4 {
		t.Fatalf("%+v, asked %d times", v.Verdict, d.server.asked)
	}
	d.Advance(4 * time.Hour)
	d.sweep(runs.Swept{Asked: 1, Applied: 1})
	if v := d.deliver(); v.Action != runs.ActionDone || d.server.sent != 1 {
		t.Errorf("%+v, %d sent", v.Verdict, d.server.sent)
	}
}

func TestARejectedMessageMayBeSentAgain(t *testing.T) {
	d := newDesk(t)
	d.server.rejects = true
	d.lose(lossy.Answer)
	d.Advance(35 * time.Minute)
	d.sweep(runs.Swept{Asked: 1, NotApplied: 1})
	d.server.rejects = false
	if v := d.deliver(); v.Action != runs.ActionDone || d.server.sent != 1 {
		t.Errorf("%+v, %d sent", v.Verdict, d.server.sent)
	}
}

func TestAnErrorIsNoAnswer(t *testing.T) {
	d := newDesk(t)
	d.lose(lossy.Answer)
	d.mail.Key = "a key without the right to read"
	d.Advance(35 * time.Minute)
	d.sweep(runs.Swept{Asked: 1, Unknown: 1})
}

func TestWhatMailgunRefusesHasNotHappened(t *testing.T) {
	d := newDesk(t)
	d.to = ""
	if v := d.deliver(); v.Action != runs.ActionReturn || len(d.Unknown("thread-7")) != 0 {
		t.Errorf("%+v", v.Verdict)
	}
}

package zendesk_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/zendesk"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// shop is a job that opens one ticket, and what it needs.
type shop struct {
	*runstest.Keeper
	t       *testing.T
	server  *fake
	network *lossy.Network
	desk    *zendesk.Desk
	body    string
	got     zendesk.Opened
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, network: &lossy.Network{}, body: "The customer has sent a photo."}
	s.desk = &zendesk.Desk{Client: s.network.Client(), Subdomain: "shop", Email: "bot@example.com", Token: "t1"}
	s.Keeper = runstest.NewKeeper(t, &runs.Config{Intents: []runs.Declared{s.desk.Intent()}})
	s.server = &fake{now: s.Now, saved: map[string]saved{}}
	s.network.Server = s.server
	return s
}

// deliver delivers the job, for the first time or again.
func (s *shop) deliver() runstest.Delivered {
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	return s.Deliver(job, func(ctx context.Context) (err error) {
		ticket := zendesk.Ticket{Subject: "Order A-1 arrived damaged", Body: s.body}
		s.got, err = s.desk.Once(ctx, runs.Key("order", "A-1", "about", "damaged"), ticket)
		return err
	})
}

// lose delivers the job for the first time, which ends in doubt.
func (s *shop) lose(what lossy.Loss) {
	s.t.Helper()
	s.network.Next = []lossy.Loss{what}
	if v := s.deliver(); v.Action != runs.ActionRetry || len(s.Unknown("thread-7")) != 1 {
		s.t.Fatalf("no doubt: %+v", v.Verdict)
	}
}

func (s *shop) sweep(want runs.Swept) {
	s.t.Helper()
	if got, err := s.Sweep(s.t.Context()); got != want || err != nil {
		s.t.Fatalf("swept %+v, %v; want %+v", got, err, want)
	}
}

func (s *shop) want(v runstest.Delivered, action runs.Action, posts, tickets int) {
	s.t.Helper()
	if v.Action != action || s.server.posts != posts || len(s.server.tickets) != tickets {
		s.t.Errorf("got %s after %d requests and %d tickets, want %s, %d, %d (%s %v)",
			v.Action, s.server.posts, len(s.server.tickets), action, posts, tickets, v.Reason, v.Err)
	}
}

// reference is Zendesk's name for the ticket, in the ledger.
func (s *shop) reference() string {
	s.t.Helper()
	done := s.Done("thread-7")
	if len(done) != 1 {
		s.t.Fatalf("%d effects are done", len(done))
	}
	return done[0].Deciding().Reference
}

func TestATicketThatNeverArrivedIsOpenedOnceMore(t *testing.T) {
	s := newShop(t)
	s.lose(lossy.Request)
	s.sweep(runs.Swept{NotYet: 1}) // it may still be on its way
	s.Advance(5 * time.Minute)
	s.sweep(runs.Swept{Asked: 1, NotApplied: 1})
	s.want(s.deliver(), runs.ActionDone, 1, 1)
}

func TestASweepFindsTheTicketThatNobodyComesBackFor(t *testing.T) {
	s := newShop(t)
	s.lose(lossy.Answer)
	s.Advance(5 * time.Minute)
	s.sweep(runs.Swept{Asked: 1, Applied: 1})
	if s.reference() != "101" {
		t.Errorf("the reference is %q", s.reference())
	}
	s.want(s.deliver(), runs.ActionDone, 1, 1)
	if s.got.ID != 101 {
		t.Errorf("got %+v", s.got)
	}
}

func TestWhileZendeskKnowsTheKeyNothingHasToBeAsked(t *testing.T) {
	for _, lost := range []lossy.Loss{lossy.Request, lossy.Answer} {
		s := newShop(t)
		s.lose(lost)
		s.Advance(time.Hour)
		s.want(s.deliver(), runs.ActionDone, map[lossy.Loss]int{lossy.Request: 1, lossy.Answer: 2}[lost], 1)
		if s.got.ID != 101 || s.server.lists != 0 || s.reference() != "101" {
			t.Errorf("got %+v, reference %q, after %d lists", s.got, s.reference(), s.server.lists)
		}
	}
}

// Two things have to fail before a ticket is opened twice: this is the first of them.
func TestAListThatLagsAfterAllMeetsTheKey(t *testing.T) {
	s := newShop(t)
	s.lose(lossy.Answer)
	s.server.list = `{"tickets": [], "count": 0, "next_page": null, "previous_page": null}`
	s.Advance(5 * time.Minute)
	s.sweep(runs.Swept{Asked: 1, NotApplied: 1}) // which is wrong
	s.want(s.deliver(), runs.ActionDone, 2, 1)
	if s.got.ID != 101 {
		t.Errorf("got %+v", s.got)
	}
}

func TestAListThatIsNotOfTheExternalIDIsNoAnswer(t *testing.T) {
	for _, answer := range []string{
		`{}`, `null`, `<html>`,
		`{"tickets": [{"id": 1, "external_id": null}, {"id": 2, "external_id": "x"}], "count": 2}`, // as if it had not been asked for one
	} {
		s := newShop(t)
		s.lose(lossy.Answer)
		s.server.list = answer
		s.Advance(5 * time.Minute)
		s.sweep(runs.Swept{Asked: 1, Unknown: 1})
	}
	s := newShop(t)
	s.lose(lossy.Answer)
	s.desk.Token = "an agent's who is gone"
	s.Advance(5 * time.Minute)
	s.sweep(runs.Swept{Asked: 1, Unknown: 1})
}

func TestWhatZendeskRefusesHasNotHappened(t *testing.T) {
	s := newShop(t)
	s.body = ""
	s.want(s.deliver(), runs.ActionReturn, 1, 0)
	if len(s.Unknown("thread-7")) != 0 {
		t.Error("a refused ticket is in doubt")
	}
}

package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// parksAnyway are the kinds of handlers whose jobs are stopped when nothing goes wrong, and why.
var parksAnyway = map[string]string{
	"payload":         "without a stamp nothing counts as seen (S4.8)",
	"payload-stamped": "a snapshot never gets fresher (S4.8)",
	"stubborn":        "it is refused twice for the same and does not look (S5)",
}

// leavesOpen are those that leave messages unanswered when nothing goes wrong.
var leavesOpen = map[string]string{
	"picky":   "it dismisses every other message",
	"swallow": "it hides that it was refused",
}

// A ledger that loses its acknowledgements, and does what it was asked, stops nobody: each
// call is recognised when it is asked for again.
func TestLostAcknowledgementsAloneParkNothing(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for i := range Handlers {
		name := Handlers[i].Name
		var sum Tally
		for seed := uint64(1); seed <= sample(14); seed++ {
			r := e.Seed(Config{Rate: 12, Budget: 5, Faults: Faults(LostAck), Handler: name}, seed, false)
			if r.Violation != "" {
				t.Errorf("%s, seed %d: %s: %s", name, seed, r.Kind, r.Violation)
			}
			sum.Add(r.Tally)
		}
		if sum.FalselyParked > 0 {
			t.Errorf("%s: %d effects are unknown, and all that was lost are acknowledgements", name, sum.FalselyParked)
		}
		if sum.Parked > 0 && parksAnyway[name] == "" {
			t.Errorf("%s: %d jobs are parked", name, sum.Parked)
		}
		if sum.Unanswered > 0 && parksAnyway[name] == "" && leavesOpen[name] == "" {
			t.Errorf("%s: %d messages are unanswered before anybody looked", name, sum.Unanswered)
		}
	}
	// That nothing is counted proves nothing, unless what does park is counted.
	var sum Tally
	for seed := uint64(1); seed <= 40; seed++ {
		sum.Add(e.Seed(Config{Rate: 12, Budget: 5, Faults: Faults(CrashAfter), Handler: "own", Provider: "naive"}, seed, false).Tally)
	}
	if sum.Parked == 0 || sum.Unanswered == 0 {
		t.Errorf("crashes park %d jobs and leave %d messages unanswered", sum.Parked, sum.Unanswered)
	}
	if n := e.Cov.Struck[LostAck][atStore]; n < int(sample(900)) {
		t.Errorf("only %d acknowledgements were lost", n)
	}
}

func TestNoMessageIsLostUnderAnyKindOfHandler(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for i := range Handlers {
		for seed := uint64(1); seed <= sample(12); seed++ {
			cfg := Config{Rate: 25, Handler: Handlers[i].Name, PCT: seed%3 == 0}
			if r := e.Seed(cfg, seed, false); r.Violation != "" {
				t.Errorf("%s, seed %d: %s: %s", Handlers[i].Name, seed, r.Kind, r.Violation)
			}
		}
	}
}

// What the oracle of idleness has to notice.
func TestWhatStaysBusyIsNoticed(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	cfg := Config{Handler: "all", Provider: "naive", Queue: "river", Order: "seq", Mode: "supersede", Tag: "none", Messages: 1, Budget: -1}
	ended := func() *World {
		w := e.newTestWorld(cfg, &replayed{})
		w.loop()
		w.quiet()
		if w.idle(); w.bad != "" {
			t.Fatalf("nothing is wrong yet: %s", w.bad)
		}
		return w
	}
	w := ended()
	defer w.close()
	w.jobs[0].state = running
	if w.idle(); w.badKind != "busy" {
		t.Error("a job that is at work for ever goes unnoticed")
	}
	w = ended()
	defer w.close()
	l := ledger.New(w.db.inner, ledger.Options{Rules: fence.Rules{Lease: fence.MillisOf(time.Hour), Retention: 1 << 40, MaxCalls: 3}, Seam: w.glassy().Seam})
	if _, _, _, err := l.Begin(context.Background(), "c", fence.BeginRequest{
		Identity: fence.Identity{Nonce: "n"}, Run: fence.RunKey{Queue: "sim", ID: "left"}, Mode: fence.Exclusive, Reads: fence.AfterBegin,
	}); err != nil {
		t.Fatal(err)
	}
	w.db.version++
	if w.idle(); w.badKind != "busy" {
		t.Error("a lease that is never given up goes unnoticed")
	}
}

// What the oracle of reports has to notice: nobody told this library what the oracle was told.
func TestAnAnswerAfterAReportIsNoticed(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	cfg := Config{Handler: "all", Provider: "naive", Queue: "river", Order: "seq", Mode: "supersede", Tag: "none", Messages: 1, Budget: -1}
	for toldAt, want := range map[int]string{1: "answered after a report", 5000: ""} {
		w := e.newTestWorld(cfg, &replayed{})
		w.human.told, w.human.toldAt = 1, toldAt
		w.loop()
		if w.badKind != want || w.prov.agent[0] != 1 {
			t.Errorf("told at step %d, answered %d times: %q, and not %q", toldAt, w.prov.agent[0], w.badKind, want)
		}
		w.close()
	}
}

// What was confirmed to a webhook outlasts a crash of the database that loses other writes.
func TestAConfirmedSettleThatIsLostIsNoticed(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	cfg := Config{Handler: "all", Provider: "naive", Queue: "river", Order: "seq", Mode: "supersede", Tag: "none", Messages: 1, Budget: -1}
	for idem, want := range map[string]string{"": "", "never": "final"} {
		w := e.newTestWorld(cfg, &replayed{})
		w.loop()
		w.quiet()
		w.tally.Lost = 1
		w.confirmed = slices.Clone(w.tally.executed)
		if idem != "" {
			w.confirmed = append(w.confirmed, &send{intent: "reply", name: "m1", idem: idem})
		}
		if w.truthful(); w.badKind != want || len(w.tally.executed) == 0 {
			t.Errorf("confirmed %v: %q, and not %q", w.confirmed, w.badKind, want)
		}
		w.close()
	}
}

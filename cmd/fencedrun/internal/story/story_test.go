package story

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// go test ./cmd/fencedrun/internal/story -rewrite writes what is; read each as a stranger who was
// woken up.
var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s is not what it was (%v); -rewrite, and read the diff:\n%s", path, err, got)
	}
}

func TestStoriesAreTold(t *testing.T) {
	for _, c := range stories {
		t.Run(c.name, func(t *testing.T) {
			b := newBot(t)
			c.play(b)
			got := text(t, b.told(Options{}))
			golden(t, strings.ReplaceAll(c.name, " ", "-")+".txt", got)
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width && !strings.Contains(line, "fencedrun ") {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
		})
	}
}

func TestAStoryIsJSON(t *testing.T) {
	b := newBot(t)
	for _, c := range stories {
		if c.name == "killed" {
			c.play(b)
		}
	}
	got, err := json.Marshal(b.told(Options{}), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "killed.json", string(got)+"\n")
	empty, err := json.Marshal(Tell(runs.History{}, Options{Conversation: "x"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"entries":[]`, `"doubts":[]`, `"open":[]`, `"stopped":[]`, `"working":[]`, `"known":false`} {
		if !strings.Contains(string(empty), want) {
			t.Errorf("%s is not in %s", want, empty)
		}
	}
}

func TestTimesAreOfTheZoneAsked(t *testing.T) {
	b := newBot(t)
	b.Deliver(message(1), b.answer)
	zone := time.FixedZone("CET", 3600)
	s := b.told(Options{Location: zone, Now: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)})
	got := text(t, s)
	for _, want := range []string{"as of 2030-01-02 01:00:00 CET", "Tuesday, 2030-01-01, CET", "10:00:00  customer"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if at := s.Entries[0].At; at.Location() != zone {
		t.Errorf("the first entry is at %v", at)
	}
}

func TestColorsAreTheOnlyDifferenceThatColorsMake(t *testing.T) {
	for _, c := range stories {
		b := newBot(t)
		c.play(b)
		s := b.told(Options{})
		var colored strings.Builder
		if err := s.WriteText(&colored, true); err != nil {
			t.Fatal(err)
		}
		bare := strings.NewReplacer(bold, "", red, "", faint, "", plain, "").Replace(colored.String())
		if bare != text(t, s) {
			t.Errorf("%s: with its colors taken away it is\n%s", c.name, bare)
		}
		if !strings.Contains(colored.String(), bold) {
			t.Errorf("%s: nothing is colored", c.name)
		}
	}
}

// A customer's, a model's or a provider's words must not move the cursor, or run something when a
// command is pasted.
func TestWordsOfOthersAreHarmless(t *testing.T) {
	b := newBot(t)
	const nasty = "x\x1b[2J\u202e'; rm -rf / #\x07"
	job := message(1)
	job.Conversation, job.Inbound = nasty, []string{nasty}
	b.Deliver(job, func(ctx context.Context) error {
		return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("k" + nasty), Summary: nasty}, func(context.Context, *runs.Call) error {
			return errors.New(nasty)
		})
	})
	h, err := b.History(t.Context(), nasty)
	if err != nil {
		t.Fatal(err)
	}
	s := Tell(h, Options{Command: "fencedrun --ledger redis://h"})
	got := text(t, s)
	if strings.ContainsAny(got, "\x1b\x07\u202e") {
		t.Errorf("it would act on a terminal:\n%q", got)
	}
	if len(s.Doubts) != 1 || !strings.Contains(got, "fencedrun --ledger redis://h resolve "+s.Doubts[0].Effect[:12]+" happened") {
		t.Errorf("no command to resolve it:\n%s", got)
	}
	h.Head.Conversation = "it's; ls"
	h.Effects = nil
	h.Head.Unresolved, h.Runs = nil, nil
	if got := text(t, Tell(h, Options{Now: h.Now.Time().Add(time.Hour)})); !strings.Contains(got, `dismiss 'it'\''s; ls' $'`) {
		t.Errorf("the command is not quoted:\n%s", got)
	}
}

func TestALeaseTellsWhoIsAlive(t *testing.T) {
	b := newBot(t)
	b.Deliver(message(1), func(ctx context.Context) error { runstest.Crash(ctx); return nil })
	h, err := b.History(t.Context(), conversation)
	if err != nil {
		t.Fatal(err)
	}
	seat := h.Head.Seats[0]
	lease := fence.LeaseID{Run: fence.RunRow(seat.Run), Nonce: seat.Delivery.Nonce}
	for want, o := range map[string]Options{
		"Has been at work since 09:00:00. Nothing": {},
		"Has been at work since 09:00:00.":         {Leases: map[fence.LeaseID]fence.Millis{lease: h.Now + 1000}},
		"gives no sign of life":                    {Leases: map[fence.LeaseID]fence.Millis{lease: h.Now - 1}},
		"gives no sign of life any more: ":         {Leases: map[fence.LeaseID]fence.Millis{}},
	} {
		if got := Tell(h, o).Working[0].Text; !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func TestProbesAreTold(t *testing.T) {
	now := fence.MillisOf(time.Hour)
	at := func(m int) fence.Millis { return fence.MillisOf(time.Duration(m) * time.Minute) }
	for want, p := range map[string]fence.Probing{
		"": {},
		"The provider was asked 3 times, last at 00:50:00, and gave no clear answer: “503”. It may be asked again from 01:10:00 on, by a sweep or by the job.": {
			Tries: 3, Last: at(50), Next: at(70), Note: "503",
		},
		"The provider was asked once, last at 00:50:00. It may be asked again now, by a sweep or by the job.": {
			Tries: 1, Last: at(50), Next: at(55),
		},
		"The provider was asked 2 times; web-3 is asking right now.": {Tries: 2, Nonce: "n", By: "web-3", Until: at(61)},
	} {
		e := &fence.Effect{ID: "e", Intent: "refund", Key: `"o"`, Probing: p, Calls: []fence.Call{{Number: 1, State: fence.Ambiguous, At: 1, Deadline: 2}}}
		got := Tell(ledger.History{Now: now, Effects: []*fence.Effect{e}}, Options{}).Doubts[0].Text
		if !strings.HasSuffix(got, strings.TrimSpace("before somebody does. "+want)) {
			t.Errorf("%q does not end with %q", got, want)
		}
	}
}

// What may be called again needs nobody.
func TestWhatMayBeCalledAgainIsSaid(t *testing.T) {
	call := fence.Call{Number: 1, State: fence.Ambiguous, At: 1, Deadline: 2, Again: fence.Again{Until: fence.MillisOf(2 * time.Hour)}}
	told := func(c fence.Call, now fence.Millis) string {
		e := &fence.Effect{ID: "e", Intent: "refund", Key: `"o"`, Calls: []fence.Call{c}}
		return Tell(ledger.History{Now: now, Effects: []*fence.Effect{e}}, Options{}).Doubts[0].Text
	}
	if got := told(call, fence.MillisOf(time.Hour)); !strings.Contains(got, "safe to call again until 02:00:00") {
		t.Error(got)
	}
	if got := told(call, fence.MillisOf(3*time.Hour)); strings.Contains(got, "call again") {
		t.Error(got)
	}
	call.Again = fence.Again{Repeatable: true}
	if got := told(call, fence.MillisOf(3*time.Hour)); !strings.Contains(got, "safe to call again:") {
		t.Error(got)
	}
}

func TestALongStoryCanBeCut(t *testing.T) {
	b := newBot(t)
	b.Deliver(message(1), b.answer)
	s := b.told(Options{Last: 2})
	if len(s.Entries) != 2 || s.LeftOut != 3 || s.Entries[1].Kind != KindEnded {
		t.Errorf("%d left out of %+v", s.LeftOut, s.Entries)
	}
	if got := text(t, s); !strings.Contains(got, "(3 lines before these are left out)") {
		t.Error(got)
	}
}

// What became of a call is told before the next call is claimed, also in the same millisecond.
func TestCallsOfOneMillisecondAreToldOneAfterTheOther(t *testing.T) {
	effect := func(id string, number int64) *fence.Effect {
		return &fence.Effect{ID: id, Intent: "tag", Key: `"` + id + `"`, Calls: []fence.Call{
			{Number: 1, Fence: number, State: fence.Committed, At: 1000, Settled: 1000, Deadline: 5000, Seq: number},
		}}
	}
	told := Tell(ledger.History{Now: 2000, Effects: []*fence.Effect{effect("b", 2), effect("a", 1)}}, Options{Conversation: "c"})
	var got []string
	for _, e := range told.Entries {
		got = append(got, string(e.Kind)+" "+e.Effect)
	}
	if want := []string{"claimed a", "happened a", "claimed b", "happened b"}; !slices.Equal(got, want) {
		t.Errorf("told as %q", got)
	}
}

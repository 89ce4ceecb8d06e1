package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
)

func TestTheTranscriptMarksWhatHappenedAgain(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	r := &result{
		began: began,
		entries: []provider.Entry{
			{At: at(0), Did: provider.Received, Conversation: "dull", Message: "dull/m01", Text: "Hi"},
			{At: at(10), Did: provider.Received, Conversation: "c", Message: "c/m01", Text: "Hi\nthere"},
			{At: at(20), Did: provider.Acted, Conversation: "c", Kind: "note", Object: "turn 1"},
			{At: at(300), Did: provider.Replied, Conversation: "c", Answers: []string{"c/m01"}, Text: "Hello"},
			{At: at(400), Did: provider.Acted, Conversation: "c", Kind: "note", Object: "turn 1"},
			{At: at(500), Did: provider.Replied, Conversation: "c", Answers: []string{"c/m01", "c/m02"}, Text: "Hello"},
		},
		notes: []proc.Event{{At: at(350), Conversation: "c", Message: "c/m01", Text: "worker 2 is killed at work on it"}},
	}
	var out bytes.Buffer
	writeTranscript(&out, armWithout, r)
	want := `
Conversation c, without fencedrun:

  0.01  customer  m01: Hi there
  0.02  action    note: turn 1
  0.30  bot       Hello  [answers m01]
  0.35              m01: worker 2 is killed at work on it
  0.40  action    note: turn 1  <- AGAIN
  0.50  bot       Hello  [answers m01 AGAIN, m02]
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAFencedRunMustNotDuplicateNorLose(t *testing.T) {
	for _, test := range []struct {
		result result
		want   string
	}{
		{result{Messages: 5, Answers: 5, Unknown: 2, Unanswered: 1}, ""},
		{result{DuplicateAnswers: 1}, "answered again"},
		{result{DuplicateEffects: 2}, "2 effects happened again"},
		{result{Lost: 3}, "3 messages are neither"},
	} {
		got := test.result.complaint()
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%+v: %q", test.result, got)
		}
	}
}

func TestOnlyWhatTheArmAccountsForIsNotLost(t *testing.T) {
	s := &stage{watch: newWatch(), queue: nowhere{}}
	entries := []provider.Entry{
		{Did: provider.Received, Message: "m1"}, {Did: provider.Received, Message: "m2"}, {Did: provider.Received, Message: "m3"},
		{Did: provider.Received, Message: "m4"},
		{Did: provider.Replied, Answers: []string{"m1"}},
	}
	r := newResult(s, books{Unknown: []string{"c: reply"}, Accounted: map[string]string{"m1": "listed as open", "m2": "listed as open"}}, entries, time.Now())
	if r.Unanswered != 3 || r.Lost != 2 || r.Unknown != 1 {
		t.Errorf("%+v", r)
	}
	if want := []string{"m2: listed as open", "m3: lost", "m4: lost"}; !slices.Equal(r.silent, want) {
		t.Errorf("without an answer: %q, want %q", r.silent, want)
	}
}

func TestTheIntroductionSaysWhatIsShortened(t *testing.T) {
	for _, name := range []string{"asynq", "river"} {
		o, err := parseOptions([]string{"--queue", name}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		introduce(&out, o)
		for _, want := range []string{"leases, deadlines and back-offs are shortened", "redelivery is brought forward", "12 conversations", "SIGKILL"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
	}
}

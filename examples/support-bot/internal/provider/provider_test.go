package provider

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// start runs a provider; stop ends it once everything under way is done, and returns its log.
func start(t *testing.T, faults Faults) (client *Client, stop func() []Entry) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.jsonl")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer((&server{log: log, dice: newDice(faults)}).routes())
	client = NewClient(web.URL, faults.Deadline/4)
	t.Cleanup(client.Close)
	return client, func() []Entry {
		t.Helper()
		web.Close() // waits for requests whose clients are gone
		_ = log.file.Close()
		entries, err := ReadLog(path)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
}

func TestTheProviderDoesNotDeduplicate(t *testing.T) {
	client, stop := start(t, Faults{Deadline: time.Minute})
	ctx := t.Context()
	if err := client.Receive(ctx, "c", Message{ID: "m1", Text: "Hi"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := client.Reply(ctx, "c", Reply{Text: "Hello", Answers: []string{"m1"}, IdempotencyKey: "k"}); err != nil {
			t.Fatal(err)
		}
		if err := client.Act(ctx, "c", Action{Kind: "note", Object: "o", IdempotencyKey: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	conversation, err := client.Conversation(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	if len(conversation.Messages) != 1 || len(conversation.Replies) != 2 || len(conversation.Open()) != 0 {
		t.Errorf("shown: %+v", conversation)
	}
	tally := Count(stop())
	if tally.DuplicateAnswers != 1 || tally.DuplicateEffects != 1 {
		t.Errorf("counted: %+v", tally)
	}
}

func TestFailingBeforeDoesNothingAndSaysSo(t *testing.T) {
	client, stop := start(t, Faults{FailBefore: 1, Deadline: time.Minute})
	for _, err := range []error{
		client.Reply(t.Context(), "c", Reply{Text: "Hello", Answers: []string{"m1"}}),
		client.Act(t.Context(), "c", Action{Kind: "note", Object: "o"}),
	} {
		var status *StatusError
		if !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable || !status.NotApplied() {
			t.Errorf("error %v, want a 503 that says it was not applied", err)
		}
	}
	if entries := stop(); len(entries) != 0 {
		t.Errorf("it did %v", entries)
	}
}

func TestActingAndTimingOutActsExactlyOnceAndTellsNobody(t *testing.T) {
	// The client waits for a quarter of this; the provider holds back its answer, or itself, for at least the whole.
	client, stop := start(t, Faults{ActAndTimeout: 1, Deadline: 200 * time.Millisecond})
	var objects []string
	for i := range 24 { // enough for each of the three ways
		objects = append(objects, strconv.Itoa(i))
	}
	errs := make(chan error)
	for _, object := range objects {
		go func() { errs <- client.Act(t.Context(), "c", Action{Kind: "note", Object: object}) }()
	}
	for range objects {
		err := <-errs
		if err == nil {
			t.Error("the client was told")
		}
		var says interface{ NotApplied() bool }
		if errors.As(err, &says) {
			t.Errorf("error %v claims to know what happened", err)
		}
	}
	done := map[string]int{}
	for _, entry := range stop() {
		done[entry.Object]++
	}
	for _, object := range objects {
		if done[object] != 1 {
			t.Errorf("%s was done %d times", object, done[object])
		}
	}
}

func TestARequestHasTheSameFateInEveryRunOfASeed(t *testing.T) {
	faults := Faults{Seed: 7, Late: 0.3, FailBefore: 0.3, ActAndTimeout: 0.3, Deadline: time.Second}
	a, b := newDice(faults), newDice(faults)
	b.throw("something else")
	differ := false
	first := a.throw("reply m1")
	if got := b.throw("reply m1"); got != first {
		t.Errorf("%+v, then %+v", first, got)
	}
	ends := map[end]bool{}
	for range 100 {
		next := a.throw("reply m1")
		if got := b.throw("reply m1"); got != next {
			t.Errorf("%+v, then %+v", next, got)
		}
		differ = differ || next != first
		ends[next.end] = true
	}
	if !differ || len(ends) != 3 {
		t.Errorf("the same fate each time: %v", ends)
	}
}

func TestLateAnswersStayWithinTheDeadline(t *testing.T) {
	d := newDice(Faults{Late: 1, Deadline: time.Second})
	for range 100 {
		late := d.throw("x")
		if wait := late.before + late.after; wait <= 0 || wait >= time.Second || late.end != answer {
			t.Errorf("%+v", late)
		}
	}
}

func TestOnlyTheProvidersOwnWordMeansNotApplied(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error": "busy", "applied": false}`: true,
		`{"error": "busy", "applied": true}`:  false,
		`{"error": "busy"}`:                   false,
		`<html>502 Bad Gateway</html>`:        false,
		``:                                    false,
	} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(body))
		}))
		client := NewClient(web.URL, time.Minute)
		err := client.Act(t.Context(), "c", Action{Kind: "note", Object: "o"})
		var status *StatusError
		if !errors.As(err, &status) || status.NotApplied() != want {
			t.Errorf("%q: %v, want not applied = %t", body, err, want)
		}
		client.Close()
		web.Close()
	}
}

func TestRequestsThatMeanNothingAreRefused(t *testing.T) {
	client, stop := start(t, Faults{Deadline: time.Minute})
	for _, err := range []error{
		client.Receive(t.Context(), "c", Message{}),
		client.Reply(t.Context(), "c", Reply{Text: "Hello"}),
		client.Act(t.Context(), "c", Action{Kind: "note"}),
	} {
		var status *StatusError
		if !errors.As(err, &status) || status.Status != http.StatusBadRequest || !status.NotApplied() {
			t.Errorf("error %v, want a 400", err)
		}
	}
	if entries := stop(); len(entries) != 0 {
		t.Errorf("it did %v", entries)
	}
}

func TestDuplicatesAreCountedPerMessageAndPerObject(t *testing.T) {
	entries, err := readLog(strings.NewReader(strings.Join([]string{
		`{"did":"message","conversation":"c","message":"c/m1"}`,
		`{"did":"message","conversation":"c","message":"c/m2"}`,
		`{"did":"message","conversation":"c","message":"c/m3"}`,
		`{"did":"message","conversation":"d","message":"d/m1"}`,
		`{"did":"reply","conversation":"c","answers":["c/m1"]}`,
		`{"did":"reply","conversation":"c","answers":["c/m1","c/m2"]}`,
		`{"did":"reply","conversation":"c","answers":["c/m1","c/m2"]}`,
		`{"did":"action","conversation":"c","kind":"note","object":"a"}`,
		`{"did":"action","conversation":"c","kind":"note","object":"b"}`,
		`{"did":"action","conversation":"c","kind":"note","object":"a","text":"worded otherwise"}`,
		`{"did":"action","conversation":"c","kind":"look-up-account","object":"a"}`,
		`{"did":"action","conversation":"d","kind":"note","object":"a"}`,
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := Tally{
		Messages: 4, Replies: 3, Answers: 5, DuplicateAnswers: 3, Effects: 5, DuplicateEffects: 1,
		Unanswered: []string{"c/m3", "d/m1"},
	}
	if diff := cmp.Diff(want, Count(entries)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestABrokenLogIsReportedByLine(t *testing.T) {
	_, err := readLog(strings.NewReader(`{"did":"message"}` + "\n" + `{"did":"mess`))
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v, want one that names line 2", err)
	}
}

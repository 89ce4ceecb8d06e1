package main

import (
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
)

// nowhere is a queue that only has a place.
type nowhere struct{ queue.Queue }

func (nowhere) Where() string { return "nowhere" }

func TestAJobIsLiveWhileALivingWorkerHasIt(t *testing.T) {
	w := newWatch()
	var first []string
	w.onFirst = func(job string, _ proc.Event) { first = append(first, job) }
	begin := func(worker int) {
		w.on(proc.Event{Kind: proc.Began, Job: "j", Worker: worker, Conversation: "c", Message: "m"})
	}

	begin(1)
	begin(2)
	w.gone(1)
	if !w.isLive("j") {
		t.Error("worker 2 has it, and it does not count as live")
	}
	w.on(proc.Event{Kind: proc.Ended, Job: "j", Worker: 2, Conversation: "c", Message: "m", Text: "no luck"})
	if w.isLive("j") {
		t.Error("nobody has it, and it counts as live")
	}
	begin(3)
	w.gone(3)
	if w.isLive("j") {
		t.Error("its worker was killed, and it counts as live")
	}
	w.on(proc.Event{Kind: proc.Noted, Job: "j", Conversation: "c", Text: "something"})
	w.on(proc.Event{Kind: proc.Thought})
	if redeliveries, models := w.counts(); redeliveries != 2 || models != 1 {
		t.Errorf("%d redeliveries, %d model calls; want 2 and 1", redeliveries, models)
	}
	if len(first) != 1 {
		t.Errorf("first deliveries: %v", first)
	}
	var notes []string
	for _, note := range w.transcript() {
		if note.Message != "m" || note.Conversation != "c" {
			t.Errorf("note %q belongs to message %q", note.Text, note.Message)
		}
		notes = append(notes, note.Text)
	}
	if got := strings.Join(notes, "\n"); !strings.Contains(got, "worker 1 is killed") || !strings.Contains(got, "returned: no luck") {
		t.Errorf("notes:\n%s", got)
	}
}

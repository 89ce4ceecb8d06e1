package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
)

// watch collects what the workers say.
type watch struct {
	onFirst func(job string, event proc.Event) // called when a job's first delivery begins

	mu         sync.Mutex
	live       map[string]map[int]proc.Event // job -> worker -> its delivery's beginning
	deliveries map[string]int                // per job
	messages   map[string]string             // what each job is about
	models     int
	notes      []proc.Event
}

func newWatch() *watch {
	return &watch{live: map[string]map[int]proc.Event{}, deliveries: map[string]int{}, messages: map[string]string{}}
}

func (w *watch) on(event proc.Event) {
	switch event.Kind {
	case proc.Began:
		w.mu.Lock()
		w.deliveries[event.Job]++
		w.messages[event.Job] = event.Message
		n := w.deliveries[event.Job]
		if w.live[event.Job] == nil {
			w.live[event.Job] = map[int]proc.Event{}
		}
		w.live[event.Job][event.Worker] = event
		if n > 1 {
			w.note(event, "delivery %d begins in worker %d", n, event.Worker)
		}
		onFirst := w.onFirst
		w.mu.Unlock()
		if n == 1 && onFirst != nil {
			onFirst(event.Job, event)
		}
	case proc.Ended:
		w.mu.Lock()
		delete(w.live[event.Job], event.Worker)
		if len(w.live[event.Job]) == 0 {
			delete(w.live, event.Job)
		}
		// What the library itself decided is told by its own events.
		if event.Text != "" && !strings.HasPrefix(event.Text, "fencedrun: come_back") {
			w.note(event, "delivery in worker %d returned: %s", event.Worker, shorten(event.Text))
		}
		w.mu.Unlock()
	case proc.Thought:
		w.mu.Lock()
		w.models++
		w.mu.Unlock()
	case proc.Noted:
		w.mu.Lock()
		if event.Message == "" {
			event.Message = w.messages[event.Job]
		}
		w.notes = append(w.notes, event)
		w.mu.Unlock()
	case proc.Ready:
	}
}

// note adds a line to the transcript of event's conversation, at event's time. w.mu is held.
func (w *watch) note(event proc.Event, format string, args ...any) {
	event.Kind, event.Text = proc.Noted, fmt.Sprintf(format, args...)
	w.notes = append(w.notes, event)
}

// shorten keeps a transcript's lines readable: errors that wrap errors are long.
func shorten(text string) string {
	const most = 100
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most]) + "…"
}

// gone takes note that a worker was killed.
func (w *watch) gone(worker int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job, by := range w.live {
		event, held := by[worker]
		if !held {
			continue
		}
		event.At = time.Now()
		w.note(event, "worker %d is killed at work on it", worker)
		if delete(by, worker); len(by) == 0 {
			delete(w.live, job)
		}
	}
}

// again takes note that a job is to be delivered a second time while its first delivery lives.
func (w *watch) again(job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for worker, event := range w.live[job] {
		event.At = time.Now()
		w.note(event, "the queue loses sight of it and delivers it again, while worker %d is at work on it", worker)
		return
	}
}

// isLive reports whether a worker that lives is at work on the job.
func (w *watch) isLive(job string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.live[job]) > 0
}

// counts returns the deliveries beyond each job's first, and the calls of the model.
func (w *watch) counts() (redeliveries, models int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.deliveries {
		redeliveries += n - 1
	}
	return redeliveries, w.models
}

// transcript returns the notes.
func (w *watch) transcript() []proc.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]proc.Event(nil), w.notes...)
}

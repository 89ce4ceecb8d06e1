package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
)

// result is what one arm did to the customers. Answers and effects are counted in the help desk's log; a message answered
// twice counts as two answers, one of them a duplicate.
type result struct {
	Messages         int `json:"messages"`
	Answers          int `json:"answers"`
	DuplicateAnswers int `json:"duplicate_answers"`
	DuplicateEffects int `json:"duplicate_effects"`
	Unanswered       int `json:"unanswered"`
	Unknown          int `json:"unknown"` // effects whose outcome nobody knows, in the arm's own books
	Kills            int `json:"kills"`
	Redeliveries     int `json:"redeliveries"` // deliveries beyond the first, per job
	ModelCalls       int `json:"model_calls"`
	Lost             int `json:"lost"` // neither answered, nor unknown, nor listed as open

	where   string
	seconds float64
	replies int
	parked  int
	unknown []string // the effects, a line each
	silent  []string // the messages without an answer, a line each
	began   time.Time
	entries []provider.Entry
	notes   []proc.Event
}

func newResult(s *stage, known books, entries []provider.Entry, began time.Time) *result {
	tally := provider.Count(entries)
	r := &result{
		Messages:         tally.Messages,
		Answers:          tally.Answers,
		DuplicateAnswers: tally.DuplicateAnswers,
		DuplicateEffects: tally.DuplicateEffects,
		Unanswered:       len(tally.Unanswered),
		Unknown:          len(known.Unknown),
		unknown:          known.Unknown,
		Kills:            int(s.kills.Load()),
		where:            s.queue.Where(),
		seconds:          time.Since(began).Seconds(),
		replies:          tally.Replies,
		parked:           s.parked,
		began:            began,
		entries:          entries,
		notes:            s.watch.transcript(),
	}
	r.Redeliveries, r.ModelCalls = s.watch.counts()
	for _, id := range tally.Unanswered {
		state := known.Accounted[id]
		if state == "" {
			state = "lost"
			r.Lost++
		}
		r.silent = append(r.silent, id+": "+state)
	}
	return r
}

// complaint says what a fenced run must not do and this one did, or "".
func (r *result) complaint() string {
	var wrong []string
	if r.DuplicateAnswers > 0 {
		wrong = append(wrong, fmt.Sprintf("%d messages were answered again", r.DuplicateAnswers))
	}
	if r.DuplicateEffects > 0 {
		wrong = append(wrong, fmt.Sprintf("%d effects happened again", r.DuplicateEffects))
	}
	if r.Lost > 0 {
		wrong = append(wrong, fmt.Sprintf("%d messages are neither answered, nor unknown, nor listed as open", r.Lost))
	}
	return strings.Join(wrong, "; ")
}

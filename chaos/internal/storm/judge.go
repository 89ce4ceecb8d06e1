package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/ledger/key"
)

// Report is what a storm came to.
type Report struct {
	Seed    uint64  `json:"seed"`
	Library bool    `json:"library"` // false: handlers called the provider directly
	Queue   string  `json:"queue"`
	Ledger  string  `json:"ledger"`
	Own     bool    `json:"own_servers"` // the storm started them itself; else they are not stopped
	Seconds float64 `json:"seconds"`     // draining included
	Workers int     `json:"workers"`     // processes at a time

	// What struck.
	Kills        int64  `json:"kills"`
	Pauses       int64  `json:"pauses"`
	Cuts         int64  `json:"cuts"` // connections of workers to the ledger, before or after a frame
	Delays       int64  `json:"delayed_frames"`
	Silences     int64  `json:"silences"` // connections on which nothing came any more
	Frames       int64  `json:"frames"`   // that went by between workers and ledger
	Drops        int64  `json:"dropped_by_server"`
	Forgets      int64  `json:"script_flushes"`
	Stops        int64  `json:"server_stops"`    // SIGSTOP, for longer than lease and claim deadline
	Restarts     int64  `json:"server_restarts"` // killed as by a crash, and started on what it left
	Crashes      int64  `json:"backend_kills"`   // of Postgres, which then recovers as after a crash
	Redeliveries int64  `json:"redeliveries"`    // forced, while a worker had the job
	Orphans      int64  `json:"orphans"`         // redelivered because no worker had the job any more
	Exits        int    `json:"worker_exits"`    // of workers that nobody killed
	LastExit     string `json:"last_exit,omitempty"`

	// What was done, by the provider's log.
	Jobs             int `json:"jobs"`
	Deliveries       int `json:"deliveries"`
	Messages         int `json:"messages"`
	Answers          int `json:"answers"`
	Refunds          int `json:"refunds"`
	DuplicateAnswers int `json:"duplicate_answers"` // beyond the first, by message
	DuplicateRefunds int `json:"duplicate_refunds"` // beyond the first, by object
	Duplicates       int `json:"duplicates"`        // both

	// What became of the messages without an answer, by the ledger. Without the library they are
	// only counted.
	Unanswered int `json:"unanswered"`
	Unknown    int `json:"unknown"` // their answer's outcome is unknown
	Open       int `json:"open"`    // listed as open
	Waiting    int `json:"waiting"` // their job was still on the queue when waiting for it was given up
	Lost       int `json:"lost"`    // none of these

	// Effects whose outcome is unknown in the end, and how many of them had happened.
	UnknownEffects  int `json:"unknown_effects"`
	UnknownHappened int `json:"unknown_effects_that_happened"`
	Parked          int `json:"parked_jobs"`
	// Listed says of messages that are open what became of the jobs that brought them.
	Listed []string `json:"listed,omitempty"`
	// Evidence shows the conversations in which something was done twice, or lost.
	Evidence []string `json:"evidence,omitempty"`
}

// Broken reports whether the library broke a promise.
func (r *Report) Broken() bool { return r.Library && (r.Duplicates > 0 || r.Lost > 0) }

// judge counts in the provider's log, and asks the ledger about what is missing there.
func (s *stage) judge(ctx context.Context, left rest, took time.Duration) (*Report, error) {
	entries, err := readLog(s.log)
	if err != nil {
		return nil, err
	}
	c := &s.counts
	r := &Report{
		Seed: s.config.Seed, Library: !s.config.Without, Queue: s.queueName(), Ledger: s.place.Kind, Seconds: took.Seconds(), Workers: s.config.Workers,
		Kills: c.kills.Load(), Pauses: c.pauses.Load(), Cuts: c.cuts.Load(), Delays: c.delays.Load(), Silences: c.silences.Load(),
		Own: len(s.machines) > 0, Stops: c.stops.Load(), Restarts: c.restarts.Load(), Crashes: c.crashes.Load(),
		Drops: c.drops.Load(), Forgets: c.forgets.Load(), Redeliveries: c.redeliveries.Load(), Orphans: c.orphans.Load(),
		Exits: s.exits, LastExit: s.lastExit, Jobs: len(s.jobs), Deliveries: s.watch.count(), Parked: left.parked,
	}
	if !r.Library {
		r.Ledger = "none"
	}
	for _, at := range s.slots {
		if at.proxy != nil {
			r.Frames += int64(at.proxy.Frames())
		}
	}
	t := count(entries, r)
	why := t.twice
	if r.Library {
		lost, err := s.account(ctx, r, t, left.waiting)
		if err != nil {
			return nil, err
		}
		why = append(why, lost...)
	}
	if r.Broken() {
		r.Evidence = s.evidence(ctx, why, entries)
	}
	return r, nil
}

// finding is something that must not be.
type finding struct{ conversation, what string }

// tally is what a log adds up to.
type tally struct {
	messages   []entry // that came in
	unanswered []entry
	keys       map[string]bool // idempotency keys under which something was done
	twice      []finding
}

// count adds up a log. Nothing but the log decides what is a duplicate.
func count(entries []entry, r *Report) *tally {
	t := &tally{keys: map[string]bool{}}
	answers, refunds := map[string]int{}, map[string]int{}
	for _, e := range entries {
		if e.Key != "" {
			t.keys[e.Key] = true
		}
		switch e.Did {
		case received:
			t.messages = append(t.messages, e)
		case replied:
			for _, m := range e.Answers {
				r.Answers++
				if answers[m]++; answers[m] > 1 {
					r.DuplicateAnswers++
					t.twice = append(t.twice, finding{e.Conversation, fmt.Sprintf("message %s was answered %d times", m, answers[m])})
				}
			}
		case refunded:
			r.Refunds++
			if refunds[e.Object]++; refunds[e.Object] > 1 {
				r.DuplicateRefunds++
				t.twice = append(t.twice, finding{e.Conversation, fmt.Sprintf("object %s was refunded %d times", e.Object, refunds[e.Object])})
			}
		}
	}
	r.Messages, r.Duplicates = len(t.messages), r.DuplicateAnswers+r.DuplicateRefunds
	for _, m := range t.messages {
		if answers[m.Message] == 0 {
			t.unanswered = append(t.unanswered, m)
		}
	}
	r.Unanswered = len(t.unanswered)
	return t
}

// account asks the ledger, the way an operator would, what became of the messages that have no
// answer.
func (s *stage) account(ctx context.Context, r *Report, t *tally, waiting []string) (lost []finding, err error) {
	unresolved, err := s.keeper.Unresolved(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	listed, err := s.keeper.Open(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	unknown, open := map[string]bool{}, map[string]bool{}
	for _, u := range unresolved {
		r.UnknownEffects++
		if t.keys[key.IdempotencyKey(u.Effect.ID)] {
			r.UnknownHappened++
		}
		for _, m := range u.Effect.Deciding().Answers {
			unknown[m] = true
		}
	}
	for _, m := range listed {
		open[m.ID] = true
	}
	for _, m := range t.unanswered {
		switch {
		case unknown[m.Message]:
			r.Unknown++
		case open[m.Message]:
			r.Open++
			r.Listed = append(r.Listed, s.jobsOf(ctx, m)...)
		case slices.Contains(waiting, m.Message):
			r.Waiting++
		default:
			r.Lost++
			lost = append(lost, finding{m.Conversation, fmt.Sprintf("message %s is neither answered, nor unknown, nor open", m.Message)})
		}
	}
	return lost, nil
}

// jobsOf says what became of the jobs that brought a message.
func (s *stage) jobsOf(ctx context.Context, m entry) (lines []string) {
	h, err := s.keeper.History(ctx, m.Conversation)
	if err != nil {
		return []string{fmt.Sprintf("%s is open: %v", m.Message, err)}
	}
	for _, run := range h.Runs {
		if slices.Contains(run.Inbound, m.Message) {
			lines = append(lines, fmt.Sprintf("%s is open: its job is %s %s %s", m.Message, run.State, run.End, run.Parked))
		}
	}
	for _, e := range h.Effects {
		if e.Intent == "reply" && slices.Contains(e.Deciding().Answers, m.Message) {
			lines = append(lines, fmt.Sprintf("  a reply to it is %s after %d calls", e.State(), len(e.Calls)))
		} else if slices.Contains(objects([]string{m.Message}), keyObject(e.Key)) {
			lines = append(lines, fmt.Sprintf("  the refund of what it is about is %s after %d calls", e.State(), len(e.Calls)))
		}
	}
	return lines
}

// keyObject returns the object that a refund's key names.
func keyObject(canonical string) string {
	var k struct {
		Object string `json:"object"`
	}
	_ = json.Unmarshal([]byte(canonical), &k) // a reply's key is a string, and names none
	return k.Object
}

// evidence shows some of the findings: what the provider did in their conversations, and what the
// ledger remembers of them.
func (s *stage) evidence(ctx context.Context, findings []finding, entries []entry) []string {
	const mostFindings, most = 30, 3
	var lines []string
	for i, f := range findings {
		if i == mostFindings {
			lines = append(lines, fmt.Sprintf("and %d more", len(findings)-i))
			break
		}
		lines = append(lines, f.what)
	}
	var conversations []string
	for _, f := range findings {
		if !slices.Contains(conversations, f.conversation) && len(conversations) < most {
			conversations = append(conversations, f.conversation)
		}
	}
	show := func(what string, v any) {
		line, err := json.Marshal(v)
		if err != nil {
			line = fmt.Appendf(nil, "%+v", v)
		}
		lines = append(lines, fmt.Sprintf("  %s %s", what, line))
	}
	for _, conversation := range conversations {
		lines = append(lines, "conversation "+conversation)
		for _, e := range entries {
			if e.Conversation == conversation {
				show("provider", e)
			}
		}
		h, err := s.keeper.History(ctx, conversation)
		if err != nil {
			lines = append(lines, "  ledger: "+err.Error())
			continue
		}
		show("head", h.Head)
		for _, run := range h.Runs {
			show("run", run)
		}
		for _, effect := range h.Effects {
			show("effect", effect)
		}
		for _, in := range h.Inbound {
			show("inbound", in)
		}
	}
	return lines
}

func (s *stage) queueName() string {
	switch {
	case s.config.Queue != River:
		return s.config.Queue
	case s.config.QueueURL == "":
		return "river on sqlite"
	}
	return "river on postgres"
}

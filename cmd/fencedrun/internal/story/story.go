// Package story tells what happened in a conversation, for the person who is called at 3 a.m.
//
// The ledger keeps states and not events. So a story says what the records prove, and marks
// what merely follows from them.
package story

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Options say for whom a story is told. The zero value of each field means its default.
type Options struct {
	// Now is what the story calls now. Defaults to the ledger's clock when the history was
	// read: no worker's clock is comparable with the times in the records.
	Now time.Time
	// Location is the time zone of all times. Defaults to UTC.
	Location *time.Location
	// Command is what the commands that are to be typed begin with: the program, and whatever
	// flags name the ledger. Defaults to "fencedrun".
	Command string
	// Conversation is its name, for a conversation that the ledger does not know.
	Conversation string
	// Leases say until when each delivery at work is known to be alive, as fence.View has
	// them. Default to those of the history, which has the ones that had not lapsed.
	Leases map[fence.LeaseID]fence.Millis
	// Last is how many entries are told, the newest; 0: all.
	Last int
}

// Story is what is known of a conversation, in the order in which it happened, and what is left
// to do.
type Story struct {
	Conversation string    `json:"conversation"`
	Known        bool      `json:"known"` // the ledger has records of it
	Now          time.Time `json:"now"`
	LeftOut      int       `json:"left_out"` // entries before the first one here, see Options.Last
	Entries      []Entry   `json:"entries"`
	Doubts       []Doubt   `json:"doubts"`
	Open         []Message `json:"open"`
	Stopped      []Stopped `json:"stopped"`
	Working      []Working `json:"working"`

	location *time.Location
}

// Kind says what an Entry is about.
type Kind string

// The kinds. They are stable.
const (
	KindMessage    Kind = "message"     // the ledger heard of a customer's message
	KindTurnedAway Kind = "turned_away" // a job came and was not let in
	KindReport     Kind = "report"      // something else wrote to the conversation
	KindEcho       Kind = "echo"        // a report confirmed an effect of our own
	KindBegan      Kind = "began"       // a job was let in for the first time
	KindResumed    Kind = "resumed"     // a job was delivered again and let in
	KindClaimed    Kind = "claimed"     // a call was allowed to start
	KindHappened   Kind = "happened"    // an effect is known to have happened
	KindFailed     Kind = "failed"      // a call is known not to have applied
	KindUnknown    Kind = "unknown"     // the worker does not know, or said nothing in time
	KindResolved   Kind = "resolved"    // somebody decided an unknown
	KindDuplicate  Kind = "duplicate"   // it may have happened twice
	KindDismissed  Kind = "dismissed"   // a message was closed without an answer
	KindReleased   Kind = "released"    // a job went back to its queue
	KindParked     Kind = "parked"      // a job was stopped for a person
	KindEnded      Kind = "ended"       // a job ended with success
	KindDiscarded  Kind = "discarded"   // a job was given up
	KindSuperseded Kind = "superseded"  // a job ended because a newer one took care of it
	KindCancelled  Kind = "cancelled"   // a job was cancelled
)

// Entry is one thing that happened.
type Entry struct {
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	Who  string    `json:"who,omitempty"`
	Text string    `json:"text"`

	Queue    string `json:"queue,omitempty"` // with Job
	Job      string `json:"job,omitempty"`
	Delivery int64  `json:"delivery,omitempty"`
	Effect   string `json:"effect,omitempty"` // id
	Call     int    `json:"call,omitempty"`
	Message  string `json:"message,omitempty"`

	// Inferred says that no record states it: it follows from others.
	Inferred bool `json:"inferred,omitempty"`
	// Alarm says that a person must know.
	Alarm bool `json:"alarm,omitempty"`

	seq   int64 // among those at the same time
	fence int64 // the call's that it is of, 0 for what is of none
}

// Problem says what is doubtful about an effect.
type Problem string

// The problems. They are stable.
const (
	ProblemUnderWay  Problem = "under_way" // its call may be at work right now
	ProblemUnknown   Problem = "unknown"   // nobody knows whether it happened
	ProblemDuplicate Problem = "duplicate" // it may have happened twice
)

// Doubt is an effect that is not known to be either done once or not done.
type Doubt struct {
	Effect   string      `json:"effect"` // id
	Intent   string      `json:"intent"`
	Key      string      `json:"key"` // canonical JSON
	State    fence.State `json:"state"`
	Problem  Problem     `json:"problem"`
	Text     string      `json:"text"`
	Since    time.Time   `json:"since"`    // claimed
	Deadline time.Time   `json:"deadline"` // of the claim
	Summary  string      `json:"summary,omitempty"`
	Queue    string      `json:"queue,omitempty"` // with Job: whose call it is
	Job      string      `json:"job,omitempty"`
	Worker   string      `json:"worker,omitempty"`
	Error    string      `json:"error,omitempty"`
	// IdempotencyKey and Reference are what to look for at the provider.
	IdempotencyKey string   `json:"idempotency_key"`
	Params         string   `json:"params,omitempty"` // canonical JSON
	Reference      string   `json:"reference,omitempty"`
	Answers        []string `json:"answers,omitempty"`
	Do             []Step   `json:"do"`
}

// Message is a customer's message that nobody has answered or dismissed.
type Message struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"` // the ledger heard of it
	Named time.Time `json:"named"` // a job last brought it
	Text  string    `json:"text"`
	Do    []Step    `json:"do"`
}

// Stopped is a job that goes on only if a person does something.
type Stopped struct {
	Queue  string    `json:"queue"`
	Job    string    `json:"job"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Text   string    `json:"text"`
	Do     []Step    `json:"do"`
}

// Working is a job that has begun and needs nobody's help: it is at work, or waits in its queue.
type Working struct {
	Queue    string    `json:"queue"`
	Job      string    `json:"job"`
	Delivery int64     `json:"delivery"`
	Since    time.Time `json:"since"`
	Text     string    `json:"text"`
}

// Step is one thing to do.
type Step struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"` // to be typed, "" if it is done elsewhere
}

// Tell tells the story of a history.
func Tell(h ledger.History, o Options) Story {
	t := newTeller(h, o)
	s := Story{
		Conversation: t.conversation, Known: h.Head != nil || len(h.Runs)+len(h.Effects)+len(h.Inbound)+len(h.Reports) > 0, Now: t.now.In(t.o.Location),
		Entries: []Entry{}, Doubts: []Doubt{}, Open: []Message{}, Stopped: []Stopped{}, Working: []Working{}, location: t.o.Location,
	}
	for _, in := range h.Inbound {
		t.message(in)
	}
	for _, r := range h.Reports {
		t.report(r)
	}
	for _, r := range h.Runs {
		t.run(r)
	}
	for _, e := range h.Effects {
		t.effect(e)
	}
	s.Entries = append(s.Entries, t.entries...)
	slices.SortStableFunc(s.Entries, func(a, b Entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.stage(), b.stage()), cmp.Compare(a.fence, b.fence), cmp.Compare(ranks[a.Kind], ranks[b.Kind]),
			cmp.Compare(a.seq, b.seq))
	})
	if n := len(s.Entries) - o.Last; o.Last > 0 && n > 0 {
		s.LeftOut, s.Entries = n, s.Entries[n:]
	}
	for _, e := range h.Effects {
		s.Doubts = append(s.Doubts, t.doubts(e)...)
	}
	for _, in := range h.Inbound {
		if in.Registered && !in.Closed() {
			s.Open = append(s.Open, t.open(in))
		}
	}
	for _, r := range h.Runs {
		if r.State == fence.RunActive && r.Parked == "" {
			s.Working = append(s.Working, t.working(r))
		}
		if stopped, ok := t.stopped(r); ok {
			s.Stopped = append(s.Stopped, stopped)
		}
	}
	return s
}

// ranks order what happened in the same millisecond the way it must have.
var ranks = map[Kind]int{
	KindMessage: 0, KindTurnedAway: 1, KindReport: 2, KindBegan: 3, KindResumed: 3, KindClaimed: 4, KindHappened: 5, KindFailed: 5,
	KindUnknown: 5, KindEcho: 6, KindResolved: 6, KindDuplicate: 6, KindDismissed: 7, KindReleased: 8, KindParked: 8, KindEnded: 8, KindDiscarded: 8,
	KindSuperseded: 8, KindCancelled: 8,
}

// stage is the entry's rank, and the same for all that is of calls: a handler makes one call after the
// other, so what became of one came before the next was claimed.
func (e *Entry) stage() int {
	if e.fence > 0 {
		return ranks[KindClaimed]
	}
	return ranks[e.Kind]
}

// teller tells one story.
type teller struct {
	h            ledger.History
	o            Options
	now          time.Time
	conversation string
	runs         map[fence.RunKey]*fence.Run
	effects      map[string]*fence.Effect
	queues       map[string]int             // how many queues there are for a job's id
	calls        map[fence.RunKey][]ownCall // by the run that made them, oldest first
	inbound      map[string]*fence.Inbound
	bringing     map[string][]*fence.Run // the runs whose jobs bring a message
	entries      []Entry
}

func newTeller(h ledger.History, o Options) *teller {
	if o.Location == nil {
		o.Location = time.UTC
	}
	if o.Command == "" {
		o.Command = "fencedrun"
	}
	t := &teller{
		h: h, o: o, now: o.Now, conversation: o.Conversation,
		runs: map[fence.RunKey]*fence.Run{}, effects: map[string]*fence.Effect{}, queues: map[string]int{},
		calls: map[fence.RunKey][]ownCall{}, inbound: map[string]*fence.Inbound{}, bringing: map[string][]*fence.Run{},
	}
	if t.now.IsZero() {
		t.now = h.Now.Time()
	}
	if t.o.Leases == nil {
		t.o.Leases = map[fence.LeaseID]fence.Millis{}
		for _, l := range h.Live {
			t.o.Leases[fence.LeaseID{Run: fence.RunRow(l.Run), Nonce: l.Delivery.Nonce}] = l.Until
		}
	}
	if h.Head != nil {
		t.conversation = h.Head.Conversation
	}
	for _, r := range h.Runs {
		t.runs[r.Key] = r
		t.queues[r.Key.ID]++
		for _, id := range r.Inbound {
			t.bringing[id] = append(t.bringing[id], r)
		}
	}
	for _, e := range h.Effects {
		t.effects[e.ID] = e
		for i := range e.Calls {
			c := &e.Calls[i]
			t.calls[c.Run] = append(t.calls[c.Run], ownCall{e, c})
		}
	}
	for _, calls := range t.calls {
		slices.SortStableFunc(calls, func(a, b ownCall) int { return cmp.Compare(a.call.Fence, b.call.Fence) })
	}
	for _, in := range h.Inbound {
		t.inbound[in.ID] = in
	}
	return t
}

// ownCall is a call of a run.
type ownCall struct {
	effect *fence.Effect
	call   *fence.Call
}

func (t *teller) add(e Entry) {
	e.At = e.At.In(t.o.Location)
	t.entries = append(t.entries, e)
}

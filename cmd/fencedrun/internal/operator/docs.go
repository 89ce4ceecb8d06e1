package operator

import (
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// What --json prints. Times are UTC by the ledger's clock, "" where there is none; ages are in
// seconds. Every field is always there, and lists are never null, so that a program may rely on
// them; fields may be added.

type effectDoc struct {
	Conversation   string    `json:"conversation"`
	Effect         string    `json:"effect"`
	Short          string    `json:"short"` // the shortest prefix that the commands take for it now
	IdempotencyKey string    `json:"idempotency_key"`
	Intent         string    `json:"intent"`
	Key            string    `json:"key"` // canonical JSON
	State          string    `json:"state"`
	ClaimedAt      string    `json:"claimed_at"`
	AgeSeconds     float64   `json:"age_seconds"`
	Deadline       string    `json:"deadline"`
	Summary        string    `json:"summary"`
	By             string    `json:"by"` // the worker
	Run            runKeyDoc `json:"run"`
	Probes         int       `json:"probes"` // questions put to the provider
	NextProbe      string    `json:"next_probe"`
	Todo           string    `json:"todo"`
	Calls          []callDoc `json:"calls"`
}

type runKeyDoc struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
}

type callDoc struct {
	Number      int       `json:"number"`
	State       string    `json:"state"`
	Fence       int64     `json:"fence"`
	Run         runKeyDoc `json:"run"`
	Delivery    int64     `json:"delivery"`
	By          string    `json:"by"`
	ClaimedAt   string    `json:"claimed_at"`
	Deadline    string    `json:"deadline"`
	SettledAt   string    `json:"settled_at"`
	Summary     string    `json:"summary"`
	Params      string    `json:"params"` // canonical JSON
	Answers     []string  `json:"answers"`
	Reference   string    `json:"reference"`
	ResultBytes int       `json:"result_bytes"`
	ValueKept   bool      `json:"value_kept"` // false also while there is none
	Error       string    `json:"error"`
	NotStarted  bool      `json:"not_started"`
	Late        bool      `json:"late"`
	Echo        bool      `json:"echo"`
	ResolvedBy  string    `json:"resolved_by"`
	Note        string    `json:"note"`
}

type runDoc struct {
	Queue      string   `json:"queue"`
	ID         string   `json:"id"`
	State      string   `json:"state"`
	End        string   `json:"end"`
	Parked     string   `json:"parked"`
	Live       bool     `json:"live"`
	LeaseUntil string   `json:"lease_until"`
	Generation int      `json:"generation"`
	Delivery   int64    `json:"delivery"`
	Mode       string   `json:"mode"`
	OrderFrom  string   `json:"order_source"`
	Order      int64    `json:"order"`
	Messages   []string `json:"messages"`
	BegunAt    string   `json:"begun_at"`
	TouchedAt  string   `json:"touched_at"`
	Wrote      bool     `json:"wrote"`
	CancelBy   string   `json:"cancelled_by"`
	CancelWhy  string   `json:"cancelled_why"`
}

type messageDoc struct {
	ID         string   `json:"id"`
	State      string   `json:"state"` // open, held, answered or dismissed
	AnsweredBy []string `json:"answered_by"`
	HeldBy     string   `json:"held_by"` // the unresolved effect that may have answered it
	Dismissed  string   `json:"dismissed"`
	FirstAt    string   `json:"first_at"`
	NamedAt    string   `json:"named_at"`
}

type reportDoc struct {
	ID        string   `json:"id"`
	Intent    string   `json:"intent"`
	Answers   []string `json:"answers"`
	Reference string   `json:"reference"`
	Summary   string   `json:"summary"`
	By        string   `json:"by"`
	At        string   `json:"at"`
	EchoOf    string   `json:"echo_of"`
}

func instant(m fence.Millis) string {
	if m == 0 {
		return ""
	}
	return m.Time().UTC().Format("2006-01-02T15:04:05.000Z")
}

func list(of []string) []string { return append([]string{}, of...) }

// describe makes the document of an effect.
func describe(conversation string, e *fence.Effect, now fence.Millis, short string) effectDoc {
	c := e.Deciding()
	d := effectDoc{
		Conversation: conversation, Effect: e.ID, Short: short, IdempotencyKey: key.IdempotencyKey(e.ID), Intent: e.Intent, Key: e.Key,
		State: string(c.State), ClaimedAt: instant(c.At), AgeSeconds: (now - c.At).Duration().Seconds(), Deadline: instant(c.Deadline),
		Summary: c.Summary, By: c.By, Run: runKeyDoc(c.Run), Probes: e.Probing.Tries, NextProbe: instant(nextProbe(e)),
		Todo: whatToDo(e, now), Calls: []callDoc{},
	}
	for i := range e.Calls {
		d.Calls = append(d.Calls, callOf(&e.Calls[i]))
	}
	return d
}

// nextProbe is when the next question may be put to the provider, 0 when nobody has asked yet.
func nextProbe(e *fence.Effect) fence.Millis {
	if !unresolved(e) {
		return 0
	}
	if e.Probing.Nonce != "" {
		return max(e.Probing.Next, e.Probing.Until)
	}
	return e.Probing.Next
}

func callOf(c *fence.Call) callDoc {
	return callDoc{
		Number: c.Number, State: string(c.State), Fence: c.Fence, Run: runKeyDoc(c.Run), Delivery: c.Delivery.Number, By: c.By,
		ClaimedAt: instant(c.At), Deadline: instant(c.Deadline), SettledAt: instant(c.Settled), Summary: c.Summary, Params: c.Params,
		Answers: list(c.Answers), Reference: c.Reference, ResultBytes: len(c.Result), ValueKept: c.State == fence.Committed && !c.NoValue,
		Error: c.Error, NotStarted: c.NotStarted, Late: c.Late, Echo: c.Echo, ResolvedBy: c.ResolvedBy, Note: c.Note,
	}
}

func runOf(r *fence.Run, live map[fence.RunKey]ledger.LiveRun) runDoc {
	seat, alive := live[r.Key]
	return runDoc{
		Queue: r.Key.Queue, ID: r.Key.ID, State: string(r.State), End: string(r.End), Parked: string(r.Parked), Live: alive,
		LeaseUntil: instant(seat.Until), Generation: r.Generation, Delivery: r.Delivery.Number, Mode: string(r.Mode),
		OrderFrom: r.Order.Source, Order: r.Order.Number, Messages: list(r.Inbound), BegunAt: instant(r.BegunAt),
		TouchedAt: instant(r.TouchedAt), Wrote: r.Wrote, CancelBy: r.CancelBy, CancelWhy: r.CancelWhy,
	}
}

// alive are the runs of a conversation that are at work.
func alive(h ledger.History) map[fence.RunKey]ledger.LiveRun {
	live := map[fence.RunKey]ledger.LiveRun{}
	for _, l := range h.Live {
		live[l.Run] = l
	}
	return live
}

// holder is the unresolved effect that may have answered a message, nil for none.
func holder(h ledger.History, message string) *fence.Unresolved {
	if h.Head == nil {
		return nil
	}
	for i := range h.Head.Unresolved {
		u := &h.Head.Unresolved[i]
		if slices.Contains(u.Answers, message) {
			return u
		}
	}
	return nil
}

func messageOf(in *fence.Inbound, h ledger.History) messageDoc {
	d := messageDoc{
		ID: in.ID, State: "open", AnsweredBy: []string{}, Dismissed: in.Dismissed, FirstAt: instant(in.FirstAt), NamedAt: instant(in.NamedAt),
	}
	for _, a := range in.Answered {
		d.AnsweredBy = append(d.AnsweredBy, a.ID)
	}
	switch u := holder(h, in.ID); {
	case len(in.Answered) > 0:
		d.State = "answered"
	case in.Dismissed != "":
		d.State = "dismissed"
	case u != nil:
		d.State, d.HeldBy = "held", u.Effect
	case !in.Registered:
		d.State = "unnamed" // an effect or report named it, no job has
	}
	return d
}

func reportOf(r *fence.Report) reportDoc {
	return reportDoc{
		ID: r.ID, Intent: r.Intent, Answers: list(r.Answers), Reference: r.Reference, Summary: r.Summary, By: r.By,
		At: instant(r.At), EchoOf: r.Echo,
	}
}

// ago says how long before now a time was.
func ago(at, now fence.Millis) string {
	if at == 0 {
		return "-"
	}
	return span(max(now-at, 0).Duration().Truncate(time.Second)) + " ago"
}

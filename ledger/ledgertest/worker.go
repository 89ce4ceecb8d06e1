package ledgertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// rules are those of production.
var rules = fence.Rules{Lease: seconds(30), Quiet: seconds(120), Retention: seconds(30 * 24 * 3600), MaxCalls: 3}

// worker is a process with a ledger of its own.
type worker struct {
	*bench
	*ledger.Ledger
	namespace string

	mu     sync.Mutex
	events []fence.Event
}

// switchedOff are rules that the tests of this package switch off, to see that they are missed.
var switchedOff sabotage.Set

// worker starts a process over store. change may change its options.
func (b *bench) worker(store ledger.Store, change ...func(*ledger.Options)) *worker {
	w := &worker{bench: b}
	s := *seam.Real()
	s.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	s.Off = switchedOff
	o := ledger.Options{Rules: rules, Seam: &s, Emit: func(_ context.Context, _ string, events []fence.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, events...)
	}}
	for _, c := range change {
		c(&o)
	}
	w.namespace = o.Namespace
	w.Ledger = ledger.New(store, o)
	return w
}

var newID = seam.Real().NewID

func job(id string, inbound ...string) fence.BeginRequest {
	return fence.BeginRequest{
		Run: fence.RunKey{Queue: "test", ID: id}, Digest: "digest of " + id, Inbound: inbound, Mode: fence.Supersede, Reads: fence.AfterBegin,
		Identity: fence.Identity{Nonce: newID()},
	}
}

func ordered(q fence.BeginRequest, n int64) fence.BeginRequest {
	q.Order = fence.Order{Source: "test", Number: n}
	return q
}

// begin begins a job that must be granted. The handle is closed when the test ends.
func (w *worker) begin(conversation string, q fence.BeginRequest) *ledger.Handle {
	w.Helper()
	h, v, _, err := w.Begin(w.ctx, conversation, q)
	if err != nil || h == nil {
		w.Fatalf("begin %s: %+v, %v", q.Run, v, err)
	}
	w.Cleanup(h.Close)
	return h
}

// effect is a claim of an effect whose intent says nothing special.
func (w *worker) effect(conversation, intent, id string, answers ...string) fence.ClaimRequest {
	k := key.ID(id)
	return fence.ClaimRequest{
		Effect: key.EffectID(w.namespace, conversation, intent, k), Intent: intent, Key: k.Canonical(), KeyID: id, Answers: answers,
		Answering: len(answers) > 0, Distinct: true, Claim: newID(), For: seconds(120), By: "worker",
	}
}

// claim claims an effect that must be granted.
func (w *worker) claim(h *ledger.Handle, q fence.ClaimRequest) fence.ClaimVerdict {
	w.Helper()
	v, _, err := h.Claim(w.ctx, q)
	if err != nil || v.Call == nil {
		w.Fatalf("claim %s %s: %s, %v", q.Intent, q.Key, verdict(v), err)
	}
	return v
}

// settle settles a granted claim; that must be recorded.
func (w *worker) settle(h *ledger.Handle, v fence.ClaimVerdict, state fence.State, result string) fence.SettleVerdict {
	w.Helper()
	got, _, err := h.Settle(w.ctx, outcome(v, state, result))
	if err != nil || !got.Recorded {
		w.Fatalf("settle: %+v, %v", got, err)
	}
	return got
}

func outcome(v fence.ClaimVerdict, state fence.State, result string) fence.SettleRequest {
	q := fence.SettleRequest{Effect: v.Effect.ID, Claim: v.Call.Claim, State: state, Granted: v.Effect}
	if state == fence.Committed {
		q.Result = []byte(result)
	} else {
		q.Error = result
	}
	return q
}

// once does an effect that must be new, from claim to settle.
func (w *worker) once(h *ledger.Handle, q fence.ClaimRequest, result string) {
	w.Helper()
	w.settle(h, w.claim(h, q), fence.Committed, result)
}

func verdict(v fence.ClaimVerdict) string {
	switch {
	case v.Call != nil:
		return fmt.Sprintf("call %d %s", v.Call.Number, v.Call.State)
	case v.Replay != nil:
		return fmt.Sprintf("replay of call %d: %q", v.Replay.Number, v.Replay.Result)
	case v.Refusal != nil:
		return "refused " + string(v.Refusal.Reason)
	}
	return "nothing"
}

// summary is what a conversation remembers, without times and random ids.
func (w *worker) summary(conversation string) string {
	w.Helper()
	h, err := w.History(w.ctx, conversation)
	if err != nil {
		w.Fatalf("history: %v", err)
	}
	var s strings.Builder
	for _, r := range h.Runs {
		fmt.Fprintf(&s, "run %s: %s %s, generation %d, delivery %d, wrote %v, progress %q\n", r.Key.Queue, r.State, r.End, r.Generation, r.Delivery.Number, r.Wrote, r.Progress)
	}
	for _, e := range h.Effects {
		fmt.Fprintf(&s, "effect %s %s: %s\n", e.Intent, e.Key, e.State())
		for _, c := range e.Calls {
			fmt.Fprintf(&s, "  call %d: %s, result %q, error %q, late %v, not started %v\n", c.Number, c.State, c.Result, c.Error, c.Late, c.NotStarted)
		}
	}
	for _, in := range h.Inbound {
		fmt.Fprintf(&s, "inbound: registered %v, closed %v, dismissed %q, answered %d\n", in.Registered, in.Closed(), in.Dismissed, len(in.Answered))
	}
	fmt.Fprintf(&s, "%d reports\n", len(h.Reports))
	if h.Head != nil {
		fmt.Fprintf(&s, "%d seats, %d unresolved, %d landed\n", len(h.Head.Seats), len(h.Head.Unresolved), len(h.Head.Landed))
	}
	return s.String()
}

package ledgertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
)

// Same plays one sequence of steps operations, drawn from seed, through stores that share a clock
// and random ids. All must answer alike and hold the same after every step: what a store does
// differently would be a rule of its own.
func Same(t *testing.T, seed uint64, steps int, open ...func(t *testing.T, s *seam.Seam) ledger.Store) {
	t.Helper()
	worlds := make([]*twin, len(open))
	for i, o := range open {
		worlds[i] = newTwin(t, seed, o)
	}
	for n := range steps {
		var first, firstState string
		for i, w := range worlds {
			did := w.step()
			state := w.dump()
			if i == 0 {
				first, firstState = did, state
				continue
			}
			if did != first {
				t.Fatalf("seed %d, step %d: store %d answered differently:\n%s", seed, n, i, diff(did, first))
			}
			if state != firstState {
				t.Fatalf("seed %d, step %d (%.200s): store %d holds something else:\n%s", seed, n, did, i, diff(state, firstState))
			}
		}
	}
}

// twin is a store with two processes, all of whose chances are drawn from a seed.
type twin struct {
	t       *testing.T
	ctx     context.Context
	rnd     *rand.Rand
	clock   time.Time
	drawn   int
	store   ledger.Store
	ledgers []*ledger.Ledger
	handles []*ledger.Handle
	granted []fence.SettleRequest
	where   []string          // conversations of granted
	aliases map[string]string // of random ids, by their first appearance
	names   int
}

var twinConversations = []string{"one", "two\x00'%"}

func newTwin(t *testing.T, seed uint64, open func(t *testing.T, s *seam.Seam) ledger.Store) *twin {
	w := &twin{
		t: t, ctx: t.Context(), rnd: rand.New(rand.NewPCG(seed, 0)), clock: time.UnixMilli(1_800_000_000_000), aliases: map[string]string{},
	}
	s := *seam.Real()
	s.Now = func() time.Time { return w.clock }
	s.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	s.Jitter = func(time.Duration) time.Duration { return 0 }
	s.NewID = func() string {
		w.drawn++
		return fmt.Sprintf("drawn-%d.", w.drawn)
	}
	w.store = open(t, &s)
	for range 2 {
		w.ledgers = append(w.ledgers, ledger.New(w.store, ledger.Options{
			Seam: &s, Rules: fence.Rules{Lease: seconds(30), Quiet: seconds(120), Retention: seconds(1800), MaxCalls: 3},
		}))
	}
	return w
}

func (w *twin) name() string {
	w.names++
	return fmt.Sprint("name-", w.names)
}

func pick[T any](w *twin, of []T) T { return of[w.rnd.IntN(len(of))] }

func (w *twin) ids(prefix string, n int) []string {
	var ids []string
	for range w.rnd.IntN(n) {
		if id := fmt.Sprint(prefix, w.rnd.IntN(5)); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// says writes a verdict as text.
func says(what string, v any, err error) string {
	text, e := json.Marshal(v, json.OmitZeroStructFields(true))
	if e != nil {
		return fmt.Sprintf("%s: cannot be written: %v", what, e)
	}
	return fmt.Sprintf("%s: %s\nerror: %v", what, text, err)
}

// step does one random operation and says what was answered.
func (w *twin) step() string {
	w.clock = w.clock.Add(time.Duration(w.rnd.IntN(3000)) * time.Millisecond)
	if w.rnd.IntN(20) == 0 {
		w.clock = w.clock.Add(time.Duration(w.rnd.IntN(40)) * time.Minute)
	}
	l, c := pick(w, w.ledgers), pick(w, twinConversations)
	var said string
	if n := w.rnd.IntN(100); n < 70 && len(w.handles) > 0 {
		said = w.run(c)
	} else {
		said = w.outside(l, c)
	}
	return w.alias(said)
}

// run does something with the right of a delivery.
func (w *twin) run(string) string {
	h := pick(w, w.handles)
	switch n := w.rnd.IntN(100); {
	case n < 35:
		q := w.claimRequest()
		v, now, err := h.Claim(w.ctx, q)
		if v.Call != nil {
			w.granted = append(w.granted, fence.SettleRequest{Effect: q.Effect, Claim: q.Claim, Granted: v.Effect})
			w.where = append(w.where, "")
		}
		return says("claim", []any{v, now}, err)
	case n < 60 && len(w.granted) > 0:
		i := w.rnd.IntN(len(w.granted))
		if w.where[i] != "" {
			return "nothing"
		}
		q := w.outcome(i)
		v, now, err := h.Settle(w.ctx, q)
		return says("settle", []any{v, now}, err)
	case n < 70:
		v, now, err := h.CatchUp(w.ctx)
		return says("catch up", []any{v, now}, err)
	case n < 76:
		v, now, err := h.End(w.ctx, pick(w, []fence.EndReason{fence.EndSuccess, fence.EndDiscarded, fence.EndSuperseded}))
		return says("end", []any{v, now}, err)
	case n < 82:
		v, err := h.Release(w.ctx, pick(w, []fence.Reason{"", fence.ReasonAmbiguous}))
		return says("release", v, err)
	case n < 90:
		v, now, err := h.Beat(w.ctx, w.rnd.IntN(2) == 0)
		return says("beat", []any{v, now}, err)
	case n < 93:
		v, err := h.SaveProgress(w.ctx, []byte(w.name()))
		return says("save progress", v, err)
	case n < 96:
		v, err := h.Dismiss(w.ctx, w.ids("m", 3), "why")
		return says("dismiss", v, err)
	default:
		v, err := w.ledgers[0].Renew(w.ctx, []ledger.LeaseKey{h.Lease(), pick(w, w.handles).Lease()}, time.Minute)
		var moved []bool
		for _, r := range v {
			moved = append(moved, h.Moved(w.ctx, r.Tag))
		}
		return says("renew", []any{v, moved}, err)
	}
}

func (w *twin) claimRequest() fence.ClaimRequest {
	intent := pick(w, []string{"reply", "tag", "refund"})
	id := fmt.Sprint("m", w.rnd.IntN(5))
	q := fence.ClaimRequest{
		Effect: "effect-" + intent + id, Intent: intent, Key: `"` + id + `"`, KeyID: id, Answering: intent == "reply", Distinct: intent == "tag",
		Claim: w.name(), For: seconds(60 + w.rnd.IntN(120)), By: "w", Summary: "does " + intent, Repeatable: w.rnd.IntN(8) == 0,
		Policy: pick(w, []fence.Policy{fence.AnyChange, fence.AnyChange, fence.SameIntent, fence.NoChange}), AfterUnresolved: w.rnd.IntN(6) == 0,
	}
	if intent == "reply" && w.rnd.IntN(2) == 0 {
		q.Answers = w.ids("m", 3)
	}
	if w.rnd.IntN(5) == 0 {
		q.Params = pick(w, []string{`1`, `2`})
	}
	if w.rnd.IntN(6) == 0 {
		q.KeyWindow = seconds(600)
	}
	return q
}

func (w *twin) outcome(i int) fence.SettleRequest {
	q := w.granted[i]
	q.State = pick(w, []fence.State{fence.Committed, fence.Committed, fence.Failed, fence.Ambiguous})
	switch q.State {
	case fence.Committed:
		q.Result = []byte(w.name())
		if w.rnd.IntN(3) == 0 {
			q.Reference = fmt.Sprint("ref", w.rnd.IntN(4))
		}
	default:
		q.Error = "went wrong\xff"
	}
	return q
}

// outside does something without a delivery, or begins one.
func (w *twin) outside(l *ledger.Ledger, c string) string {
	run := fence.RunKey{Queue: "q", ID: fmt.Sprint("j", w.rnd.IntN(8))}
	switch n := w.rnd.IntN(100); {
	case n < 40:
		q := fence.BeginRequest{
			Run: run, Digest: fmt.Sprint("d", w.rnd.IntN(8)/7), Mode: pick(w, []fence.Mode{fence.Supersede, fence.Supersede, fence.Exclusive}),
			Reads: pick(w, []fence.Reads{fence.AfterBegin, fence.FromPayload}), Inbound: w.ids("m", 4),
			Identity: fence.Identity{Nonce: w.name()},
		}
		if w.rnd.IntN(3) > 0 {
			q.Order = fence.Order{Source: "s", Number: int64(w.rnd.IntN(20))}
		}
		h, v, now, err := l.Begin(w.ctx, c, q)
		if h != nil {
			w.handles = append(w.handles, h)
			if len(w.handles) > 6 {
				w.handles[0].Close()
				w.handles = w.handles[1:]
			}
		}
		return says("begin", []any{v, now}, err)
	case n < 50:
		q := w.claimRequest()
		v, now, err := l.Claim(w.ctx, c, q)
		if v.Call != nil {
			w.granted = append(w.granted, fence.SettleRequest{Effect: q.Effect, Claim: q.Claim, Granted: v.Effect})
			w.where = append(w.where, c)
		}
		return says("outside claim", []any{v, now}, err)
	case n < 58 && len(w.granted) > 0:
		i := w.rnd.IntN(len(w.granted))
		if w.where[i] != "" {
			c = w.where[i]
		}
		v, now, err := l.Settle(w.ctx, c, w.outcome(i))
		return says("outside settle", []any{v, now}, err)
	case n < 63:
		v, err := l.Report(w.ctx, c, fence.ReportRequest{
			ID: fmt.Sprint("rep", w.rnd.IntN(6)), Intent: pick(w, []string{"", "reply", "note"}), Answers: w.ids("m", 3),
			Reference: pick(w, []string{"", "ref1", "ref2"}), By: "agent",
		})
		return says("report", v, err)
	case n < 68:
		v, now, err := l.Resolve(w.ctx, c, fence.ResolveRequest{
			Effect: w.claimRequest().Effect, Happened: w.rnd.IntN(2) == 0, By: "op", Note: "note", Force: w.rnd.IntN(3) == 0,
		})
		return says("resolve", []any{v, now}, err)
	case n < 72:
		v, err := l.Cancel(w.ctx, fence.CancelRequest{Run: run, By: "op", Why: "why", Dismiss: w.rnd.IntN(2) == 0})
		return says("cancel", v, err)
	case n < 75:
		v, err := l.Dismiss(w.ctx, c, w.ids("m", 3), "spam")
		return says("outside dismiss", v, err)
	case n < 78:
		v, err := l.Stamp(w.ctx, c)
		return says("stamp", v, err)
	case n < 86:
		v, err := l.Purge(w.ctx, 1+w.rnd.IntN(20))
		return says("purge", v, err)
	case n < 90:
		v, now, err := l.Unresolved(w.ctx, seconds(w.rnd.IntN(60)), w.rnd.IntN(4))
		return says("unresolved", []any{v, now}, err)
	case n < 94:
		v, now, err := l.OpenInbound(w.ctx, seconds(w.rnd.IntN(60)), w.rnd.IntN(4))
		return says("open inbound", []any{v, now}, err)
	default:
		where, found, err := l.FindRun(w.ctx, run)
		h, err2 := l.History(w.ctx, c)
		return says("history", []any{where, found, h, fmt.Sprint(err2)}, err)
	}
}

// dump writes down all that the store holds.
func (w *twin) dump() string {
	var s strings.Builder
	for _, name := range twinConversations {
		c := ledger.ConversationKey("", name)
		snap, err := w.store.Load(w.ctx, c, ledger.Query{Tail: true, Open: true})
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintf(&s, "%q at %d: tag %s, %d open\n", name, snap.Now, snap.Tag, snap.OpenCount)
		if snap.Tag != "" {
			dumpRow(&s, snap.Head)
		}
		for _, l := range sortedLeases(snap.Leases) {
			fmt.Fprintf(&s, "  lease %q %q until %d\n", l.Run, l.Nonce, l.Until)
		}
		rows, err := w.store.Scan(w.ctx, ledger.Scan{Kind: ledger.ScanRows, Conversation: c, Limit: 10_000})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range rows {
			dumpRow(&s, f.Row)
		}
		for _, r := range append(snap.Tail, snap.Open...) {
			fmt.Fprintf(&s, "  tail or open: %q\n", r.Key)
		}
	}
	for i := range 8 {
		run := "0:/" + fence.RunRow(fence.RunKey{Queue: "q", ID: fmt.Sprint("j", i)})
		home, err := w.store.FindRun(w.ctx, run)
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintf(&s, "home of %d: %v %q %s\n", i, home.Found, home.Conversation, home.Tombstone)
	}
	return w.alias(s.String())
}

func dumpRow(s *strings.Builder, r ledger.Row) {
	body, err := r.Body()
	fmt.Fprintf(s, "  row %q %+v %s %v\n", r.Key, r.Index, body, err)
}

var drawnID = regexp.MustCompile(`drawn-\d+\.`)

// alias names random ids by the order in which they appear: how many a store makes the ledger
// draw is its own business.
func (w *twin) alias(text string) string {
	return drawnID.ReplaceAllStringFunc(text, func(id string) string {
		if w.aliases[id] == "" {
			w.aliases[id] = fmt.Sprint("random-", len(w.aliases))
		}
		return w.aliases[id]
	})
}

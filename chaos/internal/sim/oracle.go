package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

// spyStore reads the database without being part of the world.
type spyStore struct {
	ledger.Store
	w *World
}

func (s spyStore) Load(ctx context.Context, conv string, q ledger.Query) (ledger.Snapshot, error) {
	return s.w.db.inner.Load(ctx, conv, q)
}

func (s spyStore) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	return s.w.db.inner.Scan(ctx, q)
}

func (w *World) look() *runs.Keeper {
	if w.spy == nil {
		k, err := runs.NewSeamed(spyStore{w: w}, &runs.Config{Worker: "spy"}, &seam.Seam{
			Now: w.db.clock, NewLock: func() seam.Lock { return freeLock{} }, NewID: func() string { return "spy" },
			Jitter: func(time.Duration) time.Duration { return 0 },
		})
		if err != nil {
			panic(err)
		}
		w.spy = k
	}
	return w.spy
}

// peek reads rows of the conversation, its head and its leases.
func (w *World) peek(rows ...string) (fence.View, bool) {
	glass := w.glassy()
	last := &w.glimpse
	if last.version == w.db.version && last.at == w.now && last.view.Head != nil && !slices.ContainsFunc(rows, func(r string) bool { return !slices.Contains(last.rows, r) }) {
		return last.view, true
	}
	v, err := glass.Look(context.Background(), "c", rows...)
	if err != nil {
		w.fail("ledger", "look: %v", err)
	}
	last.version, last.at, last.view = w.db.version, w.now, v
	last.rows = append(last.rows[:0], rows...)
	return v, err == nil && v.Head != nil
}

// glassy returns a ledger that only looks.
func (w *World) glassy() *ledger.Ledger {
	if w.glass == nil {
		w.glass = ledger.New(spyStore{w: w}, ledger.Options{
			Rules: fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3},
			Seam:  &seam.Seam{Now: w.db.clock, NewLock: func() seam.Lock { return freeLock{} }, NewID: func() string { return "spy" }},
		})
	}
	return w.glass
}

// glimpse is what peek saw last: several oracles look at one moment.
type glimpse struct {
	version int
	at      int64
	rows    []string
	view    fence.View
}

func (w *World) runRow(j *job) string {
	return fence.RunRow(fence.RunKey{Queue: w.queueKey(), ID: j.id})
}

type freeLock struct{}

func (freeLock) Lock(context.Context) error { return nil }
func (freeLock) Unlock()                    {}

func (w *World) big(err error) bool {
	if err == nil && w.tally.big {
		w.tally.big = false
		return true
	}
	return false
}

// returned checks what Once said against what the provider saw.
func (w *World) returned(h *hand, s *send, with runs.With, called, applied bool, value string, err error) {
	if w.keep {
		w.note(h.t, fmt.Sprintf("  %s → %v", s, describe(err)), NoFault)
	}
	w.cov.outcome(called, err)
	var refused *runs.RefusedError
	var outcome *runs.OutcomeError
	s.done = err == nil && called
	if errors.Is(err, runs.ErrNotStarted) {
		w.notStarted[key.IdempotencyKey(outcomeOf(err).Effect.ID)]++
	}
	if errors.As(err, &outcome) && outcome.Outcome == runs.OutcomeFailed && outcome.Recorded && !errors.Is(err, runs.ErrNotStarted) {
		w.refusals[s.idem]++
	}
	if errors.As(err, &outcome) && outcome.Outcome == runs.OutcomeAmbiguous && outcome.Recorded || s.done {
		if !slices.ContainsFunc(w.landings, func(l landing) bool { return l.s.done && l.s.intent == s.intent && l.s.name == s.name }) {
			w.unland(s) // what the effect came to last is what counts
			w.landings = append(w.landings, landing{h: h, s: s, step: h.t.stored})
		}
	}
	if err == nil || errors.Is(err, runs.ErrValueNotKept) {
		for i, id := range messageNames {
			if slices.Contains(with.Answers, id) && w.prov.agent[i] == 0 && w.prov.human[i] == 0 && !w.excused(i) && w.isOpen(id) {
				w.fail("covered", "%s is reported as done and %s, which it was to answer, is unanswered", s, id)
			}
		}
	}
	switch {
	case (err == nil || errors.Is(err, runs.ErrValueNotKept)) && !called:
		*h.replays = append(*h.replays, s)
		if s.intent == "refund" && err == nil {
			w.replayed(s, value)
		}
	case err == nil && called:
		// Its function may have failed after the provider did it, and an echo said so.
		if !applied && !slices.ContainsFunc(w.prov.done, func(d *send) bool { return d.idem == s.idem }) {
			w.fail("executed", "%s is reported as done and its function failed", s)
		}
		w.tally.executed = append(w.tally.executed, s)
	case errors.As(err, &refused):
		if called && refused.Reason != fence.ReasonValueNotKept {
			w.fail("refused", "%s was refused (%s) and called", s, refused.Reason)
		}
		w.refusedOnce(h, s, refused)
	}
}

func outcomeOf(err error) *runs.OutcomeError {
	outcome := &runs.OutcomeError{}
	errors.As(err, &outcome)
	return outcome
}

func (w *World) unland(s *send) {
	w.landings = slices.DeleteFunc(w.landings, func(l landing) bool { return l.s.intent == s.intent && l.s.name == s.name })
}

// isOpen reports whether the ledger holds a message for open: a job named it and nothing
// answered it.
func (w *World) isOpen(id string) bool {
	v, ok := w.peek(fence.InboundRow(id))
	in, _ := v.Rows[fence.InboundRow(id)].(*fence.Inbound)
	return ok && in != nil && in.Registered && !in.Closed()
}

// refusedOnce checks what a refusal says.
func (w *World) refusedOnce(h *hand, s *send, e *runs.RefusedError) {
	h.t.saw(hashString(string(e.Reason)))
	last := h.t.d != nil && h.t.d.n == h.j.deliveries
	if e.Reason == fence.ReasonEnded && !e.Refusal.Stale && last && !h.over && w.tally.Lost == 0 {
		if v, ok := w.peek(w.runRow(h.j)); ok {
			if run, _ := v.Rows[w.runRow(h.j)].(*fence.Run); run != nil && run.End == fence.EndSuperseded {
				return // a later delivery was told so when it began
			}
		}
		w.fail("ended", "%s is refused (ended) to the current delivery of %s", s, h.j.id)
	}
	if e.Reason == fence.ReasonConversationChanged && !e.Refusal.ComeBack {
		h.refusal = s.name
		for _, c := range e.Conflicts {
			h.refusal += fmt.Sprint(" ", c.Seq)
		}
	}
	if e.Reason == fence.ReasonLeaseLost && w.cfg.Mode != runs.Exclusive {
		w.fail("lease", "%s is refused because a lease ran out, which in mode supersede is nothing", s)
	}
	for i := range w.landings {
		l := &w.landings[i]
		if l.s != nil && l.s.done && l.s.intent == s.intent && l.s.name == s.name && l.step < h.began && h.conv == "c" && w.tally.Lost == 0 &&
			e.Effect.Intent != "" && s.params == l.s.params && s.real == l.s.real && e.Reason != fence.ReasonParamsChanged && e.Reason != fence.ReasonAlreadyAnswered && e.Reason != fence.ReasonValueNotKept {
			w.fail("no replay", "%s is refused (%s) although it was done before", s, e.Reason)
		}
	}
	if id, _ := key.EffectOf(s.idem); e.Reason == fence.ReasonExhausted && id == "" {
		idem := key.IdempotencyKey(e.Effect.ID)
		if w.refusals[idem]+w.denied < 3 && w.notStarted[idem] > 0 && h.j.h.Name != "parallel" && w.tally.Lost == 0 && w.crashes == 0 {
			w.fail("exhausted", "%s is exhausted after %d calls that are known not to have applied", s, w.refusals[idem])
		}
	}
	for _, c := range e.Conflicts {
		if c.State == fence.Pending && c.ID == e.Effect.ID && c.Run.ID == h.j.id && c.Delivery == h.delivery && !h.j.reused && w.tally.Lost == 0 {
			w.fail("own claim", "%s is refused (%s) by its own claim", s, e.Reason)
		}
		if c.Report && strings.HasPrefix(c.ID, "echo") {
			w.fail("echo", "%s is refused (%s) because of our own effect's echo %s", s, e.Reason, c.ID)
		}
		if c.State == fence.Pending && e.Refusal.ComeBack {
			h.waits = append(h.waits, wait{key.IdempotencyKey(c.ID), c.Deadline})
		}
	}
}

// replayed: a stored result must be the one that the provider gave.
func (w *World) replayed(s *send, value string) {
	for _, have := range w.prov.done {
		if have.intent == s.intent && have.name == s.name {
			if have.params != s.params {
				w.fail("params", "%s is replayed with %q and was done with %q", s, s.params, have.params)
			}
			if have.value != value {
				w.fail("replay", "%s is replayed as %q and was %q", s, value, have.value)
			}
			return
		}
	}
	w.fail("replay", "%s is replayed and never happened", s)
}

func describe(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}

func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// truthful compares the ledger with the provider's record.
func (w *World) truthful() {
	w.idle()
	hist, ok := w.history()
	if !ok {
		return
	}
	for _, e := range hist.Effects {
		idem := key.IdempotencyKey(e.ID)
		n := 0
		for _, s := range w.prov.done {
			if s.idem == idem {
				n++
			}
		}
		switch e.State() {
		case fence.Committed:
			if n == 0 {
				w.fail("untrue", "%s %s is committed and never happened", e.Intent, e.Key)
			}
		case fence.Failed:
			if n > 0 {
				w.fail("untrue", "%s %s is failed and happened", e.Intent, e.Key)
			}
		case fence.Pending:
			w.fail("pending", "%s %s is pending after everything has ended", e.Intent, e.Key)
		}
		calls := 0
		for i := range e.Calls {
			if c := &e.Calls[i]; c.State == fence.Committed && c.ResolvedBy == "" && w.echoed == 0 && !slices.Contains(w.prov.yes, c.Fence) {
				w.fail("untrue", "call %d of %s %s is committed and the provider did not do that call", c.Number, e.Intent, e.Key)
			}
			if e.Calls[i].State == fence.Pending {
				calls++
			}
		}
		if calls > 1 {
			w.fail("pending", "%s %s has %d pending calls", e.Intent, e.Key, calls)
		}
	}
	told := w.tally.executed
	if w.tally.Lost > 0 {
		if w.calmed {
			return
		}
		told = w.confirmed
	}
	for _, s := range told {
		i := slices.IndexFunc(hist.Effects, func(e *runs.EffectRecord) bool { return key.IdempotencyKey(e.ID) == s.idem })
		if i < 0 || hist.Effects[i].State() != fence.Committed {
			w.fail("final", "%s was recorded as done and is not any more", s)
		}
	}
}

// settle is what "eventually" means: faults have stopped and everything that waited has
// happened.
func (w *World) eventually() {
	for i := range w.arrived {
		if w.prov.agent[i] > 0 || w.prov.human[i] > 0 {
			continue
		}
		if why := w.accounted(i); why == "" {
			w.fail("lost", "message %s is unanswered and nobody knows: %s", messageID(i), w.busy())
		}
	}
}

// accounted says where an unanswered message can be seen.
func (w *World) accounted(i int) string {
	noInbound := false
	for _, j := range w.jobs {
		if j.h.NoInbound {
			noInbound = true
		}
		if j.msg == i && (j.state == parked || j.state == discarded || j.exempt || j.h.Ignores && i%2 == 1) {
			return j.state.String()
		}
	}
	if w.kinds[0].Ignores && i%2 == 1 || w.kinds[1].Ignores && i%2 == 1 {
		return "dismissed"
	}
	if noInbound {
		return "not named"
	}
	hist, err := w.look().History(context.Background(), "c")
	if err != nil {
		return ""
	}
	for _, e := range hist.Effects {
		c := e.Deciding()
		if c.State == fence.Ambiguous && slices.Contains(c.Answers, messageID(i)) {
			return "ambiguous"
		}
	}
	for _, in := range hist.Inbound {
		if in.ID == messageID(i) && !in.Closed() {
			return "listed as open"
		}
	}
	return ""
}

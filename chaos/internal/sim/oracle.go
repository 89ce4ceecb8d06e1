package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

type freeLock struct{}

func (freeLock) Lock(context.Context) error { return nil }
func (freeLock) Unlock()                    {}

// executedBy is what the library said about an effect that it called.
type executedBy struct {
	s       *send
	effect  string
	settled bool
}

// granted is called when an effect's function is entered: is it entitled to?
func (w *World) granted(h *hand, s *send, call *runs.Call, with runs.With) {
	s.idem, s.fence = call.IdempotencyKey, call.Fence
	for _, g := range w.tally.fences {
		if g == call.Fence {
			w.fail("fence", "fence number %d was handed out twice, to %s", call.Fence, s)
		}
	}
	w.tally.fences = append(w.tally.fences, call.Fence)
	hist, err := w.look().History(context.Background(), "c")
	if err != nil {
		w.fail("ledger", "history: %v", err)
		return
	}
	found := false
	for _, e := range hist.Effects {
		if key.IdempotencyKey(e.ID) != call.IdempotencyKey {
			continue
		}
		pending := 0
		for i := range e.Calls {
			c := &e.Calls[i]
			if c.State == fence.Pending || c.State == fence.Ambiguous && c.Fence == call.Fence {
				// A call that lapsed between its claim and here still has its own try.
				found = found || c.Fence == call.Fence
			}
			if c.State == fence.Pending {
				pending++
			}
			if c.Fence != call.Fence && c.State == fence.Committed {
				w.fail("grant", "%s is called although call %d is committed", s, c.Number)
			}
		}
		if pending > 1 {
			w.fail("grant", "%d calls of %s are pending at once", pending, s)
		}
	}
	if !found {
		w.fail("grant", "%s is called with no claim in the ledger", s)
	}
	if told := w.human.told & s.real; told != 0 && w.human.toldAt < h.t.stored && w.human.toldAt != 0 && s.intent == "reply" && !h.j.h.NoInbound {
		w.fail("stale view", "%s is sent although a person's answer to %v had been reported before the claim", s, ids(told))
	}
}

func (w *World) big(err error) bool {
	if err == nil && w.tally.big {
		w.tally.big = false
		return true
	}
	return false
}

// returned checks what Once said against what the provider saw.
func (w *World) returned(h *hand, s *send, called, applied bool, value string, err error) {
	if w.keep {
		w.note(h.t, fmt.Sprintf("  %s → %v", s, describe(err)), NoFault)
	}
	w.cov.outcome(called, err)
	var refused *runs.RefusedError
	switch {
	case err == nil && !called:
		if s.intent == "refund" {
			w.replayed(s, value)
		}
	case err == nil && called:
		if !applied {
			w.fail("executed", "%s is reported as done and its function failed", s)
		}
		w.tally.executed = append(w.tally.executed, s)
	case errors.As(err, &refused):
		if called && refused.Reason != runs.Reason(fence.ReasonValueNotKept) {
			w.fail("refused", "%s was refused (%s) and called", s, refused.Reason)
		}
		h.t.saw(hashString(string(refused.Reason)))
	}
}

// replayed: a stored result must be the one that the provider gave.
func (w *World) replayed(s *send, value string) {
	for _, have := range w.prov.done {
		if have.intent == s.intent && have.name == s.name {
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

func (t *task) saw(v uint64) { t.obs = (t.obs ^ v) * 0x100000001b3 }

func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// truthful compares the ledger with the provider's record.
func (w *World) truthful() {
	hist, err := w.look().History(context.Background(), "c")
	if err != nil {
		w.fail("ledger", "history: %v", err)
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
			if e.Calls[i].State == fence.Pending {
				calls++
			}
		}
		if calls > 1 {
			w.fail("pending", "%s %s has %d pending calls", e.Intent, e.Key, calls)
		}
	}
	if w.tally.Lost > 0 {
		return
	}
	for _, s := range w.tally.executed {
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

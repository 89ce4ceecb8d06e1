package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

// process is a ledger over a counted memory store, both on a clock that the test moves.
type process struct {
	*ledger.Ledger
	t     *testing.T
	store ledger.Store
	calls *ledgertest.Counter
	now   time.Time
	drawn int
}

func start(t *testing.T) *process {
	p := &process{t: t, now: time.UnixMilli(1_800_000_000_000)}
	s := *seam.Real()
	s.Now = func() time.Time { return p.now }
	store, calls := ledgertest.Counting(memledger.NewSeamed(&s))
	p.store, p.calls = store, calls
	p.Ledger = ledger.New(store, ledger.Options{
		Seam: &s, Rules: fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3},
	})
	return p
}

func (p *process) id() string {
	p.drawn++
	return fmt.Sprint("id", p.drawn)
}

func (p *process) begin(conversation, id string, order int64) *ledger.Handle {
	p.t.Helper()
	h, v, _, err := p.Begin(p.t.Context(), conversation, fence.BeginRequest{
		Run: fence.RunKey{Queue: "q", ID: id}, Order: fence.Order{Source: "s", Number: order}, Mode: fence.Supersede, Reads: fence.AfterBegin,
		Identity: fence.Identity{Nonce: p.id()},
	})
	if err != nil || h == nil {
		p.t.Fatalf("begin: %+v, %v", v, err)
	}
	return h
}

func (p *process) claim(h *ledger.Handle, effect string) fence.ClaimVerdict {
	p.t.Helper()
	v, _, err := h.Claim(p.t.Context(), p.effect(effect))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (p *process) effect(id string) fence.ClaimRequest {
	return fence.ClaimRequest{Effect: id, Intent: "tag", Key: id, Distinct: true, Claim: p.id(), For: 120_000}
}

func TestALongThoughtCostsNoCallWhileTheRunIsRenewed(t *testing.T) {
	p := start(t)
	h := p.begin("c", "j", 1)
	for range 12 {
		p.now = p.now.Add(10 * time.Second)
		if r, err := p.Renew(t.Context(), []ledger.LeaseKey{h.Lease()}, 30*time.Second); err != nil || !r[0].Found {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	p.calls.Take()
	if v := p.claim(h, "e"); v.Call == nil || v.Call.At != fence.Millis(p.now.UnixMilli()) {
		t.Errorf("after two minutes: %+v", v)
	}
	if n := p.calls.Take(); n.Calls() != 1 {
		t.Errorf("after two minutes: %v", n)
	}
	// Without renewals the lease must be asked for, once.
	p.now = p.now.Add(2 * time.Minute)
	p.claim(h, "e2")
	if n := p.calls.Take(); n.Calls() != 2 {
		t.Errorf("after two minutes without a beat: %v", n)
	}
	p.claim(h, "e3")
	if n := p.calls.Take(); n.Calls() != 1 {
		t.Errorf("right after it: %v", n)
	}
}

func TestTwoRunsOfOneProcessDoNotMakeEachOtherAsk(t *testing.T) {
	p := start(t)
	a, b := p.begin("c", "a", 0), p.begin("c", "b", 0)
	p.claim(a, "warm a")
	p.claim(b, "warm b")
	p.calls.Take()
	for i := range 20 {
		q := p.effect(fmt.Sprint("a", i))
		q.Policy = fence.NoChange
		if v, _, err := a.Claim(t.Context(), q); err != nil || v.Call == nil {
			t.Fatalf("%+v, %v", v, err)
		}
		q = p.effect(fmt.Sprint("b", i))
		q.Policy = fence.NoChange
		if v, _, err := b.Claim(t.Context(), q); err != nil || v.Call == nil {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if n := p.calls.Take(); n.Calls() != 40 {
		t.Errorf("40 claims: %v", n)
	}
}

func TestNothingIsKeptOfWhatIsClosed(t *testing.T) {
	p := start(t)
	for i := range 100 {
		h := p.begin(fmt.Sprint("c", i), fmt.Sprint("j", i), 0)
		h.Close()
		h.Close()
	}
	keep := p.begin("keep", "keep", 0)
	p.begin("keep", "other", 0).Close()
	if _, err := p.Stamp(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if n := ledger.Held(p.Ledger); n != 1 {
		t.Errorf("%d conversations are held, want the one with an open handle", n)
	}
	if v := p.claim(keep, "e"); v.Call == nil {
		t.Errorf("%+v", v)
	}
	keep.Close()
	if n := ledger.Held(p.Ledger); n != 0 {
		t.Errorf("%d conversations are held", n)
	}
}

func TestAnObserverMayAskTheLedger(t *testing.T) {
	p := start(t)
	asked := 0
	p.Emit = func(ctx context.Context, conversation string, events []fence.Event) {
		for range events {
			if _, err := p.Look(ctx, conversation); err != nil {
				t.Error(err)
			}
			asked++
		}
	}
	p.claim(p.begin("c", "j", 0), "e")
	if asked < 2 {
		t.Errorf("%d events", asked)
	}
}

func TestWhatLookShowsIsTheReadersOwn(t *testing.T) {
	p := start(t)
	h := p.begin("c", "j", 0)
	defer h.Close()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				for _, c := range []string{"c", "unknown"} {
					view, err := p.Look(t.Context(), c, "e/1", fence.RunRow(h.Delivery().Run))
					if err != nil {
						t.Error(err)
					}
					clear(view.Rows)
					clear(view.Leases)
				}
				mu.Lock()
				q := p.effect(fmt.Sprint(i, p.id()))
				mu.Unlock()
				if v, _, err := h.Claim(t.Context(), q); err != nil || v.Call == nil {
					t.Errorf("%+v, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestErrorsNameTheVerb(t *testing.T) {
	p := start(t)
	h := p.begin("c", "j", 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for verb, do := range map[string]func() error{
		"begin":         func() error { _, _, _, err := p.Begin(ctx, "c", fence.BeginRequest{}); return err },
		"claim":         func() error { _, _, err := h.Claim(ctx, p.effect("e")); return err },
		"settle":        func() error { _, _, err := h.Settle(ctx, fence.SettleRequest{}); return err },
		"catch up":      func() error { _, _, err := h.CatchUp(ctx); return err },
		"end":           func() error { _, _, err := h.End(ctx, fence.EndSuccess); return err },
		"release":       func() error { _, err := h.Release(ctx, ""); return err },
		"beat":          func() error { _, _, err := h.Beat(ctx, false); return err },
		"save progress": func() error { _, err := h.SaveProgress(ctx, nil); return err },
		"dismiss":       func() error { _, err := h.Dismiss(ctx, []string{"m"}, ""); return err },
		"stamp":         func() error { _, err := p.Stamp(ctx, "c"); return err },
		"report":        func() error { _, err := p.Report(ctx, "c", fence.ReportRequest{ID: "r"}); return err },
		"resolve":       func() error { _, _, err := p.Resolve(ctx, "c", fence.ResolveRequest{}); return err },
		"cancel":        func() error { _, err := p.Cancel(ctx, fence.CancelRequest{}); return err },
		"find run":      func() error { _, _, err := p.FindRun(ctx, fence.RunKey{}); return err },
		"renew":         func() error { _, err := p.Renew(ctx, nil, 0); return err },
		"look":          func() error { _, err := p.Look(ctx, "c"); return err },
		"history":       func() error { _, err := p.History(ctx, "c"); return err },
		"unresolved":    func() error { _, _, err := p.Unresolved(ctx, 0, 1); return err },
		"open inbound":  func() error { _, _, err := p.OpenInbound(ctx, 0, 1); return err },
		"purge":         func() error { _, err := p.Purge(ctx, 1); return err },
	} {
		err := do()
		if err == nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", verb, err)
			continue
		}
		if verb != "history" && !strings.HasPrefix(err.Error(), "ledger: "+verb+": ") || strings.Count(err.Error(), "ledger: ") != 1 {
			t.Errorf("%s: %q", verb, err)
		}
	}
}

func TestAStaleDeliveryOfTheSameProcessIsNoticed(t *testing.T) {
	p := start(t)
	first := p.begin("c", "j", 0)
	second := p.begin("c", "j", 0)
	if v := p.claim(first, "e"); v.Refusal == nil || !v.Refusal.Stale {
		t.Errorf("the older delivery: %+v", v)
	}
	if v := p.claim(second, "e"); v.Call == nil {
		t.Errorf("the newer delivery: %+v", v)
	}
	if !first.Moved(t.Context(), "whatever") {
		t.Error("the older delivery's conversation has not moved")
	}
}

// meddled is a store that lets somebody else act in front of a call.
type meddled struct {
	ledger.Store
	load, find func()
}

func (s *meddled) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	snap, err := s.Store.Load(ctx, conversation, q)
	if s.load != nil && conversation == ledger.ConversationKey("", "c1") {
		do := s.load
		s.load = nil
		do()
	}
	return snap, err
}

func (s *meddled) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	home, err := s.Store.FindRun(ctx, run)
	if s.find != nil {
		do := s.find
		s.find = nil
		do()
	}
	return home, err
}

func TestARunThatMovesWhileOneLooksIsLookedForAgain(t *testing.T) {
	for _, what := range []string{"begin", "cancel"} {
		p := start(t)
		h := p.begin("c1", "j", 0)
		if v, _, err := h.End(t.Context(), fence.EndDiscarded); err != nil || v.Refusal != nil {
			t.Fatalf("%+v, %v", v, err)
		}
		store := &meddled{Store: p.store}
		other := ledger.New(store, p.Options)
		move := func() { p.begin("c2", "j", 0) }
		run := fence.RunKey{Queue: "q", ID: "j"}
		if what == "begin" {
			store.load = move
			h, v, _, err := other.Begin(t.Context(), "c3", fence.BeginRequest{Run: run, Mode: fence.Supersede, Reads: fence.AfterBegin, Identity: fence.Identity{Nonce: "x"}})
			if err != nil || h != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonConversationMismatch {
				t.Errorf("begin: %+v, %v, want refused: it is active elsewhere", v, err)
			}
			continue
		}
		store.find = move
		if v, err := other.Cancel(t.Context(), fence.CancelRequest{Run: run}); err != nil || !v.Cancelled {
			t.Errorf("cancel: %+v, %v", v, err)
		}
		view, err := p.Look(t.Context(), "c2", fence.RunRow(run))
		if r, _ := view.Rows[fence.RunRow(run)].(*fence.Run); err != nil || r == nil || r.State != fence.RunCancelled {
			t.Errorf("the run where it lives: %+v, %v", r, err)
		}
	}
}

func TestWhereARunLivesIsNotRemembered(t *testing.T) {
	p := start(t)
	h := p.begin("c1", "j", 0)
	defer h.Close() // the process goes on knowing the conversation
	if v, _, err := h.End(t.Context(), fence.EndDiscarded); err != nil || v.Refusal != nil {
		t.Fatalf("%+v, %v", v, err)
	}
	other := &process{Ledger: ledger.New(p.store, p.Options), t: t, drawn: 100}
	other.begin("c2", "j", 0)
	p.begin("c1", "another", 0).Close()
	p.begin("c1", "another", 0).Close() // looks it up: it lives here
	again, v, _, err := p.Begin(t.Context(), "c1", fence.BeginRequest{
		Run: fence.RunKey{Queue: "q", ID: "j"}, Mode: fence.Supersede, Reads: fence.AfterBegin, Identity: fence.Identity{Nonce: "x"},
	})
	if err != nil || again != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonConversationMismatch {
		t.Errorf("%+v, %v, want refused: it is active elsewhere", v, err)
	}
}

// land does an effect whatever has changed.
func (p *process) land(h *ledger.Handle, effect, intent string) {
	p.t.Helper()
	q := p.effect(effect)
	q.Intent, q.Policy = intent, fence.NoChange
	v, _, err := h.Claim(p.t.Context(), q)
	if err != nil || v.Call == nil {
		p.t.Fatalf("%+v, %v", v, err)
	}
	if s, _, err := h.Settle(p.t.Context(), fence.SettleRequest{Effect: q.Effect, Claim: q.Claim, State: fence.Committed}); err != nil || !s.Recorded {
		p.t.Fatalf("%+v, %v", s, err)
	}
}

func TestWhatLandedIsNotRemembered(t *testing.T) {
	p := start(t)
	first := p.begin("c", "j", 0)
	for i := range 2 * fence.MaxLanded {
		p.land(first, fmt.Sprint("first", i), "earlier")
	}
	second, stranger := p.begin("c", "j", 0), p.begin("c", "stranger", 0)
	p.calls.Take()
	if v := p.claim(second, "e"); v.Call == nil {
		t.Fatalf("%+v", v)
	}
	if n := p.calls.Take(); n.Loads == 0 {
		t.Fatalf("%v: what landed earlier was not looked up, so the test proves nothing", n)
	}
	// A stranger's write, which the head forgets over many of its own.
	p.land(stranger, "strange", "note")
	for i := range 2 * fence.MaxLanded {
		p.land(second, fmt.Sprint("second", i), "tag")
	}
	if v := p.claim(second, "e2"); v.Refusal == nil || v.Refusal.Reason != fence.ReasonConversationChanged {
		t.Errorf("%+v, want refused for the stranger's write", v)
	}
}

package ledgertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var clockTests = []test{
	{"workers' clocks may be ten minutes off", skewedClocks},
	{"a worker's clock may step", steppingClock},
	{"a lease is lost by the ledger's clock", leaseLapses},
	{"a claim lapses by the ledger's clock", claimLapses},
}

// clock starts a process whose clock shows the machine's plus what off says.
func clock(off func() time.Duration) func(*ledger.Options) {
	return func(o *ledger.Options) {
		s := *o.Seam
		s.Now = func() time.Time { return time.Now().Round(0).Add(off()) } // Round drops the monotonic reading
		o.Seam = &s
	}
}

func skewed(d time.Duration) func(*ledger.Options) {
	return clock(func() time.Duration { return d })
}

// steps is a clock that jumps by ten minutes to and fro at each look.
func steps() func(*ledger.Options) {
	var mu sync.Mutex
	n := 0
	return clock(func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		n++
		return time.Duration(n%3-1) * 10 * time.Minute
	})
}

func skewedClocks(b *bench) {
	offs := []time.Duration{-10 * time.Minute, 0, 10 * time.Minute}
	for i, a := range offs {
		for j, o := range offs {
			c := fmt.Sprintf("c%d%d", i, j)
			one, two := b.worker(b.store, skewed(a)), b.worker(b.other(), skewed(o))
			h1 := one.begin(c, ordered(job(c+"-1"), 1))
			h2 := two.begin(c, ordered(job(c+"-2"), 2))
			h2.Close()
			what := fmt.Sprintf("clocks at %v and %v", a, o)

			// The newer run is alive, for about a lease.
			now := b.load(c, ledger.Query{}).Now
			v, _, err := h1.Claim(b.ctx, one.effect(c, "reply", "m"))
			if err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonSuperseded || !v.Refusal.ComeBack || v.Refusal.At < now || v.Refusal.At > now+seconds(31) {
				b.Errorf("%s: claim of the older run at %d: %s %+v, %v", what, now, verdict(v), v.Refusal, err)
			}
			// Its claim is pending for about two minutes.
			claimed := two.claim(h2, two.effect(c, "reply", "m"))
			now = b.load(c, ledger.Query{}).Now
			if d := claimed.Call.Deadline - now; d < seconds(110) || d > seconds(121) {
				b.Errorf("%s: a deadline in two minutes is in %v", what, d.Duration())
			}
			v, _, err = one.Claim(b.ctx, c, one.effect(c, "reply", "m"))
			if err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonInFlight {
				b.Errorf("%s: what is pending: %s, %v", what, verdict(v), err)
			}
			if r, _, err := one.Resolve(b.ctx, c, fence.ResolveRequest{Effect: claimed.Effect.ID}); err != nil || !r.Early {
				b.Errorf("%s: resolved while the call is under way: %+v, %v", what, r, err)
			}
			if s := two.settle(h2, claimed, fence.Committed, "sent"); s.Late {
				b.Errorf("%s: a settle at once came late", what)
			}
			if p, err := one.Purge(b.ctx, 100); err != nil || p.Runs+p.Effects+p.Others > 0 {
				b.Errorf("%s: purged %+v, %v", what, p, err)
			}
		}
	}
}

func steppingClock(b *bench) {
	// The lease outlasts the claims, so that looking after it does not help.
	w, other := b.worker(b.store, steps(), leasing(seconds(3600))), b.worker(b.other())
	h := w.begin("c", job("j"))
	for i := range 30 {
		q := w.effect("c", "reply", fmt.Sprint("m", i))
		v := w.claim(h, q)
		q.Claim = newID()
		if got, _, err := other.Claim(b.ctx, "c", q); err != nil || got.Refusal == nil || got.Refusal.Reason != fence.ReasonInFlight {
			b.Fatalf("round %d: what is pending: %s, %v", i, verdict(got), err)
		}
		if s := w.settle(h, v, fence.Committed, "sent"); s.Late {
			b.Fatalf("round %d: a settle at once came late", i)
		}
	}
	for _, e := range append(w.events, other.events...) {
		if e.Kind == fence.EventLapsed || e.Kind == fence.EventLate {
			b.Errorf("event %s", e.Kind)
		}
	}
}

// until returns when a delivery's lease runs out.
func (b *bench) until(h *ledger.Handle) fence.Millis {
	b.Helper()
	k := h.Lease()
	until, ok := b.lease(k.Conversation, k.Run, k.Nonce)
	if !ok {
		b.Fatalf("no lease of %+v", k)
	}
	return until
}

// leasing sets the lease of rules: a short one runs out while a test waits.
func leasing(lease fence.Millis) func(*ledger.Options) {
	return func(o *ledger.Options) { o.Rules.Lease = lease }
}

func leaseLapses(b *bench) {
	for i, s := range []func(*ledger.Options){skewed(-10 * time.Minute), skewed(10 * time.Minute), steps()} {
		c := fmt.Sprint("c", i)
		old := b.worker(b.store, s)
		h := old.begin(c, ordered(job(c+"-1"), 1))
		newer := b.worker(b.other(), leasing(40))
		h2 := newer.begin(c, ordered(job(c+"-2"), 2))
		until := b.until(h2)
		v, now, err := h.Claim(b.ctx, old.effect(c, "reply", "m"))
		if now < until && (err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonSuperseded) {
			b.Errorf("clock %d: while the newer run is alive: %s, %v", i, verdict(v), err)
		}
		b.wait(until)
		if v, _, err := h.Claim(b.ctx, old.effect(c, "reply", "m2")); err != nil || v.Call == nil {
			b.Errorf("clock %d: after the newer run died: %s, %v", i, verdict(v), err)
		}
	}
	// Renewed from elsewhere, which the process cannot see.
	w, beats := b.worker(b.store), b.worker(b.other())
	h := w.begin("d", ordered(job("d1"), 1))
	h2 := b.worker(b.store, leasing(300)).begin("d", ordered(job("d2"), 2)) // long enough for one claim, also of a slow store
	until := b.until(h2)
	if v, now, err := h.Claim(b.ctx, w.effect("d", "reply", "m")); now < until && (err != nil || v.Refusal == nil) {
		b.Errorf("while the newer run is alive: %s, %v", verdict(v), err)
	}
	if _, err := beats.Renew(b.ctx, []ledger.LeaseKey{h2.Lease()}, time.Minute); err != nil {
		b.Fatal(err)
	}
	b.wait(until)
	if v, _, err := h.Claim(b.ctx, w.effect("d", "reply", "m2")); err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonSuperseded {
		b.Errorf("after the newer run's lease was renewed: %s, %v", verdict(v), err)
	}
}

func claimLapses(b *bench) {
	for i, s := range []func(*ledger.Options){skewed(-10 * time.Minute), skewed(10 * time.Minute), steps()} {
		c := fmt.Sprint("c", i)
		w := b.worker(b.store)
		h := w.begin(c, job(c))
		q := w.effect(c, "reply", "m")
		q.For = 20
		v := w.claim(h, q)
		b.wait(v.Call.Deadline)
		other := b.worker(b.other(), s)
		q.Claim = newID()
		got, _, err := other.Claim(b.ctx, c, q)
		if err != nil || got.Refusal == nil || got.Refusal.Reason != fence.ReasonAmbiguous {
			b.Errorf("clock %d: a claim past its deadline: %s, %v", i, verdict(got), err)
		}
		view, err := other.Look(b.ctx, c, fence.EffectRow(q.Effect))
		if e, _ := view.Rows[fence.EffectRow(q.Effect)].(*fence.Effect); err != nil || e == nil || e.State() != fence.Ambiguous {
			b.Errorf("clock %d: it looks like %+v, %v", i, e, err)
		}
		if s, _, err := h.Settle(b.ctx, outcome(v, fence.Committed, "sent after all")); err != nil || !s.Recorded || !s.Late {
			b.Errorf("clock %d: late evidence: %+v, %v", i, s, err)
		}
	}
}

package ledgertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var lostTests = []test{
	{"one lost call or answer, anywhere, changes nothing", oneLost},
	{"two lost in a row change nothing", twoLost},
	{"nor do they while somebody else writes", lostAndContended},
	{"a store that stays away grants nothing", staysAway},
}

// script is a life of a conversation with every kind of change. It returns what its caller was
// told. before is called before each step.
func script(w *worker, before func(conversation string)) string {
	w.bench.lives++
	n := w.bench.lives
	c := fmt.Sprint("conversation ", n)
	id := func(s string) string { return fmt.Sprintf("%s-%d", s, n) }
	var told strings.Builder
	step := func(name string, do func() (string, error)) {
		before(c)
		said, err := do()
		if err != nil {
			said = "error " + err.Error()
		}
		fmt.Fprintf(&told, "%s: %s\n", name, said)
	}
	var h *ledger.Handle
	begin := func(name string, q fence.BeginRequest) {
		step(name, func() (string, error) {
			got, v, _, err := w.Begin(w.ctx, c, q)
			if err != nil {
				return "", err
			}
			switch {
			case v.Delivery != nil:
				if h != nil {
					h.Close()
				}
				h = got
				return fmt.Sprintf("delivery %d, progress %q", v.Delivery.ID.Number, v.Run.Progress), nil
			case v.Finished:
				return "finished", nil
			}
			return "refused " + string(v.Refusal.Reason), nil
		})
	}
	var last fence.ClaimVerdict
	claim := func(name string, q fence.ClaimRequest) {
		step(name, func() (string, error) {
			v, _, err := h.Claim(w.ctx, q)
			if v.Call != nil {
				last = v
			}
			return verdict(v), err
		})
	}
	settle := func(name string, state fence.State, result string) {
		step(name, func() (string, error) {
			v, _, err := h.Settle(w.ctx, outcome(last, state, result))
			return fmt.Sprintf("recorded %v, late %v, duplicate %v, vanished %v", v.Recorded, v.Late, v.Duplicate, v.Vanished), err
		})
	}
	step("stamp", func() (string, error) {
		n, err := w.Stamp(w.ctx, c)
		return fmt.Sprint(n > 0), err
	})
	begin("begin", job(id("j1"), "m1", "m2"))
	catchUp := func() (string, error) {
		v, _, err := h.CatchUp(w.ctx)
		return fmt.Sprintf("%d open", v.OpenCount), err
	}
	step("catch up", catchUp)
	claim("claim reply", w.effect(c, "reply", "m1", "m1"))
	settle("settle reply", fence.Committed, "sent\x00\xff")
	claim("claim reply again", w.effect(c, "reply", "m1", "m1"))
	claim("claim refund", w.effect(c, "refund", "o1"))
	settle("settle refund", fence.Failed, "no money\xff")
	claim("claim refund again", w.effect(c, "refund", "o1"))
	settle("settle refund again", fence.Committed, "refunded")
	step("save progress", func() (string, error) {
		ref, err := h.SaveProgress(w.ctx, []byte("half\x00way"))
		return fmt.Sprint(ref), err
	})
	step("renew", func() (string, error) {
		r, err := w.Renew(w.ctx, []ledger.LeaseKey{h.Lease()}, time.Minute)
		for range 2 {
			if err != nil { // the next beat
				r, err = w.Renew(w.ctx, []ledger.LeaseKey{h.Lease()}, time.Minute)
			}
		}
		return fmt.Sprint(len(r) == 1 && r[0].Found), err
	})
	step("release", func() (string, error) {
		ok, err := h.Release(w.ctx, "")
		return fmt.Sprint(ok), err
	})
	begin("begin again", job(id("j1"), "m1", "m2"))
	step("report", func() (string, error) {
		v, err := w.Report(w.ctx, c, fence.ReportRequest{ID: "report", Intent: "note", By: "agent"})
		return fmt.Sprint(v.Report != nil), err
	})
	step("catch up again", catchUp)
	claim("claim tag", w.effect(c, "tag", "vip"))
	settle("settle tag", fence.Ambiguous, "timeout")
	step("resolve", func() (string, error) {
		v, _, err := w.Resolve(w.ctx, c, fence.ResolveRequest{Effect: last.Effect.ID, Happened: true, Force: true, By: "op"})
		return v.Refused, err
	})
	step("dismiss", func() (string, error) {
		v, err := h.Dismiss(w.ctx, []string{"m2"}, "spam")
		return fmt.Sprint(v.Refusal), err
	})
	step("end", func() (string, error) {
		v, _, err := h.End(w.ctx, fence.EndSuccess)
		if v.Refusal != nil {
			w.Errorf("the script's end was refused: %+v", v.Refusal)
		}
		return "ended", err
	})
	begin("begin after the end", job(id("j1"), "m1", "m2"))
	step("cancel unknown", func() (string, error) {
		v, err := w.Cancel(w.ctx, fence.CancelRequest{Run: job(id("j2")).Run, By: "op"})
		return fmt.Sprint(v.Cancelled), err
	})
	begin("begin cancelled", job(id("j2")))
	begin("begin third", job(id("j3")))
	step("cancel third", func() (string, error) {
		v, err := w.Cancel(w.ctx, fence.CancelRequest{Run: job(id("j3")).Run, By: "op"})
		return fmt.Sprint(v.Cancelled), err
	})
	claim("claim cancelled", w.effect(c, "tag", "new"))
	h.Close()
	return told.String() + w.summary(c)
}

// plays runs the script with faults at the store's calls, once for each of the plans that
// count makes of the number of calls, and compares with a run without.
func plays(b *bench, before func(conversation string), faults ...Fault) {
	b.Helper()
	var at, calls int
	store := Faulty(b.store, func(c Call) Fault {
		calls++
		if i := calls - at; at > 0 && i >= 0 && i < len(faults) {
			return faults[i]
		}
		return NoFault
	})
	w := b.worker(store)
	want := script(w, before)
	total := calls
	if total < 30 {
		b.Fatalf("the script made %d calls", total)
	}
	stride := 1
	if brief() {
		stride = 4
	}
	for n := 1 + int(faults[0])%stride; n <= total; n += stride {
		at, calls = n, 0
		got := script(w, before)
		at = 0
		if got != want {
			b.Errorf("faults %v from call %d of %d on:\n%s", faults, n, total, diff(got, want))
			return
		}
	}
}

func diff(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var s strings.Builder
	for i := range max(len(g), len(w)) {
		a, b := "", ""
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			fmt.Fprintf(&s, "  got  %s\n  want %s\n", a, b)
		}
	}
	return s.String()
}

func alone(string) {}

func oneLost(b *bench) {
	plays(b, alone, LostCall)
	plays(b, alone, LostAnswer)
}

func twoLost(b *bench) {
	plays(b, alone, LostAnswer, LostCall)
	plays(b, alone, LostAnswer, LostAnswer)
}

func lostAndContended(b *bench) {
	rival := b.worker(b.other())
	stamp := func(conversation string) {
		if _, err := rival.Stamp(b.ctx, conversation); err != nil {
			b.Errorf("the rival: %v", err)
		}
	}
	plays(b, stamp, LostCall)
	plays(b, stamp, LostAnswer)
}

func staysAway(b *bench) {
	away := NoFault
	w := b.worker(Faulty(b.store, func(Call) Fault { return away }))
	h := w.begin("c", job("j1"))
	for _, fault := range []Fault{LostCall, LostAnswer} {
		away = fault
		q := w.effect("c", "reply", fmt.Sprint("m", fault))
		v, _, err := h.Claim(b.ctx, q)
		if !errors.Is(err, ErrFault) || v.Call != nil {
			b.Errorf("claim: %s, %v", verdict(v), err)
		}
		if _, _, _, err := w.Begin(b.ctx, "c", job("j2")); !errors.Is(err, ErrFault) {
			b.Errorf("begin: %v", err)
		}
		away = NoFault
		// What became of the claim is found by its id.
		s, _, err := h.Settle(b.ctx, fence.SettleRequest{Effect: q.Effect, Claim: q.Claim, State: fence.Failed, NotStarted: true})
		if want := fault == LostAnswer; err != nil || s.Recorded != want {
			b.Errorf("settle of a claim that was written %v: %+v, %v", want, s, err)
		}
		if v, _, err := h.Claim(b.ctx, w.effect("c", "reply", fmt.Sprint("m", fault))); err != nil || v.Call == nil {
			b.Errorf("claim once the store is back: %s, %v", verdict(v), err)
		}
	}
}

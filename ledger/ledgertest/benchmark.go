package ledgertest

import (
	"fmt"
	"testing"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Benchmark measures what the library's engine and rules cost over a store, one worker at a time:
//
//   - begin: a job on a new conversation
//   - once: claim and settle of a new effect
//   - replay: the claim of an effect that has happened
//   - job: Begin, CatchUp, one effect, End, on a new conversation
//   - claim/10, claim/10000: as once, on a conversation with so many settled effects and ended
//     runs
func Benchmark(b *testing.B, open func(b *testing.B) ledger.Store) {
	b.Run("begin", func(b *testing.B) {
		w := benched(b, open(b))
		for i := 0; b.Loop(); i++ {
			w.begun(fmt.Sprint("c", i), fmt.Sprint("j", i)).Close()
		}
	})
	b.Run("once", func(b *testing.B) {
		w := benched(b, open(b))
		w.manyOnce(b, w.begun("c0", "j0"), "c0", "j0")
	})
	b.Run("replay", func(b *testing.B) {
		w := benched(b, open(b))
		h := w.begun("c", "j")
		q := w.effect("c", "tag", "m")
		w.once(h, q, "done")
		for b.Loop() {
			q.Claim = newID()
			if v, _, err := h.Claim(w.ctx, q); err != nil || v.Replay == nil {
				b.Fatal(verdict(v), err)
			}
		}
	})
	b.Run("job", func(b *testing.B) {
		w := benched(b, open(b))
		for i := 0; b.Loop(); i++ {
			c := fmt.Sprint("c", i)
			h := w.begun(c, fmt.Sprint("j", i))
			if _, _, err := h.CatchUp(w.ctx); err != nil {
				b.Fatal(err)
			}
			w.once(h, w.effect(c, "reply", "m", "m"), "sent")
			if v, _, err := h.End(w.ctx, fence.EndSuccess); err != nil || v.Refusal != nil {
				b.Fatal(v, err)
			}
			h.Close()
		}
	})
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint("claim/", n), func(b *testing.B) {
			w := benched(b, open(b))
			w.past("c", n)
			w.manyOnce(b, w.begun("c", "new"), "c", "new")
		})
	}
}

func benched(b *testing.B, store ledger.Store) *worker {
	b.ReportAllocs()
	return (&bench{TB: b, ctx: b.Context(), store: store}).worker(store, func(o *ledger.Options) { o.Emit = nil })
}

func (w *worker) begun(conversation, id string) *ledger.Handle {
	w.Helper()
	h, v, _, err := w.Begin(w.ctx, conversation, job(id, "m"))
	if err != nil || h == nil {
		w.Fatal(v, err)
	}
	return h
}

// manyOnce measures effects of one delivery. What is not the ledger's work is done beforehand.
func (w *worker) manyOnce(b *testing.B, h *ledger.Handle, conversation, prefix string) {
	b.Helper()
	const batch = 256
	var todo []fence.ClaimRequest
	for i := 0; b.Loop(); i++ {
		if len(todo) == 0 {
			b.StopTimer()
			for n := range batch {
				todo = append(todo, w.effect(conversation, "tag", fmt.Sprint(prefix, "-", i+n)))
			}
			b.StartTimer()
		}
		v, _, err := h.Claim(w.ctx, todo[0])
		if err != nil || v.Call == nil {
			b.Fatal(verdict(v), err)
		}
		if s, _, err := h.Settle(w.ctx, outcome(v, fence.Committed, "done")); err != nil || !s.Recorded {
			b.Fatal(s, err)
		}
		todo = todo[1:]
	}
}

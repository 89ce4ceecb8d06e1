package redisledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

// Memory is freed by purging alone: a conversation that was purged leaves no key behind.
func TestNothingIsLeftOfWhatWasPurged(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			ctx := t.Context()
			client := kind.client(t)
			config := redisledger.ConfigOf(fresh(t, client))
			clock := time.UnixMilli(1_800_000_000_000)
			s := *seam.Real()
			s.Now = func() time.Time { return clock }
			store, err := redisledger.OpenSeamed(ctx, client, config, &s)
			if err != nil {
				t.Fatal(err)
			}
			l := ledger.New(store, ledger.Options{Seam: &s, Rules: fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 1_800_000, MaxCalls: 3}})
			for i := range 30 {
				c := fmt.Sprintf("c%d{\x00}ä", i)
				h, _, _, err := l.Begin(ctx, c, job(c, "m1", "m2"))
				if err != nil || h == nil {
					t.Fatal(err)
				}
				v, _, err := h.Claim(ctx, effect(c, "refund", "1"))
				if err != nil || v.Call == nil {
					t.Fatal(v, err)
				}
				if _, _, err := h.Settle(ctx, committed(v)); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Dismiss(ctx, []string{"m1", "m2"}, "spam"); err != nil {
					t.Fatal(err)
				}
				if v, _, err := h.End(ctx, fence.EndSuccess); err != nil || v.Refusal != nil {
					t.Fatal(v, err)
				}
				h.Close()
				if _, err := l.Cancel(ctx, fence.CancelRequest{Run: fence.RunKey{Queue: "q", ID: "never came " + c}, By: "op"}); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(keysOf(ctx, t, client, config.Prefix)); n < 100 {
				t.Fatalf("%d keys: the test tests nothing", n)
			}
			for range 5 {
				clock = clock.Add(24 * time.Hour)
				if _, err := l.Purge(ctx, 1000); err != nil {
					t.Fatal(err)
				}
			}
			if left := keysOf(ctx, t, client, config.Prefix); !slices.Equal(left, []string{config.Prefix + ":format"}) {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// Drop takes everything that a conversation has, however much.
func TestNothingIsLeftOfWhatWasDropped(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			ctx := t.Context()
			client := kind.client(t)
			store := fresh(t, client)
			w := ledger.Write{NewTag: "1", Head: ledger.NewRow("", fence.Index{Due: 3}, []byte("h"))}
			for i := range 2500 {
				w.Put = append(w.Put, ledger.NewRow(fmt.Sprint("k", i), fence.Index{Open: fence.OpenKind(i % 3), At: 5, Landed: int64(i), Due: fence.Millis(i % 2)}, []byte("x")))
				w.Leases = append(w.Leases, ledger.LeaseWrite{Run: fmt.Sprint(i), Nonce: "n", For: time.Minute})
			}
			if r, err := store.Apply(ctx, "c", w); err != nil || !r.Applied {
				t.Fatal(r.Applied, err)
			}
			if r, err := store.Apply(ctx, "c", ledger.Write{Tag: "1", Drop: true}); err != nil || !r.Applied {
				t.Fatal(r.Applied, err)
			}
			prefix := redisledger.ConfigOf(store).Prefix
			if left := keysOf(ctx, t, client, prefix); !slices.Equal(left, []string{prefix + ":format"}) {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// The list of what is unresolved and the claims are one: at no moment is a claim missing from it.
func TestTheListOfUnresolvedEffectsIsAtomicWithTheClaims(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			ctx := t.Context()
			store := fresh(t, kind.client(t))
			l := engine(store)
			h, _, _, err := l.Begin(ctx, "c", job("j"))
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			for i := range 20 {
				v, _, err := h.Claim(ctx, effect("c", "tag", fmt.Sprint(i)))
				if err != nil || v.Call == nil {
					t.Fatal(v, err)
				}
				if open, _, err := l.Unresolved(ctx, 0, 10); err != nil || len(open) != 1 || open[0].Effect.ID != v.Effect.ID {
					t.Fatalf("after claim %d: %v, %v", i, open, err)
				}
				if _, _, err := h.Settle(ctx, committed(v)); err != nil {
					t.Fatal(err)
				}
				if open, _, err := l.Unresolved(ctx, 0, 10); err != nil || len(open) != 0 {
					t.Fatalf("after settle %d: %v, %v", i, open, err)
				}
			}
			// As one script writes both, so nothing of a refused one is listed.
			snap, err := store.Load(ctx, ledger.ConversationKey("", "c"), ledger.Query{})
			if err != nil {
				t.Fatal(err)
			}
			w := ledger.Write{Tag: "no", NewTag: "x", Head: snap.Head, Put: []ledger.Row{ledger.NewRow("e/x", fence.Index{Open: fence.UnresolvedEffect, At: 1}, nil)}}
			if r, err := store.Apply(ctx, ledger.ConversationKey("", "c"), w); err != nil || r.Applied {
				t.Fatal(r, err)
			}
			if found, err := store.Scan(ctx, ledger.Scan{Kind: ledger.ScanOpen, Open: fence.UnresolvedEffect, Before: 1 << 60, Limit: 9}); err != nil || len(found) != 0 {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
}

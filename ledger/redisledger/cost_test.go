package redisledger_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// trips counts round trips: a pipeline is one.
type trips struct{ n atomic.Int64 }

func (c *trips) take() int64 { return c.n.Swap(0) }

func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

func TestRoundTrips(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			client := kind.client(t)
			store := fresh(t, client)
			l := engine(store)
			ctx := t.Context()
			_, isCluster := client.(*redis.ClusterClient)

			// Every script is known to every server before anything is counted.
			var leases []ledger.LeaseKey
			for i := range 1000 {
				c := fmt.Sprint("warm", i)
				h, _, _, err := l.Begin(ctx, c, job(c))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(h.Close)
				leases = append(leases, h.Lease())
			}
			if _, err := l.Renew(ctx, leases, time.Minute); err != nil {
				t.Fatal(err)
			}
			n := new(trips)
			client.AddHook(n)
			want := func(what string, most int64) {
				t.Helper()
				if got := n.take(); got == 0 || got > most {
					t.Errorf("%s: %d round trips, want at most %d", what, got, most)
				}
			}

			h, _, _, err := l.Begin(ctx, "c", job("j"))
			if err != nil || h == nil {
				t.Fatal(err)
			}
			defer h.Close()
			if isCluster {
				want("Begin on a new conversation", 2) // the directory's entry first
			} else {
				want("Begin on a new conversation", 1)
			}
			for i := range 20 {
				v, _, err := h.Claim(ctx, effect("c", "tag", fmt.Sprint(i)))
				if err != nil || v.Call == nil {
					t.Fatal(v, err)
				}
				want("claim", 1)
				if s, _, err := h.Settle(ctx, committed(v)); err != nil || !s.Recorded {
					t.Fatal(s, err)
				}
				want("settle", 1)
			}
			if v, _, err := h.Claim(ctx, effect("c", "tag", "7")); err != nil || v.Replay == nil {
				t.Fatal(v, err)
			}
			want("replay", 1)
			if _, err := l.Renew(ctx, leases, time.Minute); err != nil {
				t.Fatal(err)
			}
			want("a heartbeat of 1,000 runs", 1)
			if v, _, err := h.End(ctx, fence.EndSuccess); err != nil || v.Refusal != nil {
				t.Fatal(v, err)
			}
			want("End", 1)

			// On a conversation that this process does not know.
			other := engine(store)
			if _, err := other.Stamp(ctx, "c"); err != nil {
				t.Fatal(err)
			}
			n.take()
			h, _, _, err = other.Begin(ctx, "warm1", job("another"))
			if err != nil || h == nil {
				t.Fatal(err)
			}
			defer h.Close()
			if isCluster {
				want("Begin on a known conversation", 6)
			} else {
				want("Begin on a known conversation", 2)
			}
			other.Unresolved(ctx, 0, 10)
			n.take()
			if _, _, err := other.Unresolved(ctx, 0, 10); err != nil {
				t.Fatal(err)
			}
			want("the list of what is unresolved", 2)
		})
	}
}

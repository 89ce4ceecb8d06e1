package redisledger_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

// misled returns a client that believes, as long as wrong says so, that every slot is on another node
// than it is, as after slots were moved.
func misled(t *testing.T, wrong *atomic.Bool) *redis.ClusterClient {
	t.Helper()
	honest := cluster(t)
	slots, err := honest.ClusterSlots(t.Context()).Result() //nolint:staticcheck // ClusterShards is not known to Redis 6.2
	if err != nil {
		t.Fatal(err)
	}
	addrs := private.ServiceRedisCluster.Need(t)
	return closed(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(addrs, ","),
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			said := make([]redis.ClusterSlot, len(slots))
			for i, slot := range slots {
				said[i] = slot
				if wrong.Load() {
					// A range's neighbour is on another node; with several ranges for each, mostly.
					said[i].Nodes = slots[(i+1)%len(slots)].Nodes
				}
			}
			return said, nil
		},
	}))
}

// Case F20: redirections are followed.
func TestSlotsThatMovedAreFound(t *testing.T) {
	var wrong atomic.Bool
	wrong.Store(true)
	store := fresh(t, misled(t, &wrong))
	other, err := redisledger.Open(t.Context(), cluster(t), redisledger.ConfigOf(store))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var leases []ledger.LeaseKey
	for i := range 50 {
		c := fmt.Sprint("c", i)
		r, err := store.Apply(ctx, c, ledger.Write{
			NewTag: c, Head: head, Home: &ledger.HomeWrite{Run: c}, Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}},
		})
		if err != nil || !r.Applied {
			t.Fatal(r, err)
		}
		if snap, err := other.Load(ctx, c, ledger.Query{Run: c}); err != nil || snap.Tag != c || snap.Home.Conversation != c {
			t.Fatal(snap, err)
		}
		leases = append(leases, ledger.LeaseKey{Conversation: c, Run: "r", Nonce: "n"})
	}
	renewed, err := store.Renew(ctx, leases, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range renewed {
		if !r.Found || r.Tag != leases[i].Conversation {
			t.Errorf("lease %d: %+v", i, r)
		}
	}
}

// A change that is waited for is sent to a node by this package, not by the client.
func TestSlotsThatMovedAreFoundBehindWait(t *testing.T) {
	var wrong atomic.Bool
	wrong.Store(true)
	client := misled(t, &wrong)
	store := fresh(t, client, func(c *redisledger.Config) { c.Wait = &redisledger.Wait{Replicas: 1, Timeout: time.Millisecond} })
	wrong.Store(false)
	for i := range 10 {
		_, err := store.Apply(t.Context(), fmt.Sprint("c", i), ledger.Write{NewTag: "1", Head: head, Durable: true})
		wantError(t, err, "0 of 1 replicas") // the shared Cluster has none: but it got there
	}
}

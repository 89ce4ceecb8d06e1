package live

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Case F20: slots of a Cluster move to another node, key by key, while jobs go on. A bucket
// whose keys are on two nodes cannot be written, and then the effect is not called.
func TestSlotsThatMoveUnderTheLedgerDoubleNothing(t *testing.T) {
	if _, ok := private.ServiceRedisCluster.Find(); !ok {
		private.Unavailable(t, "redis-server is not installed here")
	}
	folder, err := private.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	servers, err := private.StartRedisCluster(ctx, filepath.Join(folder.Path, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Crash() })
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs(), MaxRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisledger.Open(ctx, client, &redisledger.Config{Prefix: "m"})
	if err != nil {
		t.Fatal(err)
	}
	config := brisk()
	config.SettleTimeout = time.Second
	k, err := runs.New(store, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })

	prov := &provider{}
	var conversations []string
	for i := range 20 {
		conversations = append(conversations, fmt.Sprint("c", i))
	}
	work := func(tag string) (failed int) {
		for _, c := range conversations {
			j := job(c, c+tag)
			j.Inbound = nil
			j.NoInbound = true
			err := k.Do(ctx, j, func(ctx context.Context) error {
				return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "tag", Key: runs.ID(tag)}, func(context.Context, *runs.Call) error {
					prov.do(c + tag)
					return nil
				})
			})
			if err != nil {
				failed++
			}
		}
		return failed
	}
	if failed := work("before"); failed != 0 {
		t.Fatalf("%d jobs failed before anything moved", failed)
	}
	moved, failed, slots := 0, 0, 0
	for bucket := 0; bucket < 256 && slots < 4; bucket++ {
		slot, err := client.ClusterKeySlot(ctx, fmt.Sprintf("m:{%d}:c:x", bucket)).Result()
		if err != nil {
			t.Fatal(err)
		}
		half, n := moveSlot(t, ctx, client, int(slot), func() int { return work("during") })
		moved += n
		failed += half
		if n > 0 {
			slots++
		}
	}
	if slots < 4 || failed == 0 {
		t.Errorf("%d slots were moved, %d jobs met them half-way", slots, failed)
	}
	t.Logf("%d keys moved; %d jobs could not be done while their keys were on two nodes", moved, failed)
	// What failed is delivered again.
	if left := work("during"); left != 0 {
		t.Errorf("%d jobs fail although nothing moves", left)
	}
	if left := work("after"); left != 0 {
		t.Errorf("%d jobs fail afterwards", left)
	}
	for _, c := range conversations {
		for _, tag := range []string{"before", "during", "after"} {
			if n := prov.times(c + tag); n != 1 {
				t.Errorf("%s %s: done %d times", c, tag, n)
			}
		}
	}
}

// moveSlot moves a slot to the next node. Once half of its keys are there, meanwhile is called.
func moveSlot(t *testing.T, ctx context.Context, client *redis.ClusterClient, slot int, meanwhile func() int) (failed, moved int) {
	t.Helper()
	var nodes []redis.ClusterNode
	shards, err := client.ClusterSlots(ctx).Result() //nolint:staticcheck // ClusterShards is not known to Redis 6.2
	if err != nil {
		t.Fatal(err)
	}
	var from, to *redis.ClusterNode
	for i := range shards {
		nodes = append(nodes, shards[i].Nodes[0])
		if slot >= shards[i].Start && slot <= shards[i].End {
			from = &shards[i].Nodes[0]
		}
	}
	for i := range nodes {
		if nodes[i].ID != from.ID {
			to = &nodes[i]
		}
	}
	source, target := redis.NewClient(&redis.Options{Addr: from.Addr}), redis.NewClient(&redis.Options{Addr: to.Addr})
	defer source.Close()
	defer target.Close()
	keys, err := source.ClusterGetKeysInSlot(ctx, slot, 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) == 0 {
		return 0, 0
	}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(target.Do(ctx, "cluster", "setslot", slot, "importing", from.ID).Err())
	must(source.Do(ctx, "cluster", "setslot", slot, "migrating", to.ID).Err())
	host, port, _ := strings.Cut(to.Addr, ":")
	for i, key := range keys {
		if i == len(keys)/2 {
			failed = meanwhile()
		}
		must(source.Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
		moved++
	}
	// Keys that were made meanwhile.
	for {
		more, err := source.ClusterGetKeysInSlot(ctx, slot, 1000).Result()
		must(err)
		if len(more) == 0 {
			break
		}
		for _, key := range more {
			must(source.Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
			moved++
		}
	}
	for _, node := range nodes {
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		must(c.Do(ctx, "cluster", "setslot", slot, "node", to.ID).Err())
		_ = c.Close()
	}
	return failed, moved
}

package redisledger_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

// plain returns a client of the server that tests share.
func plain(t testing.TB) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(private.ServiceRedis.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, redis.NewClient(o))
}

// cluster returns a client of the Cluster that tests share.
func cluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	nodes := private.ServiceRedisCluster.Need(t)
	return closed(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(nodes, ",")}))
}

// mini returns a client of a server in this process, which needs no service. It keeps no promise
// about what a crash leaves, and has its own Lua.
func mini(t testing.TB) *redis.Client {
	t.Helper()
	return closed(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
}

func closed[C interface{ Close() error }](t testing.TB, client C) C {
	t.Cleanup(func() {
		if err := client.Close(); err != nil && !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
	})
	return client
}

// fresh opens a ledger with a prefix of its own, whose keys are deleted when the test ends.
func fresh(t testing.TB, client redis.UniversalClient, change ...func(*redisledger.Config)) *redisledger.Store {
	t.Helper()
	config := &redisledger.Config{Prefix: "test-" + rand.Text(), Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(config)
	}
	store, err := redisledger.Open(t.Context(), client, config)
	if err != nil {
		t.Fatal(err)
	}
	deleteLater(t, client, config.Prefix)
	return store
}

func deleteLater(t testing.TB, client redis.UniversalClient, prefix string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		for _, key := range keysOf(ctx, t, client, prefix) {
			if err := client.Unlink(ctx, key).Err(); err != nil {
				t.Error(err)
			}
		}
	})
}

// keysOf returns all keys under a prefix.
func keysOf(ctx context.Context, t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var mu sync.Mutex
	var keys []string
	scan := func(ctx context.Context, node *redis.Client) error {
		it := node.Scan(ctx, 0, prefix+":*", 10_000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			keys = append(keys, it.Val())
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, scan)
	case *redis.Client:
		err = scan(ctx, c)
	}
	if err != nil {
		t.Error(err)
	}
	return keys
}

// again opens what store keeps a second time, as another process would.
func again(t *testing.T, store ledger.Store) ledger.Store {
	t.Helper()
	s := store.(*redisledger.Store)
	other, err := redisledger.Open(t.Context(), redisledger.ClientOf(s), redisledger.ConfigOf(s))
	if err != nil {
		t.Fatal(err)
	}
	return other
}

package live

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/runs"
)

// The limit of Redis that docs/reliability.md states: a replica that is promoted knows nothing of
// what it had not received. A claim that is lost so is forgotten without a trace, and the effect is
// done a second time. Config.Wait narrows that: a claim that no replica has is not granted, and the
// job fails in plain sight before its effect is called.
func TestARedisFailoverThatLosesAClaimDoublesUnlessItIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name          string
		wait, cut     bool
		before, after int // calls, before and after the failover
		firstFails    bool
	}{
		{name: "the replica had not received it", cut: true, before: 1, after: 2},
		{name: "it had not, and was waited for", cut: true, wait: true, firstFails: true, before: 0, after: 1},
		{name: "it had, and was waited for", wait: true, before: 1, after: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			master, masterAt := ownRedis(t)
			_, replicaAt := ownRedis(t)
			replica := redisAt(t, replicaAt)
			host, port, _ := strings.Cut(masterAt, ":")
			if err := replica.ReplicaOf(t.Context(), host, port).Err(); err != nil {
				t.Fatal(err)
			}
			// The conversation before, which the replica has in any case.
			replicas := func(n string) func() bool {
				return func() bool {
					return redisAt(t, masterAt).InfoMap(t.Context(), "replication").Item("Replication", "connected_slaves") == n &&
						(n == "0" || replica.InfoMap(t.Context(), "replication").Item("Replication", "master_link_status") == "up")
				}
			}
			await(t, "the replica follows", replicas("1"))
			if c.cut {
				if err := replica.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
					t.Fatal(err)
				}
				await(t, "the master has no replica", replicas("0"))
			}
			config := &redisledger.Config{}
			if c.wait {
				config.Wait = &redisledger.Wait{Replicas: 1, Timeout: 10 * time.Second}
				if c.cut {
					config.Wait.Timeout = 100 * time.Millisecond // it is in vain
				}
			}
			prov := &provider{}
			err := redisKeeper(t, masterAt, config).Do(t.Context(), job("c", 1), prov.replies("c"))
			if c.firstFails != (err != nil) || c.firstFails && !strings.Contains(err.Error(), "Config.Wait") {
				t.Errorf("the first delivery: %v", err)
			}
			if n := prov.times("c"); n != c.before {
				t.Errorf("%d calls before the failover, want %d", n, c.before)
			}

			if err := master.Crash(); err != nil {
				t.Fatal(err)
			}
			if err := replica.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			// What is promoted has no replica to wait for until it gets one.
			k := redisKeeper(t, replicaAt, nil)
			if err := k.Do(t.Context(), job("c", 1), prov.replies("c")); err != nil {
				t.Errorf("the delivery after the failover: %v", err)
			}
			if n := prov.times("c"); n != c.after {
				t.Errorf("%d calls in the end, want %d: the documentation is wrong", n, c.after)
			}
			if st := state(t, k, "c"); st != runs.Committed {
				t.Errorf("in the end the effect is %q", st)
			}
		})
	}
}

// ownRedis starts a server of this test's own.
func ownRedis(t *testing.T) (server *private.Redis, at string) {
	t.Helper()
	if err := private.Missing([]private.Service{private.ServiceRedis}); err != nil {
		private.Unavailable(t, err.Error())
	}
	folder, err := private.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	r, err := private.StartRedis(t.Context(), filepath.Join(folder.Path, "redis"), "repl-diskless-sync-delay 0")
	t.Cleanup(func() {
		if r != nil {
			_ = r.Crash()
		}
		_ = folder.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, r.Addr
}

func redisAt(t *testing.T, at string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: at, ReadTimeout: 20 * time.Second})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func redisKeeper(t *testing.T, at string, config *redisledger.Config) *runs.Keeper {
	t.Helper()
	store, err := redisledger.Open(context.Background(), redisAt(t, at), config)
	if err != nil {
		t.Fatal(err)
	}
	// Only how long the end of a run that cannot be written is tried for; no time of this test runs out.
	k, err := runs.New(store, &runs.Config{SettleTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

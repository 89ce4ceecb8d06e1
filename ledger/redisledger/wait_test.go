package redisledger_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

// The limit of Redis, which the package's documentation states: a failover forgets a claim that the
// promoted replica had not received, and the effect is done a second time. With Config.Wait such a
// claim fails instead, and its effect is not called.
func TestWhatAFailoverLoses(t *testing.T) {
	for _, wait := range []bool{false, true} {
		t.Run(map[bool]string{false: "without Wait a claim is lost", true: "with Wait it is not granted"}[wait], func(t *testing.T) {
			ctx := t.Context()
			master := own(t)
			slave := replica(t, master)
			config := &redisledger.Config{}
			if wait {
				config.Wait = &redisledger.Wait{Replicas: 1, Timeout: 300 * time.Millisecond}
			}
			store, err := redisledger.Open(ctx, master, config)
			if err != nil {
				t.Fatal(err)
			}
			l := engine(store)
			h, _, _, err := l.Begin(ctx, "c", job("j"))
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			v, _, err := h.Claim(ctx, effect("c", "tag", "replicated"))
			if err != nil || v.Call == nil {
				t.Fatal(v, err)
			}
			if s, _, err := h.Settle(ctx, committed(v)); err != nil || !s.Recorded {
				t.Fatal(s, err)
			}
			until(t, "the replica has the first effect", func(ctx context.Context) bool {
				state := func(c *redis.Client) string {
					return c.HGet(ctx, redisledger.KeyOf(store, ledger.ConversationKey("", "c")), "t").Val()
				}
				return state(master) == state(slave)
			})

			// The link breaks: the replica gets nothing from now on.
			if err := slave.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
				t.Fatal(err)
			}
			until(t, "the master has noticed", func(ctx context.Context) bool {
				return master.InfoMap(ctx, "replication").Item("Replication", "connected_slaves") == "0"
			})
			q := effect("c", "refund", "1")
			v, _, err = h.Claim(ctx, q)
			if wait {
				// Neither granted, nor taken for granted when it is looked for again.
				for range 2 {
					if err == nil || v.Call != nil || !strings.Contains(err.Error(), "Config.Wait") {
						t.Fatalf("a claim that no replica has: %+v, %v", v, err)
					}
					v, _, err = h.Claim(ctx, q)
				}
				return
			}
			if err != nil || v.Call == nil {
				t.Fatal(v, err)
			}
			// The failover.
			if err := slave.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			promoted, err := redisledger.Open(ctx, slave, config)
			if err != nil {
				t.Fatal(err)
			}
			again := engine(promoted)
			h2, _, _, err := again.Begin(ctx, "c", job("j"))
			if err != nil || h2 == nil {
				t.Fatal(err)
			}
			defer h2.Close()
			q.Claim = newID()
			if v, _, err := h2.Claim(ctx, q); err != nil || v.Call == nil || len(v.Effect.Calls) != 1 {
				t.Errorf("the limit is gone, and the documentation is wrong: %+v, %v", v, err)
			}
			q = effect("c", "tag", "replicated")
			if v, _, err := h2.Claim(ctx, q); err != nil || v.Replay == nil {
				t.Errorf("an effect that was replicated is lost: %+v, %v", v, err)
			}
		})
	}
}

func TestWaitIsMetByAReplica(t *testing.T) {
	ctx := t.Context()
	master := own(t)
	slave := replica(t, master)
	store, err := redisledger.Open(ctx, master, &redisledger.Config{Wait: &redisledger.Wait{Replicas: 1, Timeout: 2 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	n := new(trips)
	l := engine(store)
	h, _, _, err := l.Begin(ctx, "c", job("j"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if v, _, err := h.Claim(ctx, effect("c", "refund", "0")); err != nil || v.Call == nil {
		t.Fatal(v, err)
	}
	master.AddHook(n)
	v, _, err := h.Claim(ctx, effect("c", "refund", "1"))
	if err != nil || v.Call == nil || n.take() != 1 {
		t.Fatalf("%+v, %v: want one round trip for claim and WAIT", v, err)
	}
	field := "r" + fence.EffectRow(v.Effect.ID)
	if n, err := slave.HExists(ctx, redisledger.KeyOf(store, ledger.ConversationKey("", "c")), field).Result(); err != nil || !n {
		t.Errorf("the claim was granted before the replica had it: %v", err)
	}
}

// On Cluster the script and its WAIT go to the node that has the key, together.
func TestWaitOnCluster(t *testing.T) {
	store := fresh(t, cluster(t), func(c *redisledger.Config) { c.Wait = &redisledger.Wait{Replicas: 1, Timeout: 20 * time.Millisecond} })
	r, err := store.Apply(t.Context(), "c", ledger.Write{NewTag: "1", Head: head, Durable: true})
	wantError(t, err, "0 of 1 replicas")
	if r.Applied {
		t.Error("applied")
	}
	if r, err = store.Apply(t.Context(), "d", ledger.Write{NewTag: "1", Head: head}); err != nil || !r.Applied {
		t.Errorf("what is not durable does not wait: %+v, %v", r, err)
	}
	_, err = store.Load(t.Context(), "c", ledger.Query{})
	wantError(t, err, "0 of 1 replicas")
}

// WAITAOF is newer than the servers that tests have: one that answers it is made up.
func TestWaitAOF(t *testing.T) {
	m := miniredis.RunT(t)
	var flushed [2]int
	var mu sync.Mutex
	says := func(local, replicas int) {
		mu.Lock()
		defer mu.Unlock()
		flushed = [2]int{local, replicas}
	}
	if err := m.Server().Register("WAITAOF", func(c *server.Peer, _ string, args []string) {
		if strings.Join(args, " ") != "1 2 700" {
			c.WriteError("ERR want 1 2 700, got " + strings.Join(args, " "))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		c.WriteLen(2)
		c.WriteInt(flushed[0])
		c.WriteInt(flushed[1])
	}); err != nil {
		t.Fatal(err)
	}
	client := closed(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	store := fresh(t, client, func(c *redisledger.Config) {
		c.WaitAOF = &redisledger.Wait{Local: 1, Replicas: 2, Timeout: 700 * time.Millisecond}
	})
	w := ledger.Write{NewTag: "1", Head: head, Durable: true}
	for i, got := range [][2]int{{0, 2}, {1, 1}, {1, 2}} {
		c := "c" + strconv.Itoa(i)
		says(got[0], got[1])
		r, err := store.Apply(t.Context(), c, w)
		if good := got == [2]int{1, 2}; good != (err == nil && r.Applied) {
			t.Errorf("%v flushed: %+v, %v", got, r, err)
		}
	}
	// In doubt until a wait succeeds; then it is as good as any.
	says(0, 0)
	if _, err := store.Load(t.Context(), "c0", ledger.Query{}); err == nil {
		t.Error("what may not be flushed was shown to who wrote it")
	}
	says(1, 2)
	if snap, err := store.Load(t.Context(), "c0", ledger.Query{}); err != nil || snap.Tag != "1" {
		t.Errorf("%+v, %v", snap, err)
	}
	if snap, err := store.Load(t.Context(), "c0", ledger.Query{}); err != nil || snap.Tag != "1" {
		t.Errorf("%+v, %v", snap, err)
	}
}

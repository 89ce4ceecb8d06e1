package redisledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

// apart makes a store that keeps the directory where a Cluster would: in slots of its own.
func apart(c *redisledger.Config) { c.Sharded = true }

var head = ledger.NewRow("", fence.Index{}, []byte("h"))

// crash makes the client fail, without the server hearing of it, at the nth script from now on.
type crash struct {
	mu        sync.Mutex
	after     int
	armed     bool
	meanwhile func()
}

var errCrashed = errors.New("crashed")

func (c *crash) arm(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.after = true, after
}

func (c *crash) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *crash) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.mu.Lock()
		now, meanwhile := false, func() {}
		if c.armed && strings.HasPrefix(cmd.Name(), "eval") {
			if c.after--; c.after < 0 {
				if c.meanwhile != nil {
					meanwhile, c.armed = c.meanwhile, false
				} else {
					now = true
				}
			}
		}
		c.mu.Unlock()
		meanwhile()
		if now {
			cmd.SetErr(errCrashed)
			return errCrashed
		}
		return next(ctx, cmd)
	}
}

func (c *crash) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// dying returns two processes on one ledger: the first can be made to crash.
func dying(t *testing.T) (first, second *redisledger.Store, c *crash) {
	t.Helper()
	client := mini(t)
	second = fresh(t, client, apart)
	first, err := redisledger.Open(t.Context(), closed(t, redis.NewClient(client.Options())), redisledger.ConfigOf(second))
	if err != nil {
		t.Fatal(err)
	}
	c = new(crash)
	redisledger.ClientOf(first).AddHook(c)
	return first, second, c
}

// The directory's entry is written, and the process dies before the conversation is: the entry
// without its run stops nobody.
func TestACrashBetweenTheEntryAndTheConversationIsHarmless(t *testing.T) {
	ctx := t.Context()
	begin := func(t *testing.T) (second *ledger.Ledger, store *redisledger.Store) {
		t.Helper()
		a, b, c := dying(t)
		// The scripts are known, so that each is one command.
		first, other := engine(a), engine(b)
		h, _, _, err := first.Begin(ctx, "warm", job("warm"))
		if err != nil {
			t.Fatal(err)
		}
		h.Close()
		c.arm(1) // the entry is moved, the conversation is not written
		if _, _, _, err := first.Begin(ctx, "c", job("j")); !errors.Is(err, errCrashed) {
			t.Fatalf("the process did not crash: %v", err)
		}
		home, err := b.FindRun(ctx, "0:/"+fence.RunRow(job("j").Run))
		if err != nil || !home.Found || home.Conversation != ledger.ConversationKey("", "c") {
			t.Fatalf("the entry is %+v, %v: the test tests nothing", home, err)
		}
		if snap, err := b.Load(ctx, home.Conversation, ledger.Query{}); err != nil || snap.Tag != "" {
			t.Fatalf("the conversation is there: %+v, %v", snap, err)
		}
		return other, b
	}
	for _, where := range []string{"c", "another"} {
		t.Run("redelivered on "+where, func(t *testing.T) {
			l, store := begin(t)
			h, v, _, err := l.Begin(ctx, where, job("j"))
			if err != nil || h == nil {
				t.Fatalf("begin: %+v, %v", v, err)
			}
			defer h.Close()
			if v, _, err := h.Claim(ctx, effect(where, "refund", "1")); err != nil || v.Call == nil {
				t.Errorf("claim: %+v, %v", v, err)
			}
			if home, err := store.FindRun(ctx, "0:/"+fence.RunRow(job("j").Run)); err != nil || home.Conversation != ledger.ConversationKey("", where) {
				t.Errorf("the run lives at %+v, %v", home, err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		l, _ := begin(t)
		if v, err := l.Cancel(ctx, fence.CancelRequest{Run: job("j").Run, By: "op"}); err != nil || !v.Cancelled {
			t.Fatalf("cancel: %+v, %v", v, err)
		}
		h, v, _, err := l.Begin(ctx, "c", job("j"))
		if err != nil || h != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonCancelled {
			t.Errorf("begin after a cancel: %+v, %v", v, err)
		}
	})
}

// A refused change takes its entry back, whatever was there before.
func TestARefusedChangeLeavesTheDirectoryAsItWas(t *testing.T) {
	ctx := t.Context()
	store := fresh(t, mini(t), apart)
	for run, put := range map[string]func(){
		"unknown": func() {},
		"buried": func() {
			if ok, err := store.Bury(ctx, "buried", []byte("stone\x00"), 1); err != nil || !ok {
				t.Fatal(ok, err)
			}
		},
		"elsewhere": func() {
			if r, err := store.Apply(ctx, "other", ledger.Write{NewTag: "1", Head: head, Home: &ledger.HomeWrite{Run: "elsewhere"}}); err != nil || !r.Applied {
				t.Fatal(r, err)
			}
		},
	} {
		put()
		was, err := store.FindRun(ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.Apply(ctx, "c", ledger.Write{Tag: "no", NewTag: "1", Head: head, Home: &ledger.HomeWrite{Run: run, Was: was}, Want: ledger.Query{Run: run}})
		if err != nil || r.Applied || r.Current == nil {
			t.Fatalf("%s: %+v, %v", run, r, err)
		}
		is, err := store.FindRun(ctx, run)
		if fmt.Sprint(is, err) != fmt.Sprint(was, nil) || fmt.Sprint(r.Current.Home) != fmt.Sprint(was) {
			t.Errorf("%s: the entry was %+v and is %+v, %v; the refusal shows %+v", run, was, is, err, r.Current.Home)
		}
	}
	// The tombstone that came back is exhumed in its time.
	if n, err := store.Exhume(ctx, 10); err != nil || n != 1 {
		t.Errorf("exhumed %d, %v", n, err)
	}
}

// Between the entry and the conversation somebody cancels the run where the entry says, which makes
// the change fail: its entry must stay, or nobody would find the cancelled run.
func TestAnEntryThatWasReadIsNotTakenBack(t *testing.T) {
	ctx := t.Context()
	first, second, c := dying(t)
	l := engine(second)
	run := fence.RunKey{Queue: "q", ID: "j"}
	name := "0:/" + fence.RunRow(run)
	// Both scripts are known from here on, so that each is one command.
	if _, err := first.Apply(ctx, "warm", ledger.Write{NewTag: "1", Head: head, Home: &ledger.HomeWrite{Run: "warm"}}); err != nil {
		t.Fatal(err)
	}
	c.meanwhile = func() {
		if v, err := l.Cancel(ctx, fence.CancelRequest{Run: run, By: "op"}); err != nil || !v.Cancelled {
			t.Errorf("cancel: %+v, %v", v, err)
		}
	}
	c.arm(1)
	where := ledger.ConversationKey("", "c")
	r, err := first.Apply(ctx, where, ledger.Write{NewTag: "1", Head: head, Home: &ledger.HomeWrite{Run: name}})
	if err != nil || r.Applied {
		t.Fatalf("%+v, %v: the cancel did not come first", r, err)
	}
	if home, err := second.FindRun(ctx, name); err != nil || home.Conversation != where {
		t.Errorf("the cancelled run lives at %+v, %v, want %s", home, err, where)
	}
	h, v, _, err := l.Begin(ctx, "c", job("j"))
	if err != nil || h != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonCancelled {
		t.Errorf("begin after the cancel: %+v, %v", v, err)
	}
}

// The order of steps is the same whatever the client is, so that a server in this process shows it.
func TestMemoryAndShardedRedisHoldTheSameAfterEveryStep(t *testing.T) {
	steps := 150
	if race.Enabled || testing.Short() {
		steps = 60
	}
	client := mini(t)
	ledgertest.Same(t, 11, steps,
		func(_ *testing.T, s *seam.Seam) ledger.Store { return memledger.NewSeamed(s) },
		func(t *testing.T, s *seam.Seam) ledger.Store {
			store, err := redisledger.OpenSeamed(t.Context(), client, redisledger.ConfigOf(fresh(t, client, apart)), s)
			if err != nil {
				t.Fatal(err)
			}
			return store
		})
}

// The client sends the first step again, because its answer was lost; somebody has read the entry
// in between. The repetition must not make it one that can be taken back.
func TestARepetitionDoesNotMakeAnEntryUnread(t *testing.T) {
	client := mini(t)
	s := fresh(t, client, apart)
	ctx := t.Context()
	if err := redisledger.MoveIn(ctx, s, "c", "run", "nonce"); err != nil {
		t.Fatal(err)
	}
	if home, err := s.FindRun(ctx, "run"); err != nil || home.Conversation != "c" {
		t.Fatalf("%+v, %v", home, err)
	}
	if err := redisledger.MoveIn(ctx, s, "c", "run", "nonce"); err != nil {
		t.Fatal(err)
	}
	if back, err := redisledger.Back(ctx, s, "c", "run", "nonce"); err != nil || back {
		t.Errorf("taken back: %v, %v", back, err)
	}
	if home, err := s.FindRun(ctx, "run"); err != nil || home.Conversation != "c" {
		t.Errorf("%+v, %v", home, err)
	}
}

// One command takes a thousand fields; what is more goes in pieces.
func TestChangesOfAnySizeAreApplied(t *testing.T) {
	s := fresh(t, mini(t))
	for _, n := range []int{1, 996, 997, 998, 999, 1000, 1001, 2500} {
		w := ledger.Write{NewTag: "1", Head: head}
		for i := range n {
			w.Absent = append(w.Absent, fmt.Sprint("k", i))
		}
		if r, err := s.Apply(t.Context(), fmt.Sprint("c", n), w); err != nil || !r.Applied {
			t.Errorf("%d: %+v, %v", n, r, err)
		}
	}
}

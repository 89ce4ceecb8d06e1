//go:build unix

package pgledger_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

const crashWriters = 8

// acknowledged is what a writer was told before the server crashed.
type acknowledged struct {
	conversation, effect, claim string
	fence                       int64
	settled                     bool
}

// Newer jobs supersede older ones.
var orders atomic.Int64

func nextOrder() fence.Order { return fence.Order{Source: "s", Number: orders.Add(1)} }

// writer does effects, one after the other, until the server is gone. Some on a conversation of its
// own, some on one that all share; each with a delivery of its own, as jobs would.
type writer struct {
	n      int
	ledger *ledger.Ledger
	claims []acknowledged
	old    []*ledger.Handle // handles that know the time before the crash
	calls  map[string]int   // calls of the provider, by effect
}

func (w *writer) work(ctx context.Context, round int) {
	for i := 0; ctx.Err() == nil; i++ {
		conversation := fmt.Sprintf("own %d", w.n)
		if i%4 == 3 {
			conversation = fmt.Sprintf("shared %d", i%3)
		}
		id := fmt.Sprintf("round %d, writer %d, job %d", round, w.n, i)
		h, _, _, err := w.ledger.Begin(ctx, conversation, fence.BeginRequest{
			Run: fence.RunKey{Queue: "q", ID: id}, Mode: fence.Supersede, Reads: fence.AfterBegin, Identity: fence.Identity{Nonce: newID()},
			Order: nextOrder(),
		})
		if err != nil || h == nil {
			return
		}
		w.old = append(w.old, h)
		for k := range 2 {
			q := effect(conversation, fmt.Sprint(id, "/", k))
			q.Policy, q.AfterUnresolved = fence.NoChange, true
			v, _, err := h.Claim(ctx, q)
			if err != nil {
				return // not called
			}
			if v.Call == nil {
				break // a newer job took over
			}
			w.calls[q.Effect]++
			w.claims = append(w.claims, acknowledged{conversation: conversation, effect: q.Effect, claim: v.Call.Claim, fence: v.Call.Fence})
			s, _, err := h.Settle(ctx, settlement(v, "done"))
			if err != nil {
				return
			}
			w.claims[len(w.claims)-1].settled = s.Recorded
		}
	}
}

// Postgres is stopped at once under load, again and again. What was acknowledged as claimed is
// there, no old delivery may write again (its number may be another's by now), no fence number is valid twice, and a settle that is lost is seen
// as an effect whose outcome is unknown.
func TestACrashOfTheServerLosesNoClaim(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	// A long delay of the log writer makes it likely that settles are lost: the test is to see some.
	server := quiet(t, "wal_writer_delay=10s", "wal_writer_flush_after=128MB")
	pool := poolOf(t, server.URL, func(c *pgxpool.Config) { c.MaxConns = crashWriters })
	store := opened(t, pool, pgledger.Config{Schema: fresh(t, pool)})
	fences := map[string]map[int64]string{} // by conversation: fence number → claim
	claims, lostSettles, revived := 0, 0, 0
	for round := range rounds {
		writers := make([]*writer, crashWriters)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for n := range writers {
			w := &writer{n: n, calls: map[string]int{}, ledger: ledger.New(store, ledger.Options{Seam: seam.Real(), Rules: rules, Tries: 1})}
			writers[n] = w
			wg.Go(func() { w.work(ctx, round) })
		}
		time.Sleep(300 * time.Millisecond) // under load
		if err := server.Crash(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		cancel()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		pool.Reset()

		look := newLedger(store)
		for _, w := range writers {
			for _, c := range w.claims {
				claims++
				e := effectOf(t, look, c.conversation, c.effect)
				if e == nil || len(e.Calls) != 1 || e.Calls[0].Claim != c.claim || e.Calls[0].Fence != c.fence {
					t.Fatalf("round %d: an acknowledged claim is lost: %+v, and there is %+v", round, c, e)
				}
				if fences[c.conversation] == nil {
					fences[c.conversation] = map[int64]string{}
				}
				if other := fences[c.conversation][c.fence]; other != "" {
					t.Errorf("round %d: fence number %d was given to %s and %s", round, c.fence, other, c.claim)
				}
				fences[c.conversation][c.fence] = c.claim
				switch state := e.Calls[0].State; {
				case state == fence.Pending && c.settled:
					lostSettles++
				case state != fence.Pending && state != fence.Committed:
					t.Errorf("round %d: effect %s is %s", round, c.effect, state)
				}
			}
		}
		// A handle from before must not write on what others make of the time that was lost. Somebody
		// begins on each conversation; then the old ones try.
		for _, w := range writers {
			for i, h := range w.old {
				if i >= len(w.old)-3 {
					revived += w.revive(t, look, h, fmt.Sprint("revived ", round, " ", w.n, " ", i), i%2 == 0)
				}
				h.Close()
			}
		}
	}
	t.Logf("%d rounds: %d acknowledged claims, none lost; %d acknowledged settles lost, their effects unresolved; %d old handles tried again", rounds, claims, lostSettles, revived)
	if claims == 0 || revived == 0 {
		t.Error("there was no load")
	}
	unresolved, _, err := newLedger(store).Unresolved(t.Context(), 0, 100_000)
	if err != nil || len(unresolved) < lostSettles {
		t.Errorf("%d unresolved effects are listed, %v; %d settles were lost", len(unresolved), err, lostSettles)
	}
}

// revive lets somebody begin on the conversation of an old handle, and then the handle claim: it must
// be refused, and leave the newcomer's right alone. The newcomer is a newer job, or the same job
// delivered again: then its delivery may well have the number that was lost.
func (w *writer) revive(t *testing.T, look *ledger.Ledger, old *ledger.Handle, id string, again bool) int {
	t.Helper()
	conversation := old.Lease().Conversation[len(ledger.ConversationKey("", "")):]
	q := fence.BeginRequest{
		Run: fence.RunKey{Queue: "q", ID: id}, Mode: fence.Supersede, Reads: fence.AfterBegin, Identity: fence.Identity{Nonce: newID()}, Order: nextOrder(),
	}
	if again {
		q.Run = old.Delivery().Run
	}
	h, v, _, err := look.Begin(t.Context(), conversation, q)
	if err != nil {
		t.Fatal(err)
	}
	if h == nil {
		if !again || v.Refusal == nil || v.Refusal.Reason != fence.ReasonSuperseded {
			t.Errorf("%s: begin: %+v", id, v)
		}
		return 0 // a newer job is there
	}
	defer h.Close()
	c := effect(conversation, id)
	c.Policy, c.AfterUnresolved = fence.NoChange, true
	theirs, _, err := old.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if theirs.Call != nil {
		t.Errorf("%s: a handle from before the crash claimed after somebody else had begun", id)
	}
	c.Claim = newID()
	if ours, _, err := h.Claim(t.Context(), c); err != nil || ours.Call == nil {
		t.Errorf("%s: the newcomer's claim: %+v, %v", id, ours.Refusal, err)
	}
	return 1
}

func effectOf(t *testing.T, l *ledger.Ledger, conversation, id string) *fence.Effect {
	t.Helper()
	v, err := l.Look(t.Context(), conversation, fence.EffectRow(id))
	if err != nil {
		t.Fatal(err)
	}
	e, _ := v.Rows[fence.EffectRow(id)].(*fence.Effect)
	return e
}

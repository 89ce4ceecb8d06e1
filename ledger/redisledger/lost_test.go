package redisledger_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

func engine(store ledger.Store) *ledger.Ledger {
	return ledger.New(store, ledger.Options{
		Seam: seam.Real(), Rules: fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 30 * 24 * 3_600_000, MaxCalls: 3},
	})
}

var newID = seam.Real().NewID

func job(id string, inbound ...string) fence.BeginRequest {
	return fence.BeginRequest{
		Run: fence.RunKey{Queue: "q", ID: id}, Digest: "digest", Inbound: inbound, Mode: fence.Supersede, Reads: fence.AfterBegin,
		Identity: fence.Identity{Nonce: newID()},
	}
}

func effect(conversation, intent, id string) fence.ClaimRequest {
	k := key.ID(id)
	return fence.ClaimRequest{
		Effect: key.EffectID("", conversation, intent, k), Intent: intent, Key: k.Canonical(), KeyID: id, Claim: newID(), For: 120_000, By: "worker", Distinct: true,
	}
}

func committed(v fence.ClaimVerdict) fence.SettleRequest {
	return fence.SettleRequest{Effect: v.Effect.ID, Claim: v.Call.Claim, State: fence.Committed, Granted: v.Effect, Result: []byte("done")}
}

// Case F14: the server has run the script, its answer is lost, and the client sends it again by
// itself. Nobody above may notice.
func TestLostAnswersChangeNothing(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(map[bool]string{false: "connection cut", true: "timeout"}[silent], func(t *testing.T) {
			direct := plain(t)
			p := newProxy(t, direct.Options().Addr, silent)
			config := redisledger.ConfigOf(fresh(t, direct))
			store, err := redisledger.Open(t.Context(), p.client(func(o *redis.Options) { o.DB = direct.Options().DB }), config)
			if err != nil {
				t.Fatal(err)
			}
			counted := &refusals{Store: store}
			l := engine(counted)
			ctx := t.Context()
			lose := func(what string) func() {
				p.armed.Store(1)
				was := p.swallowed.Load()
				return func() {
					t.Helper()
					if p.swallowed.Load() != was+1 {
						t.Errorf("%s: no answer was lost: the test tests nothing", what)
					}
				}
			}
			if _, err := l.Stamp(ctx, "warm"); err != nil {
				t.Fatal(err)
			}

			lost := lose("begin")
			h, begun, _, err := l.Begin(ctx, "c", job("j"))
			lost()
			if err != nil || h == nil || begun.Delivery.ID.Number != 1 {
				t.Fatalf("begin: %+v, %v", begun, err)
			}
			defer h.Close()
			lost = lose("claim")
			claim, _, err := h.Claim(ctx, effect("c", "refund", "1"))
			lost()
			if err != nil || claim.Call == nil || len(claim.Effect.Calls) != 1 {
				t.Fatalf("claim: %+v, %v", claim, err)
			}
			lost = lose("settle")
			settled, _, err := h.Settle(ctx, committed(claim))
			lost()
			if err != nil || !settled.Recorded || settled.Vanished {
				t.Fatalf("settle: %+v, %v", settled, err)
			}
			lost = lose("heartbeat")
			renewed, err := l.Renew(ctx, []ledger.LeaseKey{h.Lease()}, time.Minute)
			lost()
			if err != nil || !renewed[0].Found || h.Moved(ctx, renewed[0].Tag) {
				t.Fatalf("heartbeat: %+v, %v", renewed, err)
			}
			lost = lose("bury")
			buried, err := l.Cancel(ctx, fence.CancelRequest{Run: fence.RunKey{Queue: "q", ID: "unknown"}, By: "op"})
			lost()
			if err != nil || !buried.Cancelled {
				t.Fatalf("bury: %+v, %v", buried, err)
			}
			lost = lose("end")
			ended, _, err := h.End(ctx, fence.EndSuccess)
			lost()
			if err != nil || ended.Refusal != nil {
				t.Fatalf("end: %+v, %v", ended, err)
			}
			if counted.n != 0 {
				t.Errorf("%d of the changes were refused: a repetition was not recognised", counted.n)
			}
		})
	}
}

type refusals struct {
	ledger.Store
	n int
}

func (r *refusals) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	result, err := r.Store.Apply(ctx, conversation, w)
	if err == nil && !result.Applied {
		r.n++
	}
	return result, err
}

// A repetition after which somebody else wrote is refused, and shows the present.
func TestARepetitionThatWasOvertakenIsRefused(t *testing.T) {
	direct := plain(t)
	p := newProxy(t, direct.Options().Addr, false)
	other := fresh(t, direct)
	client := p.client(func(o *redis.Options) { o.DB = direct.Options().DB })
	store, err := redisledger.Open(t.Context(), client, redisledger.ConfigOf(other))
	if err != nil {
		t.Fatal(err)
	}
	head := ledger.NewRow("", fence.Index{}, []byte("h"))
	// The hook writes before the script is sent a second time.
	client.AddHook(between(func() {
		if p.swallowed.Load() == 0 {
			return
		}
		p.swallowed.Store(0)
		if r, err := other.Apply(context.Background(), "c", ledger.Write{Tag: "1", NewTag: "2", Head: head}); err != nil || !r.Applied {
			t.Errorf("the other: %+v, %v", r, err)
		}
	}))
	p.armed.Store(1)
	r, err := store.Apply(t.Context(), "c", ledger.Write{NewTag: "1", Head: head})
	if err != nil || r.Applied || r.Current == nil || r.Current.Tag != "2" {
		t.Errorf("%+v, %v", r, err)
	}
}

// between is called whenever a connection is made.
type between func()

func (f between) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		f()
		return next(ctx, network, addr)
	}
}
func (f between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A server that does not answer at all is an error, and soon when the caller has had enough.
func TestAStalledServerDoesNotHoldACallThatGaveUp(t *testing.T) {
	direct := plain(t)
	p := newProxy(t, direct.Options().Addr, true)
	store, err := redisledger.Open(t.Context(), p.client(func(o *redis.Options) {
		o.DB, o.ReadTimeout = direct.Options().DB, 20*time.Second
	}), redisledger.ConfigOf(fresh(t, direct)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.armed.Store(1)
	failed := make(chan error, 1)
	go func() {
		_, err := store.Load(ctx, "c", ledger.Query{})
		failed <- err
	}()
	for p.swallowed.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Load: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Load went on waiting after its ctx was done")
	}
	p.cut()
}

// Case F20: a server that has forgotten the scripts, as one that was just promoted has.
func TestForgottenScriptsAreTold(t *testing.T) {
	client := plain(t)
	store := fresh(t, client)
	client.AddHook(flush{})
	head := ledger.NewRow("", fence.Index{Due: 1}, []byte("h"))
	var leases []ledger.LeaseKey
	for i := range 40 {
		c := fmt.Sprint("c", i)
		r, err := store.Apply(t.Context(), c, ledger.Write{
			NewTag: "1", Head: head, Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}, Home: &ledger.HomeWrite{Run: c},
		})
		if err != nil || !r.Applied {
			t.Fatal(r, err)
		}
		leases = append(leases, ledger.LeaseKey{Conversation: c, Run: "r", Nonce: "n"})
	}
	renewed, err := store.Renew(t.Context(), leases, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range renewed {
		if !r.Found || r.Tag != "1" {
			t.Errorf("lease %d: %+v", i, r)
		}
	}
	if found, err := store.Scan(t.Context(), ledger.Scan{Kind: ledger.ScanDue, Limit: 100}); err != nil || len(found) != 40 {
		t.Errorf("%d due, %v", len(found), err)
	}
	if h, err := store.FindRun(t.Context(), "c7"); err != nil || h.Conversation != "c7" {
		t.Error(h, err)
	}
	if ok, err := store.Bury(t.Context(), "dead", nil, 1); err != nil || !ok {
		t.Error(ok, err)
	}
	if n, err := store.Exhume(t.Context(), 10); err != nil || n != 1 {
		t.Error(n, err)
	}
}

// flush makes the server forget its scripts before every command.
type flush struct{}

func (flush) DialHook(next redis.DialHook) redis.DialHook { return next }
func (flush) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			if err := next(ctx, redis.NewStatusCmd(ctx, "script", "flush")); err != nil {
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (flush) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" {
			cmds = append([]redis.Cmder{redis.NewStatusCmd(ctx, "script", "flush")}, cmds...)
		}
		return next(ctx, cmds)
	}
}

// A tombstone whose answer was lost is the caller's own.
func TestALostAnswerToBuryIsFoundAgain(t *testing.T) {
	direct := plain(t)
	p := newProxy(t, direct.Options().Addr, false)
	store, err := redisledger.Open(t.Context(), p.client(func(o *redis.Options) { o.DB = direct.Options().DB }), redisledger.ConfigOf(fresh(t, direct)))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := store.Bury(t.Context(), "known", nil, 1); err != nil || !ok {
		t.Fatal(ok, err)
	}
	p.armed.Store(1)
	if ok, err := store.Bury(t.Context(), "lost", nil, 1); err != nil || !ok || p.swallowed.Load() != 1 {
		t.Errorf("buried %v, %v, %d answers lost", ok, err, p.swallowed.Load())
	}
	if ok, err := store.Bury(t.Context(), "known", nil, 1); err != nil || ok {
		t.Errorf("buried twice: %v, %v", ok, err)
	}
}

package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

// history records operations, from any number of clients.
type history struct {
	mu    sync.Mutex
	now   func() fence.Millis
	ticks int64
	ops   []*operation
}

type operation struct {
	client   int
	in       opInput
	out      *opOutput
	from, to int64
	first    *operation // its first try
}

func (h *history) asked(client int, in opInput) *operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ticks++
	in.at = h.now()
	op := &operation{client: client, in: in, from: h.ticks, to: math.MaxInt64}
	h.ops = append(h.ops, op)
	if in.verb != "read" && in.verb != "write" {
		first := *op
		first.in.first = true
		op.first = &first
		h.ops = append(h.ops, op.first)
	}
	return op
}

// answered is not called for an operation of which nobody knows what became.
func (h *history) answered(op *operation, out opOutput) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ticks++
	out.at = h.now()
	op.out, op.to = &out, h.ticks
	if op.first != nil {
		op.first.out, op.first.to = &opOutput{at: out.at}, h.ticks
	}
}

// check returns the keys whose histories are not linearizable.
func (h *history) check() []string {
	byKey := map[string][]porcupine.Operation{}
	for _, op := range h.ops {
		var out any
		if op.out != nil {
			out = op.out
		} else if op.in.first {
			continue // its other try stands for it
		}
		byKey[op.in.key] = append(byKey[op.in.key], porcupine.Operation{ClientId: op.client, Input: op.in, Call: op.from, Output: out, Return: op.to})
	}
	var bad []string
	for key, ops := range byKey {
		model := effectModel
		if strings.HasPrefix(key, "run") {
			model = runModel
		}
		switch porcupine.CheckOperationsTimeout(model, ops, 20*time.Second) {
		case porcupine.Illegal:
			bad = append(bad, key)
		case porcupine.Unknown:
			bad = append(bad, key+" (not decided in time)")
		}
	}
	slices.Sort(bad)
	return bad
}

func (h *history) String() string {
	var b strings.Builder
	for _, op := range h.ops {
		if op.in.first {
			continue
		}
		fmt.Fprintf(&b, "client %d [%d, %d] %s\n", op.client, op.from, op.to, describeOp(op.in, op.out))
	}
	return b.String()
}

// claimer is a client of a ledger: it begins a run, and claims, settles and resolves.
type claimer struct {
	id     int
	run    string
	l      *ledger.Ledger
	h      *history
	choose func(n int) int
	sleep  func(ms int64)
	newID  func() string
	claims []claimed
}

type claimed struct {
	v      fence.ClaimVerdict
	handle *ledger.Handle
}

const linearFor = 120_000 // a claim's deadline, in milliseconds

func (c *claimer) work(ctx context.Context, steps int) {
	h := c.begin(ctx)
	if h != nil {
		defer h.Close()
	}
	for range steps {
		c.sleep([...]int64{0, 0, 20, 40_000, 130_000}[c.choose(5)])
		switch c.choose(5) {
		case 0:
			c.resolve(ctx)
		case 1:
			if len(c.claims) > 0 {
				c.settle(ctx, c.claims[c.choose(len(c.claims))]) // once more, and another outcome perhaps
			}
		default:
			if h == nil {
				c.resolve(ctx)
			} else if c.claim(ctx, h) {
				c.sleep([...]int64{0, 20, 50_000, 130_000}[c.choose(4)])
				c.settle(ctx, c.claims[len(c.claims)-1])
			}
		}
	}
}

func (c *claimer) begin(ctx context.Context) *ledger.Handle {
	nonce := c.newID()
	op := c.h.asked(c.id, opInput{verb: "begin", key: "run " + c.run, claim: nonce})
	h, v, _, err := c.l.Begin(ctx, "c", fence.BeginRequest{
		Identity: fence.Identity{Nonce: nonce}, Run: fence.RunKey{Queue: "sim", ID: c.run}, Digest: c.run,
		Mode: fence.Supersede, Reads: fence.AfterBegin,
	})
	if err != nil {
		return nil
	}
	out := opOutput{}
	if v.Delivery != nil {
		out.n = v.Delivery.ID.Number
	}
	c.h.answered(op, out)
	return h
}

func (c *claimer) effect() string { return []string{"effect 1", "effect 2"}[c.choose(2)] }

func (c *claimer) claim(ctx context.Context, h *ledger.Handle) bool {
	id := c.effect()
	q := fence.ClaimRequest{
		Effect: id, Intent: "tag", Key: `"` + id + `"`, KeyID: id, Distinct: true, Policy: fence.NoChange, Claim: c.newID(), For: linearFor, By: "claimer",
	}
	op := c.h.asked(c.id, opInput{verb: "claim", key: id, claim: q.Claim})
	write := c.h.asked(c.id, opInput{verb: "write", key: "run " + c.run, n: h.Delivery().ID.Number})
	v, _, err := h.Claim(ctx, q)
	if err != nil {
		c.h.forget(write)
		return false
	}
	switch {
	case v.Call != nil:
		c.h.answered(op, opOutput{number: v.Call.Number, fence: v.Call.Fence, claim: v.Call.Claim, deadline: v.Call.Deadline})
		c.h.answered(write, opOutput{})
		c.claims = append(c.claims, claimed{v, h})
		return true
	case v.Replay != nil:
		c.h.answered(op, opOutput{replay: true, value: string(v.Replay.Result)})
	default:
		c.h.answered(op, opOutput{refused: v.Refusal.Reason})
	}
	c.h.forget(write)
	return false
}

// forget takes an operation back that turned out not to be one.
func (h *history) forget(op *operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = slices.DeleteFunc(h.ops, func(o *operation) bool { return o == op })
}

func (c *claimer) settle(ctx context.Context, is claimed) {
	q := fence.SettleRequest{Effect: is.v.Effect.ID, Claim: is.v.Call.Claim, State: [...]fence.State{fence.Committed, fence.Failed, fence.Ambiguous}[c.choose(3)], Granted: is.v.Effect}
	in := opInput{verb: "settle", key: q.Effect, claim: q.Claim, state: q.State}
	if q.State == fence.Committed {
		in.value = fmt.Sprintf("%s of %d", c.newID(), c.id)
		q.Result = []byte(in.value)
	}
	op := c.h.asked(c.id, in)
	settle := is.handle.Settle
	if c.choose(2) == 1 { // as a webhook does, in another process
		settle = func(ctx context.Context, q fence.SettleRequest) (fence.SettleVerdict, fence.Millis, error) {
			return c.l.Settle(ctx, "c", q)
		}
	}
	v, _, err := settle(ctx, q)
	if err != nil {
		return
	}
	out := opOutput{recorded: v.Recorded, double: v.Duplicate}
	if v.Effect != nil {
		out.state = v.Effect.State()
	}
	c.h.answered(op, out)
}

func (c *claimer) resolve(ctx context.Context) {
	id := c.effect()
	in := opInput{verb: "resolve", key: id, yes: c.choose(2) == 1}
	op := c.h.asked(c.id, in)
	v, _, err := c.l.Resolve(ctx, "c", fence.ResolveRequest{Effect: id, Happened: in.yes, By: "somebody"})
	if err == nil {
		c.h.answered(op, opOutput{early: v.Refused != ""})
	}
}

// read asks, in the end, what the effects are.
func (h *history) read(l *ledger.Ledger) error {
	for _, id := range []string{"effect 1", "effect 2"} {
		op := h.asked(0, opInput{verb: "read", key: id})
		v, err := l.Look(context.Background(), "c", fence.EffectRow(id))
		if err != nil {
			return err
		}
		out := opOutput{}
		if e, _ := v.Rows[fence.EffectRow(id)].(*fence.Effect); e != nil {
			out.state, out.value = e.State(), string(e.Deciding().Result)
		}
		h.answered(op, out)
	}
	return nil
}

var linearRules = fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3}

// linearWorld lets claimers race in a simulated world whose store fails in every way it can,
// short of losing what it acknowledged.
func (e *Engine) linearWorld(seed uint64, off sabotage.Set, store func(ledger.Store) ledger.Store) (*history, string) {
	w := e.newTestWorld(Config{
		Handler: "own", Provider: "naive", Queue: "river", Order: "seq", Mode: "supersede", Tag: "none", Messages: 1, Budget: 4, Rate: 25, Without: true,
		Faults: Faults(CrashBefore, CrashAfter, PauseShort, PauseLease, PauseDeadline, PauseAfter, StoreError, LostAck, WrittenTwice, StoreSlow, Outage, Cut),
		Off:    off,
	}, seeded(seed))
	defer w.close()
	w.messages = 0
	h := &history{now: func() fence.Millis { return fence.Millis(w.db.clock().UnixMilli()) }}
	for i := range 5 {
		p := w.procs[1+i%2]
		c := &claimer{id: i, run: fmt.Sprint(i % 3), h: h, choose: w.c.choose, newID: w.newID}
		w.spawn(p, fmt.Sprintf("claimer %d", i), func(t *task) {
			c.sleep = func(ms int64) { _ = t.sleep(context.Background(), ms*millisecond) }
			c.sleep([...]int64{0, 10, 60_000}[w.c.choose(3)])
			c.l = ledger.New(store(&connection{p: p}), ledger.Options{Rules: linearRules.Without(off), Seam: p.seam})
			c.work(context.Background(), 4)
		})
	}
	w.loop()
	if w.bad == "" {
		w.now += 1000 * second
		if err := h.read(ledger.New(w.db.inner, ledger.Options{Rules: linearRules.Without(off), Seam: &seam.Seam{
			Now: w.db.clock, NewLock: func() seam.Lock { return freeLock{} }, NewID: func() string { return "reader" },
		}})); err != nil {
			return h, err.Error()
		}
	}
	return h, w.bad
}

func same(s ledger.Store) ledger.Store { return s }

func TestTheLedgersHistoriesAreLinearizable(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	n, unknown := 0, 0
	for seed := uint64(1); seed <= uint64(env("FENCEDRUN_SEEDS", 150)); seed++ {
		h, bad := e.linearWorld(seed, sabotage.Set{}, same)
		if bad != "" {
			t.Fatalf("seed %d: %s", seed, bad)
		}
		for _, op := range h.ops {
			if op.in.first {
				continue
			}
			if n++; op.out == nil {
				unknown++
			}
		}
		if keys := h.check(); len(keys) > 0 {
			t.Fatalf("seed %d: not linearizable: %v\n%s", seed, keys, h)
		}
	}
	t.Logf("%d operations, of %d nobody heard the answer", n, unknown)
}

// forgetful is a store that forgets to compare before it swaps.
type forgetful struct{ ledger.Store }

func (f forgetful) Apply(ctx context.Context, conv string, w ledger.Write) (ledger.Result, error) {
	if snap, err := f.Load(ctx, conv, ledger.Query{}); err == nil {
		w.Tag, w.Absent = snap.Tag, nil
	}
	return f.Store.Apply(ctx, conv, w)
}

// A checker that finds nothing proves nothing: it must see a rule that is off, and a store
// that breaks its contract.
func TestAHistoryThatIsNotLinearizableIsFound(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	find := func(name string, off sabotage.Set, store func(ledger.Store) ledger.Store) {
		t.Helper()
		for seed := uint64(1); seed <= 400; seed++ {
			h, _ := e.linearWorld(seed, off, store)
			if keys := h.check(); len(keys) > 0 {
				t.Logf("%s: seed %d, %v", name, seed, keys)
				return
			}
		}
		t.Errorf("%s: every history is linearizable", name)
	}
	for _, name := range []sabotage.Name{
		sabotage.LastCallDecides, sabotage.CommittedNotFinal, sabotage.RedeliveryIsNewRun, sabotage.BeginNonceIgnored, sabotage.ExpiredBecomesFailed,
		sabotage.NeverLapses, sabotage.PendingRetried, sabotage.AmbiguousRetried, sabotage.NoFence, sabotage.StaleDeliveryWrites,
		sabotage.CallsUnlimited, sabotage.OwnClaimUnknown, sabotage.FenceStands, sabotage.LateOverwrites, sabotage.SettledTwice, sabotage.ResolveWhilePending,
	} {
		find(name.String(), sabotage.Of(name), same)
	}
	find("a store that does not compare", sabotage.Set{}, func(s ledger.Store) ledger.Store { return forgetful{s} })
}

// The same with real goroutines, on a clock that they move.
func TestTheLedgersHistoriesAreLinearizableUnderRealConcurrency(t *testing.T) {
	for round := range uint64(20) {
		if h := racing(t, round, same); len(h.check()) > 0 {
			t.Fatalf("round %d: not linearizable: %v\n%s", round, h.check(), h)
		}
	}
	for round := range uint64(200) {
		if h := racing(t, round, func(s ledger.Store) ledger.Store { return forgetful{s} }); len(h.check()) > 0 {
			return
		}
	}
	t.Error("a store that does not compare goes unnoticed")
}

func racing(t *testing.T, round uint64, store func(ledger.Store) ledger.Store) *history {
	var clock atomic.Int64
	clock.Store(epoch.UnixMilli())
	s := *seam.Real()
	s.Now = func() time.Time { return time.UnixMilli(clock.Load()) }
	inner := memledger.NewSeamed(&s)
	h := &history{now: func() fence.Millis { return fence.Millis(clock.Load()) }}
	var group sync.WaitGroup
	for i := range 6 {
		choose := seeded(round*100 + uint64(i)).choose
		c := &claimer{
			id: i, run: fmt.Sprint(i % 3), h: h, choose: choose, newID: s.NewID, sleep: func(ms int64) { clock.Add(ms / 8) },
			l: ledger.New(store(inner), ledger.Options{Rules: linearRules, Seam: &s, Tries: 1000}),
		}
		group.Go(func() { c.work(t.Context(), 5) })
	}
	group.Wait()
	clock.Add(1_000_000)
	if err := h.read(ledger.New(inner, ledger.Options{Rules: linearRules, Seam: &s})); err != nil {
		t.Fatal(err)
	}
	return h
}

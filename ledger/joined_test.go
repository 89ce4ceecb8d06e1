package ledger_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

// joining lets a memory store pass for one that joins transactions: its calls are counted, and
// tx is taken for a *[]ledger.Write that remembers what was written.
type joining struct{ ledger.Store }

func (s joining) Join(_ context.Context, tx any, _ string) (ledger.Tx, error) {
	return recording{s.Store, tx.(*[]ledger.Write)}, nil
}

type recording struct {
	ledger.Store
	writes *[]ledger.Write
}

func (r recording) Apply(ctx context.Context, conv string, w ledger.Write) (ledger.Result, error) {
	*r.writes = append(*r.writes, w)
	return r.Store.Apply(ctx, conv, w)
}

func startJoining(t *testing.T) (*process, *[]fence.EventKind) {
	var told []fence.EventKind
	p := start(t)
	store, calls := ledgertest.Counting(memledger.New())
	p.store, p.calls = store, calls
	p.Ledger = ledger.New(joining{store}, ledger.Options{
		Seam: seam.Real(), Rules: fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3},
		Emit: func(_ context.Context, _ string, events []fence.Event) {
			for _, e := range events {
				told = append(told, e.Kind)
			}
		},
	})
	return p, &told
}

// once is an effect in the caller's transaction.
func (p *process) once(tx *[]ledger.Write, h *ledger.Handle, q fence.ClaimRequest) (*ledger.Joined, fence.ClaimVerdict) {
	p.t.Helper()
	j, err := p.Join(p.t.Context(), tx, "c")
	if err != nil {
		p.t.Fatal(err)
	}
	v, _, err := j.Claim(p.t.Context(), h, q)
	if err != nil {
		p.t.Fatal(err)
	}
	if v.Call == nil {
		return j, v
	}
	s, _, err := j.Settle(p.t.Context(), h, fence.SettleRequest{Effect: q.Effect, Claim: q.Claim, State: fence.Committed, Granted: v.Effect})
	if err != nil || !s.Recorded {
		p.t.Fatalf("%+v, %v", s, err)
	}
	return j, v
}

func TestAnEffectInTheCallersTransactionIsOneReadAndOneWrite(t *testing.T) {
	p, told := startJoining(t)
	h := p.begin("c", "j", 1)
	p.calls.Take()
	var tx []ledger.Write
	j, v := p.once(&tx, h, p.effect("e"))
	if v.Call == nil {
		t.Fatalf("%+v", v)
	}
	if n := p.calls.Take(); n.Calls() != 1 || len(tx) != 0 {
		t.Errorf("before the end: %v, %d writes", n, len(tx))
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := p.calls.Take(); n.Calls() != 1 || len(tx) != 1 {
		t.Errorf("at the end: %v, %d writes", n, len(tx))
	}
	if keys := rowKeys(tx[0].Put); !slices.Equal(keys, []string{"e/e", "r/1:q/j"}) {
		t.Errorf("wrote %q", keys)
	}
	if !slices.Equal(*told, []fence.EventKind{fence.EventBegun}) {
		t.Errorf("told of %s, and nobody knows whether it will be true", *told)
	}
	if _, v := p.once(&tx, h, p.effect("e")); v.Replay == nil {
		t.Errorf("afterwards: %+v", v)
	}
	// The process's own copy has missed it, and finds out.
	if v := p.claim(h, "e"); v.Replay == nil {
		t.Errorf("outside: %+v", v)
	}
}

func rowKeys(rows []ledger.Row) []string {
	var keys []string
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	return keys
}

func TestWhatWasNotFlushedIsNotWritten(t *testing.T) {
	p, _ := startJoining(t)
	h := p.begin("c", "j", 1)
	var tx []ledger.Write
	p.once(&tx, h, p.effect("e"))
	if len(tx) != 0 {
		t.Errorf("%d writes", len(tx))
	}
	if v := p.claim(h, "e"); v.Call == nil {
		t.Errorf("%+v", v)
	}
}

func TestTheRunsEndJoinsItsEffects(t *testing.T) {
	p, _ := startJoining(t)
	h := p.begin("c", "j", 1)
	var tx []ledger.Write
	j, _ := p.once(&tx, h, p.effect("e"))
	v, _, _, err := j.End(t.Context(), h, fence.EndSuccess)
	if err != nil || v.Refusal != nil {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(tx) != 1 || !tx[0].Durable {
		t.Errorf("%d writes", len(tx))
	}
	if v, _, err := h.End(t.Context(), fence.EndSuccess); err != nil || v.Refusal != nil {
		t.Errorf("the same End again: %+v, %v", v, err)
	}
}

func TestAConversationThatChangedUnderItsLockIsAnError(t *testing.T) {
	p, _ := startJoining(t)
	h := p.begin("c", "j", 1)
	var tx []ledger.Write
	j, _ := p.once(&tx, h, p.effect("e"))
	p.claim(h, "other") // this store's Join locks nothing
	if err := j.Flush(t.Context()); !errors.Is(err, ledger.ErrContended) {
		t.Errorf("%v", err)
	}
}

// While the effect runs, time passes; the process must not take what the transaction read before it
// for the present.
func TestALongTransactionDoesNotSetTheClockBack(t *testing.T) {
	p := start(t)
	s := *seam.Real()
	s.Now = func() time.Time { return p.now }
	p.Ledger = ledger.New(joining{p.store}, ledger.Options{
		Seam: &s, Rules: fence.Rules{Lease: 3_600_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3},
	})
	other, h := p.begin("other", "o", 1), p.begin("c", "j", 1)
	var tx []ledger.Write
	j, err := p.Join(t.Context(), &tx, "c")
	if err != nil {
		t.Fatal(err)
	}
	q := p.effect("e")
	v, _, err := j.Claim(t.Context(), h, q)
	if err != nil || v.Call == nil {
		t.Fatalf("%+v, %v", v, err)
	}
	p.now = p.now.Add(time.Minute) // the claim's deadline is two
	_, _, err = j.Settle(t.Context(), h, fence.SettleRequest{Effect: q.Effect, Claim: q.Claim, State: fence.Committed, Granted: v.Effect})
	if err := errors.Join(err, j.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	// Decided on the process's copy and its estimate of the clock.
	if v := p.claim(other, "x"); v.Call == nil || v.Call.At != fence.Millis(p.now.UnixMilli()) {
		t.Errorf("claimed at %d, and it is %d", v.Call.At, p.now.UnixMilli())
	}
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
)

// stub is a store of which a test replaces what it needs.
type stub struct {
	Store
	load  func() (Snapshot, error)
	apply func(w Write) (Result, error)
}

func (s *stub) Load(context.Context, string, Query) (Snapshot, error) { return s.load() }

func (s *stub) Apply(_ context.Context, _ string, w Write) (Result, error) { return s.apply(w) }

type lockingStub struct {
	*stub
	lock func(fn func(Tx) error) error
}

func (s *lockingStub) WithLock(_ context.Context, _ string, fn func(Tx) error) error {
	return s.lock(fn)
}

// on returns a ledger over store, and the pauses it made.
func on(store Store) (*Ledger, *[]time.Duration) {
	s := *seam.Real()
	pauses := &[]time.Duration{}
	s.Sleep = func(ctx context.Context, d time.Duration) error {
		*pauses = append(*pauses, d)
		return ctx.Err()
	}
	return New(store, Options{Seam: &s, Rules: fence.Rules{Lease: 30_000, Retention: 1000}}), pauses
}

func existing() (Snapshot, error) {
	return Snapshot{Now: 1000, Tag: "t", Head: rowOf(&fence.Head{Conversation: "c", Seq: 1})}, nil
}

// writes is a transition that always writes.
func writes(v fence.View) (string, fence.Change) {
	return "done", fence.Change{Head: &fence.Head{Conversation: "c"}, Events: []fence.Event{{Kind: fence.EventStamped}}}
}

func decideOn[V any](ctx context.Context, l *Ledger, transition func(fence.View) (V, fence.Change)) (V, error) {
	c := l.open("c")
	defer l.close(c)
	v, _, err := decide(ctx, task{l: l, c: c, verb: "test"}, transition)
	return v, err
}

func TestAStoreThatFailsIsAskedAFewTimesWithGrowingPauses(t *testing.T) {
	boom := errors.New("boom")
	calls := 0
	for name, store := range map[string]*stub{
		"load":  {load: func() (Snapshot, error) { calls++; return Snapshot{}, boom }},
		"apply": {load: existing, apply: func(Write) (Result, error) { calls++; return Result{}, boom }},
	} {
		calls = 0
		l, pauses := on(store)
		_, err := decideOn(t.Context(), l, writes)
		if err == nil || err.Error() != "ledger: test: boom" || !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
		if calls != 3 || len(*pauses) != 2 || (*pauses)[1] <= (*pauses)[0] || (*pauses)[1] > time.Second {
			t.Errorf("%s: %d calls with pauses %v", name, calls, *pauses)
		}
	}
}

func TestAnErrorThatStaysTheSameIsNotAskedForAgain(t *testing.T) {
	calls := 0
	corrupt := &stub{load: func() (Snapshot, error) {
		calls++
		return Snapshot{Now: 1, Tag: "u", Head: NewRow("", fence.Index{}, []byte("{not json"))}, nil
	}}
	l, _ := on(corrupt)
	if _, err := decideOn(t.Context(), l, writes); !errors.Is(err, ErrCorrupt) || calls != 1 {
		t.Errorf("corrupt: %d loads, %v", calls, err)
	}
	locking := &lockingStub{stub: corrupt, lock: func(fn func(Tx) error) error { calls++; return fn(corrupt) }}
	locking.stub = &stub{load: existing, apply: func(Write) (Result, error) { return Result{}, nil }}
	calls = 0
	l, _ = on(locking)
	if _, err := decideOn(t.Context(), l, writes); !errors.Is(err, ErrCorrupt) || calls != 2 {
		t.Errorf("corrupt under the lock: %d calls, %v, want one lock and one load", calls, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	l, pauses := on(&stub{load: existing, apply: func(Write) (Result, error) { calls++; cancel(); return Result{}, ctx.Err() }})
	if _, err := decideOn(ctx, l, writes); !errors.Is(err, context.Canceled) || calls != 1 || len(*pauses) != 0 {
		t.Errorf("ctx done in the middle: %d calls, pauses %v, %v", calls, *pauses, err)
	}
}

func TestAConversationThatNeverStandsStillIsGivenUp(t *testing.T) {
	applies := 0
	l, _ := on(&stub{load: existing, apply: func(Write) (Result, error) { applies++; return Result{}, nil }})
	_, err := decideOn(t.Context(), l, writes)
	if !errors.Is(err, ErrContended) || applies != maxTries {
		t.Errorf("%d tries, %v", applies, err)
	}
}

func TestAfterTheFirstLossTheStoreLocks(t *testing.T) {
	applies, locks := 0, 0
	inner := &stub{load: existing}
	store := &lockingStub{stub: &stub{load: existing, apply: func(Write) (Result, error) { applies++; return Result{}, nil }}}
	store.lock = func(fn func(Tx) error) error {
		locks++
		return fn(inner)
	}
	inner.apply = func(w Write) (Result, error) { return Result{Applied: w.Tag == "t", Now: 1}, nil }
	l, _ := on(store)
	if v, err := decideOn(t.Context(), l, writes); v != "done" || err != nil || applies != 1 || locks != 1 {
		t.Errorf("%q, %v with %d applies and %d locks", v, err, applies, locks)
	}
}

func TestARefusalForWhatWasNotKnownIsNoRace(t *testing.T) {
	seen := 0
	store := &lockingStub{stub: &stub{load: existing}, lock: func(func(Tx) error) error { return errors.New("locked") }}
	store.apply = func(w Write) (Result, error) {
		if seen++; seen == 1 {
			snap, _ := existing()
			snap.Rows = []Row{rowOf(&fence.Inbound{ID: "m"})}
			return Result{Current: &snap}, nil
		}
		return Result{Applied: true, Now: 1}, nil
	}
	loads := 0
	store.load = func() (Snapshot, error) { loads++; return existing() }
	l, _ := on(store)
	key := fence.InboundRow("m")
	v, err := decideOn(t.Context(), l, func(v fence.View) (string, fence.Change) {
		_, change := writes(v)
		if v.Rows[key] == nil {
			change.Absent = []string{key, fence.InboundRow("really absent")}
			return "without", change
		}
		if _, known := v.Rows[fence.InboundRow("really absent")]; !known {
			return "", fence.Change{Absent: []string{fence.InboundRow("really absent")}}
		}
		return "with", change
	})
	if v != "with" || err != nil || seen != 2 || loads != 1 {
		t.Errorf("%q, %v after %d applies and %d loads", v, err, seen, loads)
	}
}

func TestAVerdictWithoutAWriteDoesNotAssume(t *testing.T) {
	key := fence.InboundRow("m")
	loads := 0
	store := &stub{load: func() (Snapshot, error) {
		loads++
		snap, err := existing()
		snap.Rows = []Row{rowOf(&fence.Inbound{ID: "m"})}[:min(loads-1, 1)] // asked for the second time only
		return snap, err
	}}
	l, _ := on(store)
	v, err := decideOn(t.Context(), l, func(v fence.View) (bool, fence.Change) {
		if rec, known := v.Rows[key]; known {
			return rec != nil, fence.Change{}
		}
		return false, fence.Change{Absent: []string{key}}
	})
	if !v || err != nil || loads != 2 {
		t.Errorf("the row is there: %v, %v, after %d loads", v, err, loads)
	}
}

func TestTheRulesCannotAskForEver(t *testing.T) {
	l, _ := on(&stub{load: existing})
	asked := 0
	_, err := decideOn(t.Context(), l, func(fence.View) (string, fence.Change) {
		asked++
		return "", fence.Change{Needs: fence.Needs{Keys: []string{"e/1"}}}
	})
	if err == nil || !strings.Contains(err.Error(), "ask for what they have") || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestAPanicLeavesTheConversationUsable(t *testing.T) {
	l, _ := on(&stub{load: existing, apply: func(Write) (Result, error) { return Result{Applied: true, Now: 1}, nil }})
	func() {
		defer func() { recover() }()
		decideOn(t.Context(), l, func(fence.View) (string, fence.Change) { panic("boom") })
	}()
	if v, err := decideOn(t.Context(), l, writes); v != "done" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if len(l.convs) != 0 {
		t.Errorf("%d conversations are held", len(l.convs))
	}
}

func TestAVerdictWithoutAWriteRestsOnTheStore(t *testing.T) {
	loads := 0
	l, _ := on(&stub{
		load:  func() (Snapshot, error) { loads++; return existing() },
		apply: func(Write) (Result, error) { return Result{Applied: true, Now: 2000}, nil },
	})
	c := l.open("c")
	defer l.close(c)
	t1 := task{l: l, c: c, verb: "test"}
	if _, _, err := decide(t.Context(), t1, writes); err != nil || loads != 1 {
		t.Fatalf("%d loads, %v", loads, err)
	}
	if _, _, err := decide(t.Context(), t1, writes); err != nil || loads != 1 {
		t.Errorf("a write on what is known: %d loads, %v", loads, err)
	}
	if _, _, err := decide(t.Context(), t1, func(fence.View) (string, fence.Change) { return "", fence.Change{} }); err != nil || loads != 2 {
		t.Errorf("a verdict without a write: %d loads, %v", loads, err)
	}
}

func TestWhatALockDidNotCommitIsNotFollowed(t *testing.T) {
	loads := 0
	inner := &stub{load: func() (Snapshot, error) { loads++; return existing() }, apply: func(Write) (Result, error) { return Result{Applied: true, Now: 1}, nil }}
	store := &lockingStub{stub: &stub{load: existing, apply: func(Write) (Result, error) { return Result{}, nil }}}
	commits := 0
	store.lock = func(fn func(Tx) error) error {
		if err := fn(inner); err != nil {
			return err
		}
		if commits++; commits < 3 {
			return errors.New("commit failed")
		}
		return nil
	}
	l, _ := on(store)
	emitted, learned := 0, 0
	l.Emit = func(context.Context, string, []fence.Event) { emitted++ }
	_, err := decideOn(t.Context(), l, func(v fence.View) (string, fence.Change) {
		_, c := writes(v)
		c.Learn = func() { learned++ }
		return "", c
	})
	if err != nil || loads != 3 || emitted != 1 || learned != 1 {
		t.Errorf("%v: %d loads under the lock, %d times emitted, %d times learned", err, loads, emitted, learned)
	}
	commits = -10
	if _, err := decideOn(t.Context(), l, writes); err == nil || emitted != 1 {
		t.Errorf("a commit that never comes: %v, %d times emitted", err, emitted)
	}
}

func TestWhoGivesUpWaitingHoldsNobodyUp(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	l, _ := on(&stub{
		load: existing,
		apply: func(Write) (Result, error) {
			entered <- struct{}{}
			<-leave
			return Result{Applied: true, Now: 1}, nil
		},
	})
	c := l.open("c")
	defer l.close(c)
	first := make(chan error, 1)
	go func() {
		_, _, err := decide(context.Background(), task{l: l, c: c, verb: "first"}, writes)
		first <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := decide(ctx, task{l: l, c: c, verb: "second"}, writes); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits: %v", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	go func() { <-entered }()
	if _, _, err := decide(t.Context(), task{l: l, c: c, verb: "third"}, writes); err != nil {
		t.Errorf("who comes next: %v", err)
	}
}

func TestTheCopyOfALongConversationStaysSmall(t *testing.T) {
	l, _ := on(&stub{load: existing, apply: func(Write) (Result, error) { return Result{Applied: true, Now: 1}, nil }})
	c := l.open("c")
	defer l.close(c)
	h := &Handle{l: l, c: c, keys: runKeys(fence.RunKey{Queue: "q", ID: "j"}, []string{"m1", "m2"})}
	c.handles = map[*Handle]struct{}{h: {}}
	for i := range 500 {
		_, _, err := decide(t.Context(), task{l: l, c: c, verb: "test", want: Query{Keys: h.keys}}, func(v fence.View) (string, fence.Change) {
			_, change := writes(v)
			change.Rows = []fence.Record{&fence.Inbound{ID: fmt.Sprint("other", i)}}
			return "", change
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c.view.Rows); n > maxRows+len(h.keys) {
			t.Fatalf("%d rows after %d changes", n, i+1)
		}
		for _, key := range h.keys {
			if _, ok := c.view.Rows[key]; !ok {
				t.Fatalf("%q is forgotten after %d changes", key, i+1)
			}
		}
	}
}

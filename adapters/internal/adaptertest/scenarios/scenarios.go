// Package scenarios holds what every adapter has to pass on its real queue. For
// tests only.
//
// A scenario says what a queue delivers and what a handler does, and looks at what
// the provider got, at the ledger and at the queue's own record of the job. It
// knows no queue: those are given to [Run].
package scenarios

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Options are the adapter's settings that scenarios choose.
type Options struct {
	Mode       runs.Mode
	Reads      runs.Reads
	ReplayOnly bool
	Unfenced   bool
}

// Env is a queue with its adapter.
type Env struct {
	Queue adaptertest.Queue
	// Space is the queue part of a run's key.
	Space string
	// Poison are the queue's verdicts: none may overrule ours.
	Poison []error
	// Never is the queue's own way for a handler to say that the job must not be
	// tried again.
	Never func(err error) error
	// Later is the queue's own way to say: later, and no attempt spent. nil if it
	// has none.
	Later func() error
}

// Setup makes a queue whose adapter uses keeper.
type Setup func(t *testing.T, keeper *runs.Keeper, o Options) Env

// scenario is one of the set.
type scenario struct {
	name    string
	options Options
	play    func(b *bench)
}

// Run plays all scenarios, each in a bubble of its own.
func Run(t *testing.T, setup Setup) {
	for _, s := range all() {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.play(newBench(t, setup, s.options)) })
		})
	}
}

func all() []scenario {
	var list []scenario
	for _, part := range [][]scenario{deliveries(), orders(), refusals(), errorsOfUsers(), ledgers()} {
		list = append(list, part...)
	}
	return list
}

// bench is what a scenario plays on.
type bench struct {
	*testing.T
	Env
	keeper *runs.Keeper
	store  *shaky
	sent   provider

	mu      sync.Mutex
	entries map[string]int
	events  map[runs.EventKind]int
}

func newBench(t *testing.T, setup Setup, o Options) *bench {
	t.Helper()
	if o.Reads == "" {
		o.Reads = runs.AfterBegin
	}
	b := &bench{T: t, store: &shaky{Store: memledger.New()}, entries: map[string]int{}, events: map[runs.EventKind]int{}}
	var err error
	b.keeper, err = runs.New(b.store, &runs.Config{Observer: func(_ context.Context, e runs.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events[e.Kind]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.keeper.Close(); err != nil {
			t.Errorf("close keeper: %v", err)
		}
	})
	b.Env = setup(t, b.keeper, o)
	return b
}

// conversation is the one that all jobs of a scenario work on.
const conversation = "thread-1"

// job describes a job of the conversation that brings messages.
func job(name string, messages ...string) adaptertest.Spec {
	return adaptertest.Spec{Name: name, Conversation: conversation, Inbound: messages, Payload: name}
}

// start starts a worker process. entry counts the times that the handler was
// entered for this job, from 1.
func (b *bench) start(handler func(ctx context.Context, name string, entry int) error) {
	b.Helper()
	b.Queue.Start(func(ctx context.Context, d adaptertest.Delivery) error {
		b.mu.Lock()
		b.entries[d.Payload]++
		entry := b.entries[d.Payload]
		b.mu.Unlock()
		return handler(ctx, d.Payload, entry)
	})
}

// run is the key of a job's run.
func (b *bench) run(name string) runs.RunKey {
	return runs.RunKey{Queue: b.Space, ID: b.Queue.ID(name)}
}

func (b *bench) entered(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[name]
}

func (b *bench) told(kind runs.EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events[kind]
}

// untilEntered waits until the handler was entered for the n-th time.
func (b *bench) untilEntered(name string, n int) {
	b.Helper()
	for range 600 {
		if b.entered(name) >= n {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.Fatalf("job %s was entered %d times after a minute, want %d (%+v)", name, b.entered(name), n, b.Queue.Record(name))
}

func (b *bench) await(name string, want adaptertest.State) adaptertest.Record {
	b.Helper()
	return adaptertest.Await(b.T, b.Queue, name, want)
}

// is asserts that the job is in the state now.
func (b *bench) is(name string, want adaptertest.State) adaptertest.Record {
	b.Helper()
	r := b.Queue.Record(name)
	if r.State != want {
		b.Errorf("job %s is %s (%s: %s), want %s", name, r.State, r.Word, r.Error, want)
	}
	return r
}

// awaitSpent waits until the job waits for its next delivery, and asserts how
// many attempts failures have used up.
func (b *bench) awaitSpent(name string, want int) adaptertest.Record {
	b.Helper()
	r := b.await(name, adaptertest.Waiting)
	if r.Spent != want {
		b.Errorf("job %s has spent %d attempts, want %d", name, r.Spent, want)
	}
	return r
}

// wantEntered asserts how often the handler was entered.
func (b *bench) wantEntered(name string, want int) {
	b.Helper()
	if n := b.entered(name); n != want {
		b.Errorf("job %s was entered %d times, want %d", name, n, want)
	}
}

// wantSent asserts how often the provider got what.
func (b *bench) wantSent(what string, want int) {
	b.Helper()
	if n := b.sent.count(what); n != want {
		b.Errorf("the provider got %q %d times, want %d", what, n, want)
	}
}

// record reads the job's run from the ledger.
func (b *bench) record(name string) *runs.RunRecord {
	b.Helper()
	h, err := b.keeper.History(context.Background(), conversation)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range h.Runs {
		if r.Key == b.run(name) {
			return r
		}
	}
	b.Fatalf("the ledger knows no run of job %s", name)
	return nil
}

// gate holds handlers until it is opened.
type gate chan struct{}

func (g gate) wait() { <-g }
func (g gate) open() { close(g) }

// provider counts what was sent: it, not the ledger, decides what is a duplicate.
type provider struct {
	mu  sync.Mutex
	got map[string]int
}

func (p *provider) send(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.got == nil {
		p.got = map[string]int{}
	}
	p.got[what]++
}

func (p *provider) count(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[what]
}

// do makes an effect of the run in ctx: intent on key, once.
func (b *bench) do(ctx context.Context, intent, key string) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: intent, Key: runs.ID(key)}, func(context.Context, *runs.Call) error {
		b.sent.send(intent + " " + key)
		return nil
	})
}

// reply answers messages, the last one being the key.
func (b *bench) reply(ctx context.Context, messages ...string) error {
	last := messages[len(messages)-1]
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID(last), Answers: messages}, func(context.Context, *runs.Call) error {
		for _, m := range messages {
			b.sent.send("reply " + m)
		}
		return nil
	})
}

// answerOpen is a handler that catches up and answers all that is open.
func (b *bench) answerOpen(ctx context.Context) error {
	return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
		if open := view.OpenIDs(); len(open) > 0 {
			return b.reply(ctx, open...)
		}
		return nil
	})
}

// shaky is a store that can go down.
type shaky struct {
	ledger.Store
	down atomic.Bool
}

type downError struct{}

func (downError) Error() string { return "the store is down" }

func (s *shaky) Load(ctx context.Context, conv string, q ledger.Query) (ledger.Snapshot, error) {
	if s.down.Load() {
		return ledger.Snapshot{}, downError{}
	}
	return s.Store.Load(ctx, conv, q)
}

func (s *shaky) Apply(ctx context.Context, conv string, w ledger.Write) (ledger.Result, error) {
	if s.down.Load() {
		return ledger.Result{}, downError{}
	}
	return s.Store.Apply(ctx, conv, w)
}

func (s *shaky) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if s.down.Load() {
		return nil, downError{}
	}
	return s.Store.Renew(ctx, leases, d)
}

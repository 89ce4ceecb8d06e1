package runstest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// TB is what this package needs of a *testing.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	FailNow()
	Cleanup(f func())
}

// Keeper delivers jobs to handlers. The embedded *runs.Keeper is a further process over the
// same ledger, which takes no jobs: use it to Stamp, Report, Resolve and Cancel.
type Keeper struct {
	*runs.Keeper
	t      TB
	config runs.Config
	store  *memledger.Store
	clock  *clock
	ids    atomic.Uint64

	mu     sync.Mutex
	events []runs.Event
	hooks  []hook
}

type hook struct {
	kind runs.EventKind
	do   func(runs.Event)
}

// NewKeeper returns a Keeper on an empty ledger, whose clock stands at 9:00 on 1 January 2030.
// config may be nil. It is closed when the test ends.
func NewKeeper(t TB, config *runs.Config) *Keeper {
	t.Helper()
	k := &Keeper{t: t, clock: newClock()}
	if config != nil {
		k.config = *config
	}
	if k.config.Worker == "" {
		k.config.Worker = "worker"
	}
	s := *seam.Real()
	s.Now = k.clock.Now
	k.store = memledger.NewSeamed(&s)
	outside, err := k.newWorker()
	if err != nil {
		t.Fatalf("runstest: %v", err)
	}
	k.Keeper = outside.keeper
	return k
}

// Delivered is what one delivery came to.
type Delivered struct {
	// Verdict is what the queue would get. It is zero when the process crashed or the
	// handler panicked: then the queue hears nothing, or sees the panic.
	runs.Verdict
	// Entered says that the handler was entered.
	Entered bool
	// Crashed says that Crash ended the process.
	Crashed bool
	// Panic is the value that the handler panicked with, or nil.
	Panic any
	// Run is the job's record afterwards, nil if the ledger knows none.
	Run *runs.RunRecord
}

// Deliver delivers job to handler on a process of its own, and returns when the delivery has
// ended. It may be called from inside another delivery.
func (k *Keeper) Deliver(job runs.Job, handler func(ctx context.Context) error) Delivered {
	k.t.Helper()
	return k.DeliverTo(context.Background(), job, runs.Delivery{}, handler)
}

// Redeliver delivers job once more, to a process that knows nothing of the first. It fails the
// test when the job was never delivered.
func (k *Keeper) Redeliver(job runs.Job, handler func(ctx context.Context) error) Delivered {
	k.t.Helper()
	known := false
	for _, e := range k.Events() {
		known = known || e.Run == runs.RunKey{Queue: job.Queue, ID: job.ID}
	}
	if !known {
		k.t.Fatalf("runstest: job %s/%s was never delivered", job.Queue, job.ID)
	}
	return k.Deliver(job, handler)
}

// DeliverTo is Deliver under the queue's own ctx and with what the queue says of the delivery,
// such as that it is the last attempt.
func (k *Keeper) DeliverTo(ctx context.Context, job runs.Job, d runs.Delivery, handler func(ctx context.Context) error) Delivered {
	k.t.Helper()
	w, err := k.newWorker()
	if err != nil {
		k.t.Fatalf("runstest: %v", err)
	}
	var got Delivered
	v, how := w.run(ctx, func(ctx context.Context) runs.Verdict {
		return w.keeper.Deliver(ctx, job, d, func(ctx context.Context) error {
			got.Entered = true
			return handler(ctx)
		})
	})
	if how.left && !how.crashed {
		k.t.FailNow() // the handler called it, or left its goroutine, which it must not
	}
	got.Verdict, got.Crashed, got.Panic = v, how.crashed, how.panicked
	got.Run = k.run(job)
	return got
}

// run returns a job's record.
func (k *Keeper) run(job runs.Job) *runs.RunRecord {
	if job.Conversation == "" {
		return nil
	}
	for _, run := range k.history(job.Conversation).Runs {
		if run.Key == (runs.RunKey{Queue: job.Queue, ID: job.ID}) {
			return run
		}
	}
	return nil
}

func (k *Keeper) history(conversation string) runs.History {
	k.t.Helper()
	h, err := k.History(context.Background(), conversation)
	if err != nil {
		k.t.Fatalf("runstest: %v", err)
	}
	return h
}

// Now returns the time on the clock.
func (k *Keeper) Now() time.Time { return k.clock.Now() }

// Advance moves the clock: leases are renewed, and lapse where nobody renews them; deadlines
// pass; watchdogs bite.
func (k *Keeper) Advance(d time.Duration) { k.clock.advance(d, nil) }

// When has do called once, at the next event of this kind, in the midst of whatever raised it:
// "caught_up" is before the handler reads, "claimed" before the provider is called,
// "committed" before the handler hears of it. The kinds are the EventKind constants of package
// fence.
func (k *Keeper) When(kind runs.EventKind, do func(runs.Event)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hooks = append(k.hooks, hook{kind, do})
}

func (k *Keeper) observe(ctx context.Context, e runs.Event) {
	var due []hook
	k.mu.Lock()
	k.events = append(k.events, e)
	rest := k.hooks[:0:0]
	for _, h := range k.hooks {
		if h.kind == e.Kind {
			due = append(due, h)
		} else {
			rest = append(rest, h)
		}
	}
	k.hooks = rest
	k.mu.Unlock()
	if k.config.Observer != nil {
		k.config.Observer(ctx, e)
	}
	for _, h := range due {
		k.clock.still(func() { h.do(e) })
	}
}

// Events returns what happened so far, in order.
func (k *Keeper) Events() []runs.Event {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]runs.Event(nil), k.events...)
}

// Told counts the events of a kind.
func (k *Keeper) Told(kind runs.EventKind) int {
	n := 0
	for _, e := range k.Events() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// Pending are the conversation's effects that are under way, as far as the ledger knows.
func (k *Keeper) Pending(conversation string) []*runs.EffectRecord {
	k.t.Helper()
	return k.effects(conversation, "pending")
}

// Unknown are the conversation's effects whose outcome nobody knows.
func (k *Keeper) Unknown(conversation string) []*runs.EffectRecord {
	k.t.Helper()
	return k.effects(conversation, "ambiguous")
}

// Done are the conversation's effects that happened.
func (k *Keeper) Done(conversation string) []*runs.EffectRecord {
	k.t.Helper()
	return k.effects(conversation, "committed")
}

func (k *Keeper) effects(conversation string, state runs.State) []*runs.EffectRecord {
	k.t.Helper()
	var found []*runs.EffectRecord
	for _, e := range k.history(conversation).Effects {
		if e.State() == state {
			found = append(found, e)
		}
	}
	return found
}

// OpenMessages are the messages of the conversation that nobody has answered or dismissed, in the order
// in which they became known.
func (k *Keeper) OpenMessages(conversation string) []string {
	k.t.Helper()
	var open []string
	for _, in := range k.history(conversation).Inbound {
		if in.Registered && !in.Closed() {
			open = append(open, in.ID)
		}
	}
	return open
}

// ResolveUnknown decides every unknown outcome of the conversation, as a person would who
// found out, and returns how many there were.
func (k *Keeper) ResolveUnknown(conversation string, happened bool) int {
	k.t.Helper()
	unknown := k.Unknown(conversation)
	for _, e := range unknown {
		_, _, err := k.Resolve(context.Background(), conversation, e.ID, runs.Resolution{Happened: happened, By: "test"})
		if err != nil {
			k.t.Fatalf("runstest: resolve %s: %v", e.Intent, err)
		}
	}
	return len(unknown)
}

package runs_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// openers open a ledger; each call of the function that one returns opens it once more, as
// another process would.
var openers = []struct {
	name string
	open func(t *testing.T) func() (ledger.Store, error)
}{
	{"memory", func(*testing.T) func() (ledger.Store, error) {
		store := memledger.New()
		return func() (ledger.Store, error) { return store, nil }
	}},
	{"sqlite", func(t *testing.T) func() (ledger.Store, error) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		// The seam's clock is the bubble's.
		return func() (ledger.Store, error) {
			return sqliteledger.OpenSeamed(t.Context(), path, nil, seam.Real())
		}
	}},
}

// onEach runs f on every ledger, on virtual time.
func onEach(t *testing.T, f func(b *bench)) {
	t.Helper()
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) { inBubble(t, o.open, f) })
	}
}

// onMemory runs f on the memory ledger, on virtual time: for what no ledger has a part in.
func onMemory(t *testing.T, f func(b *bench)) {
	t.Helper()
	inBubble(t, openers[0].open, f)
}

func inBubble(t *testing.T, open func(*testing.T) func() (ledger.Store, error), f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, open: open(t)}
		defer b.stop()
		f(b)
	})
}

// bench is a ledger and the processes that use it.
type bench struct {
	*testing.T
	open func() (ledger.Store, error)
	off  sabotage.Set

	keepers []*process
}

// process is a keeper with its own way to the ledger, and an ear for its events.
type process struct {
	*runs.Keeper
	b   *bench
	spy *spy

	mu     sync.Mutex
	events []runs.Event
}

func (b *bench) stop() {
	for _, p := range b.keepers {
		if err := p.Close(); err != nil {
			b.Errorf("close: %v", err)
		}
	}
}

// process starts a process with default settings, process1 with others.
func (b *bench) process() *process { return b.processWith(runs.Config{}, nil) }

func (b *bench) processWith(c runs.Config, change func(*seam.Seam)) *process {
	b.Helper()
	store, err := b.open()
	if err != nil {
		b.Fatal(err)
	}
	p := &process{b: b, spy: &spy{Store: store}}
	observer := c.Observer
	c.Observer = func(ctx context.Context, e runs.Event) {
		p.mu.Lock()
		p.events = append(p.events, e)
		p.mu.Unlock()
		if observer != nil {
			observer(ctx, e)
		}
	}
	s := *seam.Real()
	s.Off = b.off
	if change != nil {
		change(&s)
	}
	p.Keeper, err = runs.NewSeamed(p.spy, &c, &s)
	if err != nil {
		b.Fatal(err)
	}
	b.keepers = append(b.keepers, p)
	return p
}

// told returns the events of a kind.
func (p *process) told(kind runs.EventKind) []runs.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.events), func(e runs.Event) bool { return e.Kind != kind })
}

// deliver delivers job once.
func (p *process) deliver(job runs.Job, handler func(ctx context.Context) error) runs.Verdict {
	return p.Deliver(p.b.Context(), job, runs.Delivery{}, handler)
}

// deliverLast delivers job on its last attempt.
func (p *process) deliverLast(job runs.Job, handler func(ctx context.Context) error) runs.Verdict {
	return p.Deliver(p.b.Context(), job, runs.Delivery{Permanent: func(error) bool { return true }}, handler)
}

// run returns a job's record, nil if there is none.
func (p *process) run(job runs.Job) *runs.RunRecord {
	p.b.Helper()
	for _, r := range p.history(job.Conversation).Runs {
		if r.Key.ID == job.ID && r.Key.Queue == job.Queue {
			return r
		}
	}
	return nil
}

func (p *process) history(conversation string) runs.History {
	p.b.Helper()
	h, err := p.History(context.WithoutCancel(p.b.Context()), conversation)
	if err != nil {
		p.b.Fatal(err)
	}
	return h
}

// effect returns the only effect of a conversation.
func (p *process) effect(conversation string) *runs.EffectRecord {
	p.b.Helper()
	h := p.history(conversation)
	if len(h.Effects) != 1 {
		p.b.Fatalf("want one effect, there are %d", len(h.Effects))
	}
	return h.Effects[0]
}

// spy is a store between a keeper and its ledger.
type spy struct {
	ledger.Store

	mu                    sync.Mutex
	loads, writes, renews int
	hooks
}

type (
	onLoad  func(ctx context.Context) error
	onApply func(ctx context.Context, w ledger.Write, apply func() (ledger.Result, error)) (ledger.Result, error)
	onRenew func(ctx context.Context, keys []ledger.LeaseKey) error
)

// hooks come before the store, or instead of it; nil are none.
type hooks struct {
	load  onLoad
	apply onApply
	renew onRenew
}

func (s *spy) set(change func(*hooks)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.hooks)
}

func (s *spy) OnLoad(f onLoad)   { s.set(func(h *hooks) { h.load = f }) }
func (s *spy) OnApply(f onApply) { s.set(func(h *hooks) { h.apply = f }) }
func (s *spy) OnRenew(f onRenew) { s.set(func(h *hooks) { h.renew = f }) }

// breaks makes whatever is asked of the store fail with err; nil mends it.
func (s *spy) breaks(err error) {
	if err == nil {
		s.set(func(h *hooks) { *h = hooks{} })
		return
	}
	s.set(func(h *hooks) {
		h.load = func(context.Context) error { return err }
		h.apply = func(context.Context, ledger.Write, func() (ledger.Result, error)) (ledger.Result, error) {
			return ledger.Result{}, err
		}
		h.renew = func(context.Context, []ledger.LeaseKey) error { return err }
	})
}

// counts counts a call and returns the hooks.
func (s *spy) counts(n *int) hooks {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
	return s.hooks
}

// count returns one of the counters.
func (s *spy) count(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *n
}

func (s *spy) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	if hook := s.counts(&s.loads).load; hook != nil {
		if err := hook(ctx); err != nil {
			return ledger.Snapshot{}, err
		}
	}
	return s.Store.Load(ctx, conversation, q)
}

func (s *spy) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	apply := func() (ledger.Result, error) { return s.Store.Apply(ctx, conversation, w) }
	if hook := s.counts(&s.writes).apply; hook != nil {
		return hook(ctx, w, apply)
	}
	return apply()
}

func (s *spy) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	s.counts(&s.writes)
	return s.Store.Bury(ctx, run, tombstone, due)
}

func (s *spy) Renew(ctx context.Context, keys []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if hook := s.counts(&s.renews).renew; hook != nil {
		if err := hook(ctx, keys); err != nil {
			return nil, err
		}
	}
	return s.Store.Renew(ctx, keys, d)
}

// job is a job of one conversation that brings these messages; n is its order.
func job(n int64, inbound ...string) runs.Job {
	return runs.Job{
		Queue: "q", ID: string(rune('a' + n - 1)), Conversation: "c", Order: runs.Order{Source: "seq", Number: n},
		Inbound: inbound, NoInbound: len(inbound) == 0, Reads: runs.AfterBegin,
	}
}

func exclusive(j runs.Job) runs.Job {
	j.Mode = runs.Exclusive
	return j
}

func key(j runs.Job) runs.RunKey { return runs.RunKey{Queue: j.Queue, ID: j.ID} }

// once does an effect in the run of ctx.
func once(ctx context.Context, e runs.Effect, fn func(ctx context.Context, call *runs.Call) error) error {
	return runs.FromContext(ctx).Once(ctx, e, fn)
}

// tag is an effect that answers nothing and says nothing of itself.
func tag(name string) runs.Effect { return runs.Effect{Intent: "tag", Key: runs.ID(name)} }

func reply(to ...string) runs.Effect {
	return runs.Effect{Intent: "reply", Key: runs.ID(to[len(to)-1]), Answers: to}
}

// provider counts what it did.
type provider struct {
	mu    sync.Mutex
	calls int
}

func (p *provider) do(context.Context, *runs.Call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	return nil
}

// does returns an effect that is counted and ends with err.
func (p *provider) does(err error) func(context.Context, *runs.Call) error {
	return func(ctx context.Context, call *runs.Call) error {
		_ = p.do(ctx, call)
		return err
	}
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func idle(context.Context) error { return nil }

// wantVerdict checks a verdict's action and reason.
func wantVerdict(t testing.TB, got runs.Verdict, action runs.Action, reason runs.Reason) {
	t.Helper()
	if got.Action != action || got.Reason != reason {
		t.Errorf("want the verdict %q %q, got %q %q (%s; %v)", action, reason, got.Action, got.Reason, got.Note, got.Err)
	}
}

// forget makes the ledger forget the conversation "c".
func forget(b *bench, p *process) {
	b.Helper()
	conversation := ledger.ConversationKey("", "c")
	snap, err := p.spy.Store.Load(b.Context(), conversation, ledger.Query{})
	if err != nil {
		b.Fatal(err)
	}
	r, err := p.spy.Store.Apply(b.Context(), conversation, ledger.Write{Tag: snap.Tag, Drop: true})
	if err != nil || !r.Applied {
		b.Fatal(r, err)
	}
}

// downStore is a store whose other methods fail, too.
type downStore struct{ ledger.Store }

var errDown = errors.New("down")

func (downStore) FindRun(context.Context, string) (ledger.Home, error) { return ledger.Home{}, errDown }
func (downStore) Scan(context.Context, ledger.Scan) ([]ledger.Found, error) {
	return nil, errDown
}

// same reports whether a handler's error came back as it was, not wrapped.
func same(got, want error) bool { return got == want } //nolint:errorlint // that is the question

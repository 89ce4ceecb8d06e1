package cases

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// A case is told as a story: a function that drives workers, a provider and a ledger through one
// sequence of events and says what must be true after each. The same story plays on every ledger,
// and on one with a rule switched off, where it has to fail (see sabotage_test.go).
//
// All time is virtual: a story that takes an hour takes a millisecond. Who does what before whom
// is decided by the story's own goroutine, step by step, never by sleeping.
type story func(w *world)

// opener opens the ledger that all workers of a story share. Each call of the function that it
// returns opens it once more, as another process would.
type opener struct {
	name string
	open func(t *testing.T) func() (ledger.Store, error)
}

var openers = []opener{
	{"memory", func(*testing.T) func() (ledger.Store, error) {
		// The one store stands for a server: it outlives the keepers that are closed over it.
		store := memledger.New()
		return func() (ledger.Store, error) { return store, nil }
	}},
	{"sqlite", func(t *testing.T) func() (ledger.Store, error) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		return func() (ledger.Store, error) {
			// The file's clock is the machine's; the story's is the bubble's.
			return sqliteledger.OpenSeamed(t.Context(), path, nil, seam.Real())
		}
	}},
}

// replay plays a story on every ledger.
func replay(t *testing.T, s story) {
	t.Helper()
	t.Parallel() // each story has a world, and a clock, of its own
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, o.open(t), sabotage.Set{})
				defer w.stop()
				s(w)
			})
		})
	}
}

// world is what a story happens in.
type world struct {
	testing.TB
	open  func() (ledger.Store, error)
	off   sabotage.Set
	prov  *provider
	start time.Time
	quit  chan struct{} // closed when the story is over: whatever still hangs gives up

	mu      sync.Mutex
	events  []event
	workers []*worker
	watcher *worker
	waiting sync.WaitGroup
}

// event is something that an observer was told.
type event struct {
	runs.Event
	at     time.Duration
	worker string
	trace  any // the trace id in the ctx of whoever raised it
}

func newWorld(tb testing.TB, open func() (ledger.Store, error), off sabotage.Set) *world {
	w := &world{TB: tb, open: open, off: off, start: time.Now(), quit: make(chan struct{})}
	w.prov = &provider{w: w, script: map[string][]act{}}
	return w
}

// stop lets everything that still hangs give up, and closes the workers.
func (w *world) stop() {
	close(w.quit)
	w.waiting.Wait()
	for _, k := range w.workers {
		if err := k.Close(); err != nil {
			w.Errorf("close %s: %v", k.name, err)
		}
	}
}

// go runs f and has stop wait for it.
func (w *world) spawn(f func()) {
	w.waiting.Go(f)
}

// since is the story's time: t0 is when it began.
func (w *world) since() time.Duration { return time.Since(w.start) }

// at moves the clock on to t0 + d, when everything that was under way has come to rest.
func (w *world) at(d time.Duration) {
	w.Helper()
	if left := d - w.since(); left > 0 {
		time.Sleep(left)
	} else if left < 0 {
		w.Fatalf("the story's clock stands at %v, past %v", w.since(), d)
	}
	synctest.Wait()
}

// patience is how long a story waits, on the virtual clock, for something that must happen.
const patience = 24 * time.Hour

// await waits for ch.
func (w *world) await(ch <-chan struct{}, what string, args ...any) {
	w.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
		w.Fatalf("waited for %v: %s", patience, fmt.Sprintf(what, args...))
	}
}

// worker is one process that takes jobs from the queue: a keeper with its own way to the ledger.
type worker struct {
	*runs.Keeper
	w    *world
	name string
	proc *process
}

// worker starts a process. Settings that a story does not care about are the defaults: a lease
// of 30 s renewed every 10 s, a minute for an effect, two for its claim.
func (w *world) worker(name string) *worker {
	w.Helper()
	return w.workerWith(name, runs.Config{})
}

func (w *world) workerWith(name string, c runs.Config) *worker {
	w.Helper()
	store, err := w.open()
	if err != nil {
		w.Fatalf("open the ledger for %s: %v", name, err)
	}
	proc := &process{Store: store, w: w}
	c.Worker = name
	c.Observer = func(ctx context.Context, e runs.Event) { w.observe(ctx, name, e) }
	s := seam.Real()
	s.Off = w.off
	keeper, err := runs.NewSeamed(proc.asStore(), &c, s)
	if err != nil {
		w.Fatalf("start %s: %v", name, err)
	}
	k := &worker{Keeper: keeper, w: w, name: name, proc: proc}
	w.workers = append(w.workers, k)
	return k
}

// restart stops a process and starts it anew: what it had in memory is gone.
func (w *world) restart(k *worker) *worker {
	w.Helper()
	if err := k.Close(); err != nil {
		w.Fatalf("close %s: %v", k.name, err)
	}
	return w.worker(k.name + "'")
}

// operator is a process that takes no jobs and looks at the ledger from outside.
func (w *world) operator() *worker {
	w.Helper()
	if w.watcher == nil {
		w.watcher = w.worker("operator")
	}
	return w.watcher
}

func (w *world) observe(ctx context.Context, name string, e runs.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event{Event: e, at: w.since(), worker: name, trace: ctx.Value(traceKey{})})
}

// told returns what observers were told of this kind.
func (w *world) told(kind runs.EventKind) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []event
	for _, e := range w.events {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

type traceKey struct{}

// conversation is the one that stories happen on.
const conversation = "c"

// job makes the job that brings these messages. number is its place in the chat: a job with
// a higher number is newer.
func job(id string, number int64, inbound ...string) runs.Job {
	return runs.Job{
		Queue: "support", ID: id, Conversation: conversation, Order: runs.Order{Source: "chat", Number: number},
		Inbound: inbound, NoInbound: len(inbound) == 0, Reads: runs.AfterBegin,
	}
}

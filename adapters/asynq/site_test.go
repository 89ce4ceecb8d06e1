package asynqruns_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// site is one Asynq, one ledger and one provider, shared by worker processes that
// can die and lose touch one by one.
type site struct {
	*asynqharness.Bench

	store   ledger.Store
	office  *process // takes no tasks: makes them, and looks at the ledger
	config  asynqruns.Config
	delay   time.Duration // before a retry
	sent    list[string]  // what the provider did
	entered list[string]  // handlers: process, task, retry count
	quit    chan struct{} // closed in the end: what still hangs gives up
	giveUp  func()
	working sync.WaitGroup // middlewares that have not returned

	mu     sync.Mutex
	events map[runs.EventKind]int
}

// process is a worker process: a keeper, an adapter and a server of its own.
type process struct {
	*site

	name          string
	keeper        *runs.Keeper
	fenced        *asynqruns.Adapter
	redis, ledger line
	yields        atomic.Int64
	killAt        int64 // the yield at which it is killed; 0: never
}

// onSite plays f in a bubble.
func onSite(t *testing.T, config asynqruns.Config, f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{
			Bench: asynqharness.New(t), store: memledger.New(), config: config, delay: time.Second,
			quit: make(chan struct{}), events: map[runs.EventKind]int{},
		}
		s.config.Inbound, s.config.Reads = asynqruns.FromHeaders, runs.AfterBegin
		s.giveUp = sync.OnceFunc(func() { close(s.quit) })
		s.office = s.process("office")
		f(t, s)
	})
}

func (s *site) process(name string) *process {
	s.T.Helper()
	p := &process{site: s, name: name}
	var err error
	p.keeper, err = runs.New(&reached{s.store, p}, &runs.Config{Worker: name, Observer: func(_ context.Context, e runs.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events[e.Kind]++
	}})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = p.keeper.Close() })
	p.fenced, err = asynqruns.New(p.keeper, &s.config)
	if err != nil {
		s.T.Fatal(err)
	}
	return p
}

// serve starts the process's server.
func (p *process) serve(handler func(ctx context.Context, p *process, task *asynq.Task) error) *asynq.Server {
	p.T.Helper()
	fenced := p.fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		p.entered.add(fmt.Sprintf("%s:%s/%d", p.name, id, retried(ctx)))
		return handler(ctx, p, task)
	}))
	server := startTapped(p.Bench, p.redis.pass, p.fenced.Config(asynq.Config{
		DelayedTaskCheckInterval: 2 * time.Second, TaskCheckInterval: 3 * time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return p.delay },
	}), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		p.working.Add(1)
		defer p.working.Done()
		err := fenced.ProcessTask(ctx, task)
		p.yield()
		return err
	}))
	p.T.Cleanup(func() {
		p.giveUp()
		p.working.Wait() // asynq does not
	})
	return server
}

// kill ends the process at this moment: nothing that it does from now on reaches
// anybody.
func (p *process) kill() {
	p.redis.down.Store(true)
	p.ledger.down.Store(true)
}

// yield is a point at which the process may be killed.
func (p *process) yield() {
	if n := p.yields.Add(1); p.killAt > 0 && n == p.killAt {
		p.kill()
		p.hang()
	}
}

// hang blocks until the test is over.
func (p *process) hang() { <-p.quit }

// wait waits at a gate, for as long as the test lasts.
func (s *site) wait(g gate) {
	select {
	case <-g:
	case <-s.quit:
	}
}

// act makes an effect of the run, on a ctx of the handler's.
func (p *process) act(ctx context.Context, what string) error {
	intent, key, _ := strings.Cut(what, " ")
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: intent, Key: runs.ID(key)}, func(context.Context, *runs.Call) error {
		p.yield()
		p.sent.add(what)
		p.yield()
		return nil
	})
}

// actAndDie makes an effect in which the process is killed, before the provider did
// anything or after.
func (p *process) actAndDie(ctx context.Context, what string, after bool) error {
	intent, key, _ := strings.Cut(what, " ")
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: intent, Key: runs.ID(key)}, func(context.Context, *runs.Call) error {
		if after {
			p.sent.add(what)
		}
		p.kill()
		p.hang()
		return errCut
	})
}

// reached is the ledger on a process's line to it.
type reached struct {
	ledger.Store

	p *process
}

func (r *reached) Load(ctx context.Context, conv string, q ledger.Query) (ledger.Snapshot, error) {
	r.p.yield()
	if r.p.ledger.down.Load() {
		return ledger.Snapshot{}, errCut
	}
	defer r.p.yield()
	return r.Store.Load(ctx, conv, q)
}

func (r *reached) Apply(ctx context.Context, conv string, w ledger.Write) (ledger.Result, error) {
	r.p.yield()
	if r.p.ledger.down.Load() {
		return ledger.Result{}, errCut
	}
	defer r.p.yield()
	return r.Store.Apply(ctx, conv, w)
}

func (r *reached) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if r.p.ledger.down.Load() {
		return nil, errCut
	}
	return r.Store.Renew(ctx, leases, d)
}

// task enqueues a task on conversation "c" under an id, that is its payload too.
func (s *site) task(id string, inbound []string, opts ...asynq.Option) {
	s.T.Helper()
	task, err := s.office.fenced.NewTask(context.Background(), "t", []byte(id), asynqruns.Conversation{
		ID: "c", Inbound: inbound, NoInbound: len(inbound) == 0,
	})
	if err != nil {
		s.T.Fatal(err)
	}
	s.Enqueue(task, append([]asynq.Option{asynq.TaskID(id)}, opts...)...)
}

// await polls, on the bubble's clock, until so.
func (s *site) await(what string, so func() bool) {
	s.T.Helper()
	for end := time.Now().Add(15 * time.Minute); !so(); time.Sleep(2 * time.Second) {
		if time.Now().After(end) {
			s.T.Fatalf("waited in vain until %s; entered %s, sent %s", what, s.entered.String(), s.sent.String())
		}
	}
}

// untilEntered waits for the n-th entry of any handler.
func (s *site) untilEntered(n int) {
	s.T.Helper()
	s.await(fmt.Sprintf("the handler is entered %d times", n), func() bool { return s.entered.len() >= n })
}

// untilGone waits until a task is done.
func (s *site) untilGone(id string) {
	s.T.Helper()
	s.await("task "+id+" is done", func() bool { return s.Info(id) == nil })
}

// untilArchived waits until a task is stopped for a person, and returns it.
func (s *site) untilArchived(id string) *asynq.TaskInfo {
	s.T.Helper()
	var info *asynq.TaskInfo
	s.await("task "+id+" is archived", func() bool {
		info = s.Info(id)
		return info != nil && info.State == asynq.TaskStateArchived
	})
	return info
}

func (s *site) runTask(id string) {
	s.T.Helper()
	if err := s.Inspector.RunTask("default", id); err != nil {
		s.T.Fatal(err)
	}
}

// unknown insists that operators find one effect whose outcome is unknown.
func (s *site) unknown() runs.UnresolvedEffect {
	s.T.Helper()
	unresolved, err := s.office.keeper.Unresolved(context.Background(), 0, 0)
	if err != nil || len(unresolved) != 1 || unresolved[0].Effect.State() != runs.Ambiguous {
		s.T.Fatalf("unresolved: %+v, %v, want one effect of unknown outcome", unresolved, err)
	}
	return unresolved[0]
}

// resolve is what an operator says about the unknown effect.
func (s *site) resolve(happened bool) {
	s.T.Helper()
	if _, _, err := s.office.keeper.Resolve(context.Background(), "c", s.unknown().Effect.ID, runs.Resolution{Happened: happened, By: "test"}); err != nil {
		s.T.Fatal(err)
	}
}

// run returns what the ledger keeps of a task's run, nil if nothing.
func (s *site) run(id string) *runs.RunRecord {
	s.T.Helper()
	h, err := s.office.keeper.History(context.Background(), "c")
	if err != nil {
		s.T.Fatal(err)
	}
	i := slices.IndexFunc(h.Runs, func(r *runs.RunRecord) bool { return r.Key == runs.RunKey{Queue: "asynq:default", ID: id} })
	if i < 0 {
		return nil
	}
	return h.Runs[i]
}

func (s *site) told(kind runs.EventKind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[kind]
}

func (s *site) wantSent(want string) {
	s.T.Helper()
	if got := s.sent.String(); got != want {
		s.T.Errorf("the provider did %s, want %s", got, want)
	}
}

func (s *site) wantEntered(want string) {
	s.T.Helper()
	if got := s.entered.String(); got != want {
		s.T.Errorf("entered %s, want %s", got, want)
	}
}

// moveLeaseBack makes a crashed worker's task due for the recoverer of the next
// process that starts.
func (s *site) moveLeaseBack(id string) {
	s.T.Helper()
	if err := s.Redis.ZAddXX(context.Background(), leaseKey, redis.Z{Score: 1, Member: id}).Err(); err != nil {
		s.T.Fatal(err)
	}
}

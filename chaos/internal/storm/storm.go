package storm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/chaos/proxy"
	"github.com/fencedrun/fencedrun/runs"
)

// stage is where a storm is played.
type stage struct {
	config Config
	tag    string
	folder string
	spec   queueSpec
	place  place
	keeper *runs.Keeper // the coordinator's own; nil without the library
	queue  queue
	watch  *watch
	desk   *client
	log    string // the provider's
	// servers can be told to drop the workers' connections: the ledger's, and the queue's if it
	// is another.
	servers []server
	// machines are the servers that the storm has started. The gate is locked while one of them is
	// away, and whoever of the coordinator asks a server goes through it.
	machines []machine
	gate     sync.RWMutex
	aside    sync.WaitGroup // what faults have left to do, and nobody waits for

	provider *process
	mu       sync.Mutex
	slots    []*slot
	started  int
	pids     []int  // of all workers there were
	exits    int    // workers that ended though nobody killed them
	lastExit string // why the last did
	stopping bool
	fail     context.CancelCauseFunc

	jobsMu sync.Mutex
	jobs   map[string]string // message, by its job's id in the queue

	counts  counts
	number  atomic.Int64 // of jobs
	backlog atomic.Int64
}

// slot is where one worker after the other works.
type slot struct {
	proxy  *proxy.Proxy // nil where there is nothing to cut
	child  *process     // nil while there is none
	frozen bool
}

// counts are what struck.
type counts struct {
	kills, pauses, cuts, delays, silences, drops, forgets, redeliveries, orphans atomic.Int64
	stops, restarts, crashes                                                     atomic.Int64
}

// Run plays a storm and judges it. A *SetupError says that it did not begin. When ctx is done it
// cleans up and returns the cause.
func Run(ctx context.Context, config Config) (_ *Report, err error) {
	config, err = config.withDefaults()
	if err != nil {
		return nil, err
	}
	redis.SetLogger(quietRedis{})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &stage{config: config, tag: newTag(), watch: newWatch(), jobs: map[string]string{}, fail: cancel}
	if s.folder, err = os.MkdirTemp("", "fencedrun-live-"); err != nil {
		return nil, &SetupError{Err: fmt.Errorf("storm: %w", err)}
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &SetupError{Err: err}
	}
	began := time.Now()
	progress := s.tell()
	defer progress()
	if err := s.rage(ctx); err != nil {
		return nil, err
	}
	s.calm()
	rest, err := s.drain(ctx)
	if err != nil {
		return nil, err
	}
	s.stopWorkers()
	if rest.waiting, err = s.undone(ctx); err != nil {
		return nil, err
	}
	// Only now: what is still under way there is done, and counts.
	s.provider.stop()
	progress()
	return s.judge(ctx, rest, time.Since(began))
}

// open prepares everything and starts the processes.
func (s *stage) open(ctx context.Context) error {
	opening, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("storm: not ready after %v", startLimit))
	defer cancel()
	if err := s.startOwn(opening); err != nil {
		return err
	}
	ledgerURL, kind := s.config.Ledger, ""
	if !s.config.Without {
		var err error
		if s.place, err = makePlace(opening, ledgerURL, s.tag, s.folder); err != nil {
			return err
		}
		s.place.Own = s.owns(ledgerURL)
		store, err := s.place.open(opening)
		if err != nil {
			return fmt.Errorf("the ledger's server cannot be used: %w", err)
		}
		if s.keeper, err = runs.New(store, keeperConfig("coordinator")); err != nil {
			return err
		}
		kind = s.place.Kind
	} else {
		ledgerURL = ""
	}
	var err error
	if s.queue, err = s.openQueue(opening); err != nil {
		return err
	}
	if s.config.Queue != Plain {
		s.queue = &gatedQueue{s.queue, &s.gate}
	}
	if err := s.openServers(opening, kind, ledgerURL); err != nil {
		return err
	}
	s.log = filepath.Join(s.folder, "provider.jsonl")
	if s.provider, err = start(0, part{Provider: &providerPart{Log: s.log, Seed: s.config.Seed}}, nil); err != nil {
		return err
	}
	base, err := s.provider.awaitReady(opening)
	if err != nil {
		return err
	}
	s.desk = newClient(base, startLimit)
	for range s.config.Workers {
		next := &slot{}
		if kind == postgres || kind == redisKV {
			protocol := map[string]proxy.Protocol{postgres: proxy.Postgres, redisKV: proxy.Redis}[kind]
			if next.proxy, err = proxy.Listen(protocol, hostOf(kind, ledgerURL)); err != nil {
				return err
			}
		}
		s.mu.Lock()
		s.slots = append(s.slots, next)
		s.mu.Unlock()
		if err := s.startWorker(next); err != nil {
			return err
		}
	}
	for _, w := range s.workers() {
		if _, err := w.awaitReady(opening); err != nil {
			return err
		}
	}
	return nil
}

// openServers opens the servers of ledger and queue, one connection each if they are two.
func (s *stage) openServers(ctx context.Context, kind, ledgerURL string) error {
	queueKind := map[string]string{River: postgres, Asynq: redisKV}[s.config.Queue]
	if s.config.QueueURL == "" {
		queueKind = ""
	}
	type where struct{ kind, url string }
	all := []where{{kind, ledgerURL}}
	if s.config.QueueURL != ledgerURL {
		all = append(all, where{queueKind, s.config.QueueURL})
	}
	for _, w := range all {
		next, err := openServer(ctx, w.kind, w.url, s.tag)
		if err != nil {
			return err
		}
		if next != nil {
			s.servers = append(s.servers, next)
		}
	}
	return nil
}

func (s *stage) startWorker(at *slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || at.child != nil {
		return nil
	}
	s.started++
	via := s.place
	if at.proxy != nil {
		via = via.through(at.proxy.Addr())
	}
	w, err := start(s.started, part{Worker: &workerPart{
		Number: s.started, Seed: s.config.Seed, Desk: s.desk.base, Ledger: via, Queue: s.spec, Without: s.config.Without, Off: s.config.off,
	}}, s.on)
	if err != nil {
		return err
	}
	s.pids = append(s.pids, w.cmd.Process.Pid)
	at.child, at.frozen = w, false
	go s.attend(at, w)
	return nil
}

// attend starts another worker when one ends though nobody killed it. A storm may make that
// happen; when it happens all the time, it is no storm.
func (s *stage) attend(at *slot, w *process) {
	const most = 50
	<-w.done
	s.mu.Lock()
	if at.child != w || s.stopping {
		s.mu.Unlock()
		return
	}
	at.child = nil
	s.exits++
	s.lastExit = w.why()
	exits := s.exits
	s.mu.Unlock()
	if exits > most {
		s.fail(fmt.Errorf("storm: workers end by themselves, the last with %s", s.lastExit))
		return
	}
	if err := s.queue.lose(context.Background(), s.watch.gone(w.number)); err != nil {
		s.fail(err)
	}
	time.Sleep(away.high)
	if err := s.startWorker(at); err != nil {
		s.fail(err)
	}
}

// on takes what workers tell.
func (s *stage) on(number int, e event) {
	switch e.Kind {
	case began:
		s.watch.began(number, e.Job)
	case ended:
		s.watch.ended(number, e.Job)
		if q, ok := s.queue.(*plainQueue); ok {
			q.returned(e)
		}
	}
}

// hand gives a job to the worker with the least to do, and reports false if all have enough.
func (s *stage) hand(h handed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var to *process
	least := concurrency
	for _, at := range s.slots {
		if at.child == nil || at.frozen {
			continue
		}
		if n := s.watch.inHand(at.child.number); n < least {
			to, least = at.child, n
		}
	}
	if to == nil || s.stopping {
		return false
	}
	s.watch.began(to.number, h.ID)
	to.send(h)
	return true
}

func (s *stage) workers() (list []*process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.slots {
		if at.child != nil {
			list = append(list, at.child)
		}
	}
	return list
}

// processes returns the ids of all workers there were.
func (s *stage) processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.pids...)
}

func (s *stage) stopWorkers() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	var group sync.WaitGroup
	for _, w := range s.workers() {
		group.Go(w.stop)
	}
	group.Wait()
}

// close ends and removes what is still there.
func (s *stage) close() error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	for _, w := range s.workers() {
		w.kill()
	}
	if s.provider != nil {
		s.provider.kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	if s.queue != nil {
		err = s.queue.close(ctx)
	}
	if s.keeper != nil {
		err = errors.Join(err, s.keeper.Close())
	}
	for _, at := range s.slots {
		if at.proxy != nil {
			_ = at.proxy.Close()
		}
	}
	for _, server := range s.servers {
		server.close()
	}
	err = errors.Join(err, s.place.remove(ctx), os.RemoveAll(s.folder))
	for _, m := range s.machines {
		err = errors.Join(err, m.close())
	}
	return err
}

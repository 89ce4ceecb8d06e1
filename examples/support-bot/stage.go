package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/transcript"
)

// stage is where one arm is played: a help desk, a queue and workers.
type stage struct {
	o       options
	place   armPlace
	scripts []*transcript.Script
	arm     arm
	queue   queue.Queue
	desk    *provider.Client
	base    string // the desk's URL
	log     string // the desk's log
	watch   *watch
	process *proc.Process // the desk's

	mu      sync.Mutex
	workers []*proc.Process
	started int // workers so far, restarts included

	sent   atomic.Int64
	kills  atomic.Int64
	parked int // jobs that the queue has stopped, in the end
}

// perform plays the workload with one arm, from the first process to the last.
func perform(ctx context.Context, o options, name, folder string, progress *progress) (_ *result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &stage{o: o, place: armPlace{Name: name, Folder: filepath.Join(folder, name)}, scripts: o.scripts(), watch: newWatch()}
	if err := os.Mkdir(s.place.Folder, 0o700); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	progress.follow(func() string { return s.line() })
	defer progress.end()

	began := time.Now()
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	quiet, err := s.drain(ctx)
	if err != nil {
		return nil, err
	}
	if quiet != "" {
		progress.say("%s: gave up waiting after %s: %s", name, o.drain, quiet)
	}
	s.stopWorkers()
	known, err := s.arm.Books(ctx, s.conversations())
	if err != nil {
		return nil, err
	}
	// Only now: a request that is still on its way may yet be carried out, and has to be counted.
	s.stopDesk()
	entries, err := provider.ReadLog(s.log)
	if err != nil {
		return nil, err
	}
	return newResult(s, known, entries, began), nil
}

func (s *stage) conversations() []string {
	var ids []string
	for _, script := range s.scripts {
		ids = append(ids, script.ID)
	}
	return ids
}

func (s *stage) open(ctx context.Context) error {
	starting, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("a process was not ready after %s", startLimit))
	defer cancel()
	var err error
	s.log = filepath.Join(s.place.Folder, "provider.jsonl")
	if s.process, err = proc.Start(roleProvider, 0, provider.Config{Log: s.log, Faults: s.o.faults}, nil); err != nil {
		return err
	}
	if s.base, err = s.process.AwaitReady(starting); err != nil {
		return err
	}
	s.desk = provider.NewClient(s.base, 10*deskDeadline) // the customers' side is patient
	if s.place.Name == armWith {
		s.place.Server = s.o.server
		if err := makeLedger(starting, &s.place); err != nil {
			return s.ofServer(err)
		}
	}
	if s.arm, err = openArm(ctx, s.place, s.watch.on); err != nil {
		return s.ofServer(err)
	}
	if s.queue, err = queue.Open(ctx, s.o.queue, s.place.Folder, s.o.server, s.arm.Additions()); err != nil {
		return s.ofServer(err)
	}
	for range s.o.workers {
		worker, err := s.startWorker()
		if err != nil {
			return err
		}
		s.workers = append(s.workers, worker)
	}
	for _, worker := range s.workers {
		if _, err := worker.AwaitReady(starting); err != nil {
			return err
		}
	}
	return nil
}

// serverError says that the server that was named cannot be used: a wrong flag.
type serverError struct{ error }

func (e serverError) Unwrap() error { return e.error }

func (s *stage) ofServer(err error) error {
	if s.o.server == "" {
		return err
	}
	return serverError{err}
}

func (s *stage) startWorker() (*proc.Process, error) {
	s.started++
	return proc.Start(roleWorker, s.started, workerConfig{
		Arm:           s.place,
		Queue:         s.queue.Spec(),
		Desk:          s.base,
		Conversations: s.o.conversations,
		N:             s.o.n,
		Seed:          s.o.seed + uint64(s.started),
	}, s.watch.on)
}

// play lets the customers write, and chaos reign as long as they do.
func (s *stage) play(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var customers, chaos sync.WaitGroup
	over := make(chan struct{}) // closed when the last message was sent
	if s.o.redeliver > 0 {
		chaos.Go(func() { s.fail(cancel, s.redeliver(ctx, over)) })
	}
	if s.o.kill {
		chaos.Go(func() { s.fail(cancel, s.killWorkers(ctx, over)) })
	}
	for i, script := range s.scripts {
		customers.Go(func() { s.fail(cancel, s.customer(ctx, i, script)) })
	}
	customers.Wait()
	close(over)
	chaos.Wait()
	return context.Cause(ctx)
}

func (s *stage) fail(cancel context.CancelCauseFunc, err error) {
	if err != nil {
		cancel(err)
	}
}

// customer is one customer, who writes and waits a moment and writes again, whatever the bot does.
func (s *stage) customer(ctx context.Context, i int, script *transcript.Script) error {
	rng := rand.New(rand.NewPCG(s.o.seed, uint64(i)))
	wait := time.Duration(min(i, 12))*arrival + time.Duration(max(i-12, 0))*arrivalMany
	for _, step := range script.Steps {
		for _, message := range step.Burst {
			if !sleep(ctx, wait) {
				return context.Cause(ctx)
			}
			if err := s.desk.Receive(ctx, script.ID, provider.Message{ID: message.ID, Text: message.Text}); err != nil {
				return err
			}
			if _, err := s.queue.Enqueue(ctx, queue.Job{Conversation: script.ID, Message: message.ID}); err != nil {
				return err
			}
			s.sent.Add(1)
			wait = between(rng, typeMin, typeMax)
		}
		wait = between(rng, pauseMin, pauseMax)
	}
	return nil
}

// alive reports a worker that ended though nobody killed it.
func (s *stage) alive() error {
	for _, worker := range s.workers {
		select {
		case <-worker.Done():
			return fmt.Errorf("worker %d ended by itself: %s", worker.Number, worker.Why())
		default:
		}
	}
	return nil
}

func (s *stage) stopWorkers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stopping sync.WaitGroup
	for _, worker := range s.workers {
		stopping.Go(func() { worker.Stop(stopLimit) })
	}
	stopping.Wait()
	s.workers = nil
}

func (s *stage) stopDesk() {
	if s.process != nil {
		s.process.Stop(stopLimit)
		s.process = nil
	}
}

// close ends what is still there, after an error or an interrupt everything.
func (s *stage) close() error {
	var errs []error
	for _, worker := range s.workers {
		worker.Kill()
	}
	if s.queue != nil {
		errs = append(errs, s.queue.Close())
	}
	if s.arm != nil {
		errs = append(errs, s.arm.Close())
	}
	errs = append(errs, dropLedger(&s.place))
	if s.desk != nil {
		s.desk.Close()
	}
	if s.process != nil {
		s.process.Kill()
	}
	return errors.Join(errs...)
}

func (s *stage) line() string {
	redeliveries, models := s.watch.counts()
	total := 0
	for _, script := range s.scripts {
		total += script.Messages()
	}
	return fmt.Sprintf("%d of %d messages, %d model calls, %d kills, %d redeliveries",
		s.sent.Load(), total, models, s.kills.Load(), redeliveries)
}

// sleep reports false if ctx was done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

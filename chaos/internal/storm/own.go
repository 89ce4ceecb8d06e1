package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// machine is a server of the storm's own: it may be stopped, killed and started again, because
// nobody else is on it.
type machine interface {
	address() string // its URL
	// freeze stops all of it (SIGSTOP) until thaw is called, once.
	freeze(ctx context.Context) (thaw func(), err error)
	// restart kills it as a crash would, leaves it down for so long, and returns when it answers
	// again.
	restart(ctx context.Context, down time.Duration) error
	// crash kills a process of its own (SIGKILL), and returns when it has recovered by itself and
	// answers. It reports false where no process serves a connection of that name alone.
	crash(ctx context.Context, tag string) (bool, error)
	close() error
}

// startOwn starts the servers that the settings ask for by name, and puts their URLs there.
func (s *stage) startOwn(ctx context.Context) error {
	own := map[string]machine{}
	for _, at := range []*string{&s.config.Ledger, &s.config.QueueURL} {
		kind := *at
		if kind != postgres && kind != redisKV {
			continue
		}
		if own[kind] == nil {
			m, err := startMachine(ctx, kind)
			if err != nil {
				return err
			}
			own[kind] = m
			s.machines = append(s.machines, m)
		}
		*at = own[kind].address()
	}
	return nil
}

// owns reports whether the storm has started the server at a URL.
func (s *stage) owns(url string) bool {
	return slices.ContainsFunc(s.machines, func(m machine) bool { return m.address() == url })
}

// stop freezes a server for longer than leases and claims last.
func (s *stage) stop(ctx context.Context, rng *rand.Rand) error {
	if !canFreeze || len(s.machines) == 0 {
		return nil
	}
	m, d := s.machines[rng.IntN(len(s.machines))], frozen.in(rng)
	s.gate.Lock()
	defer s.gate.Unlock()
	thaw, err := m.freeze(ctx)
	if err != nil {
		return err
	}
	s.counts.stops.Add(1)
	sleep(ctx, d)
	thaw()
	return nil
}

// restart kills a server, or a process of it, and waits until it is there again with all that it
// has acknowledged.
func (s *stage) restart(ctx context.Context, rng *rand.Rand) error {
	if len(s.machines) == 0 {
		return nil
	}
	m, one, down := s.machines[rng.IntN(len(s.machines))], rng.IntN(3) == 0, away.in(rng)
	s.gate.Lock()
	defer s.gate.Unlock()
	defer s.reconnect()
	if one {
		if struck, err := m.crash(ctx, s.tag); struck || err != nil {
			s.counts.crashes.Add(1)
			return err
		}
	}
	s.counts.restarts.Add(1)
	return m.restart(ctx, down)
}

// reconnect drops the coordinator's connections, which ended with a server.
func (s *stage) reconnect() {
	if q, ok := s.queue.(*gatedQueue); ok {
		q.queue.reconnect()
	}
	for _, server := range s.servers {
		server.reconnect()
	}
}

// gatedQueue is a queue that the coordinator leaves alone while its server is away. The workers do
// not: they meet what comes.
type gatedQueue struct {
	queue
	gate *sync.RWMutex
}

func (q *gatedQueue) enqueue(ctx context.Context, j job) (string, error) {
	q.gate.RLock()
	defer q.gate.RUnlock()
	return q.queue.enqueue(ctx, j)
}

func (q *gatedQueue) left(ctx context.Context) (left, error) {
	q.gate.RLock()
	defer q.gate.RUnlock()
	return q.queue.left(ctx)
}

func (q *gatedQueue) again(ctx context.Context, id string) (bool, error) {
	q.gate.RLock()
	defer q.gate.RUnlock()
	return q.queue.again(ctx, id)
}

func (q *gatedQueue) lose(ctx context.Context, ids []string) error {
	q.gate.RLock()
	defer q.gate.RUnlock()
	return q.queue.lose(ctx, ids)
}

// persist tries until it works, because the storm does not spare who has just started.
func persist(ctx context.Context, try func(ctx context.Context) error) error {
	for end := time.Now().Add(startLimit / 3); ; {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(end) || !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("storm: given up: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
}

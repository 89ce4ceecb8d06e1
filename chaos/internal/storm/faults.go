package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/chaos/proxy"
)

// rage lets customers write and faults strike until the time is over.
func (s *stage) rage(ctx context.Context) error {
	over := make(chan struct{})
	var faults, customers sync.WaitGroup
	faults.Go(func() {
		sleep(ctx, s.config.Duration)
		close(over)
	})
	// Each kind of fault draws from a stream of its own, so that how often one strikes does not
	// change what the others do.
	for i, f := range []struct {
		every  span
		strike func(ctx context.Context, rng *rand.Rand) error
	}{
		{kills, s.kill}, {pauses, s.pause}, {cuts, s.cut}, {seconds, s.redeliver}, {drops, s.drop}, {forgets, s.forget},
		{stops, s.stop}, {restarts, s.restart},
	} {
		rng := rand.New(rand.NewPCG(s.config.Seed, 100+uint64(i)))
		faults.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-ctx.Done():
					return
				case <-time.After(f.every.in(rng)):
				}
				if err := f.strike(ctx, rng); err != nil && ctx.Err() == nil {
					s.fail(err)
				}
			}
		})
	}
	faults.Go(func() {
		adopting := s.adopter()
		for {
			select {
			case <-over:
				return
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
			if _, err := adopting(ctx); err != nil && ctx.Err() == nil {
				s.fail(err)
			}
		}
	})
	for i := range s.config.Customers {
		customers.Go(func() { s.customer(ctx, i, over) })
	}
	faults.Wait()
	customers.Wait()
	s.aside.Wait()
	return context.Cause(ctx)
}

// customer writes in bursts, in one conversation after the other.
func (s *stage) customer(ctx context.Context, i int, over <-chan struct{}) {
	rng := rand.New(rand.NewPCG(s.config.Seed, 1000+uint64(i)))
	for n := 0; ; n++ {
		conversation := fmt.Sprintf("c%d.%d", i, n)
		for burst := range 2 + rng.IntN(5) {
			for message := range 1 + rng.IntN(4) {
				if !sleep(ctx, typing.in(rng)) {
					return
				}
				select {
				case <-over:
					return
				default:
				}
				err := s.send(ctx, job{conversation, fmt.Sprintf("%s.%d-%d", conversation, burst, message), s.number.Add(1)})
				if err != nil {
					s.fail(err) // of no meaning when ctx is done
					return
				}
			}
			sleep(ctx, reading.in(rng))
			for s.backlog.Load() > backlog && ctx.Err() == nil {
				select {
				case <-over:
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		}
	}
}

func (s *stage) send(ctx context.Context, j job) error {
	if err := s.desk.do(ctx, entry{Did: received, Conversation: j.Conversation, Message: j.Message}); err != nil {
		return err
	}
	id, err := s.queue.enqueue(ctx, j)
	if err != nil {
		return err
	}
	s.jobsMu.Lock()
	s.jobs[id] = j.Message
	s.jobsMu.Unlock()
	s.backlog.Add(1)
	return nil
}

// kill ends a worker, frozen or not, and starts another in its place.
func (s *stage) kill(ctx context.Context, rng *rand.Rand) error {
	i, rest := rng.IntN(s.config.Workers), away.in(rng)
	s.mu.Lock()
	at := s.slots[i]
	w := at.child
	at.child = nil
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	w.kill()
	s.counts.kills.Add(1)
	lost := s.watch.gone(w.number)
	s.aside.Go(func() { // its server may be away
		if err := s.queue.lose(ctx, lost); err != nil && ctx.Err() == nil {
			s.fail(err)
		}
	})
	sleep(ctx, rest)
	return s.startWorker(at)
}

// pause freezes a worker for longer than its leases and claims last.
func (s *stage) pause(ctx context.Context, rng *rand.Rand) error {
	i, d := rng.IntN(s.config.Workers), frozen.in(rng)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.slots[i]
	w := at.child
	if !canFreeze || w == nil || at.frozen {
		return nil
	}
	if freeze(w.cmd.Process) != nil {
		return nil // it is just dying
	}
	at.frozen = true
	s.counts.pauses.Add(1)
	go func() {
		sleep(ctx, d)
		s.thaw(at, w)
	}()
	return nil
}

func (s *stage) thaw(at *slot, w *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.child == w {
		at.frozen = false
	}
	_ = thaw(w.cmd.Process)
}

// cut breaks a worker's connection to the ledger at one of its next frames, or holds that up, or
// lets the connection fall silent.
func (s *stage) cut(ctx context.Context, rng *rand.Rand) error {
	i := rng.IntN(s.config.Workers)
	f := proxy.Fault{Frame: 1 + rng.IntN(8), Direction: proxy.ToServer, After: rng.IntN(2) == 0}
	if rng.IntN(2) == 0 {
		f.Direction = proxy.ToClient
	}
	count := &s.counts.cuts
	switch rng.IntN(8) {
	case 0:
		f.Delay, count = late.in(rng), &s.counts.delays
	case 1:
		// Nothing goes that way any more, until the connection ends: a stream has no gaps, so
		// what comes after a lost frame is not passed on either.
		f.Delay, count = silence+time.Second, &s.counts.silences
	}
	p := s.slots[i].proxy
	if p == nil {
		return nil
	}
	hit := p.Arm(f)
	go func() {
		if _, struck := <-hit; !struck {
			return
		}
		count.Add(1)
		if f.Delay > silence {
			sleep(ctx, silence)
			p.CutAll()
		}
	}()
	return nil
}

// redeliver has a job delivered again while a worker has it, most readily a frozen one.
func (s *stage) redeliver(ctx context.Context, rng *rand.Rand) error {
	var of []int
	s.mu.Lock()
	for _, at := range s.slots {
		if at.child != nil && at.frozen {
			of = append(of, at.child.number)
		}
	}
	s.mu.Unlock()
	jobs := s.watch.jobs(func(worker int) bool { return slices.Contains(of, worker) })
	if rng.IntN(2) == 0 || len(jobs) == 0 {
		jobs = s.watch.jobs(func(int) bool { return true })
	}
	if len(jobs) == 0 {
		return nil
	}
	again, err := s.queue.again(ctx, jobs[rng.IntN(len(jobs))])
	if again {
		s.counts.redeliveries.Add(1)
	}
	return err
}

// drop makes a server drop a worker's connection.
func (s *stage) drop(ctx context.Context, rng *rand.Rand) error {
	if len(s.servers) == 0 {
		return nil
	}
	at := s.servers[rng.IntN(len(s.servers))]
	s.gate.RLock()
	defer s.gate.RUnlock()
	list, err := at.list(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := at.drop(ctx, list[rng.IntN(len(list))]); err != nil {
		return err
	}
	s.counts.drops.Add(1)
	return nil
}

// forget makes a server forget its scripts.
func (s *stage) forget(ctx context.Context, rng *rand.Rand) error {
	if len(s.servers) == 0 {
		return nil
	}
	at := s.servers[rng.IntN(len(s.servers))]
	s.gate.RLock()
	defer s.gate.RUnlock()
	had, err := at.forget(ctx)
	if had && err == nil {
		s.counts.forgets.Add(1)
	}
	return err
}

// calm ends every fault: what is armed, frozen or swallowed.
func (s *stage) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.slots {
		if at.proxy != nil {
			at.proxy.Disarm()
			at.proxy.CutAll()
		}
		if at.child != nil {
			at.frozen = false
			_ = thaw(at.child.cmd.Process)
		}
	}
}

package main

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
)

// killWorkers kills one worker after the other and starts a new one in its place, until over is closed. What the dead one had
// in hands is redelivered at once, instead of after the minutes that the queues take.
func (s *stage) killWorkers(ctx context.Context, over <-chan struct{}) error {
	// Two sources, so that the moments do not depend on how much was at work at each.
	rng, losses := rand.New(rand.NewPCG(s.o.seed, 1<<32)), rand.New(rand.NewPCG(s.o.seed, 2<<32))
	for {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(between(rng, killMin, killMax)):
		}
		if err := s.killOne(ctx, rng.IntN(s.o.workers), between(rng, restartMin, restartMax), losses); err != nil {
			return err
		}
	}
}

func (s *stage) killOne(ctx context.Context, i int, away time.Duration, losses *rand.Rand) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.alive(); err != nil {
		return err
	}
	s.workers[i].Kill()
	s.kills.Add(1)
	s.watch.gone(s.workers[i].Number)
	before, err := s.queue.Running(ctx)
	if err != nil {
		return err
	}
	if !sleep(ctx, away) {
		return context.Cause(ctx)
	}
	after, err := s.queue.Running(ctx)
	if err != nil {
		return err
	}
	// What ran in the queue's eyes all this time and is in nobody's hands is lost. (A job that a living worker has just
	// finished may still count as running: River writes completions in batches.) Some that lives is taken to be lost as
	// well, as it is when a worker is cut off from the queue.
	var lost []string
	for _, id := range after {
		if !slices.Contains(before, id) {
			continue
		}
		if live := s.watch.isLive(id); !live {
			lost = append(lost, id)
		} else if losses.Float64() < s.o.redeliver {
			s.watch.again(id)
			lost = append(lost, id)
		}
	}
	if err := s.queue.Expire(ctx, lost); err != nil {
		return err
	}
	s.workers[i], err = s.startWorker()
	return err
}

// redeliver has some jobs delivered a second time while their first delivery lives. Which ones depends on the seed alone.
func (s *stage) redeliver(ctx context.Context, over <-chan struct{}) error {
	type second struct {
		job string
		at  time.Time
	}
	seconds := make(chan second, 1024)
	s.watch.mu.Lock()
	s.watch.onFirst = func(job string, event proc.Event) {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(event.Message))
		rng := rand.New(rand.NewPCG(s.o.seed, hash.Sum64()))
		if rng.Float64() >= s.o.redeliver {
			return
		}
		select {
		case seconds <- second{job: job, at: time.Now().Add(between(rng, againMin, againMax))}:
		default: // so many at once need not all be delivered twice
		}
	}
	s.watch.mu.Unlock()
	for {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case next := <-seconds:
			if !sleep(ctx, time.Until(next.at)) {
				return context.Cause(ctx)
			}
			if !s.watch.isLive(next.job) {
				continue
			}
			again, err := s.queue.Again(ctx, next.job)
			if err != nil {
				return err
			}
			if again {
				s.watch.again(next.job)
			}
		}
	}
}

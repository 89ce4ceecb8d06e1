package main

import (
	"context"
	"fmt"
	"time"
)

// drain waits until the queue is empty and the arm's books are at rest. If that takes too long it says what is left.
func (s *stage) drain(ctx context.Context) (string, error) {
	var (
		limit   = time.Now().Add(s.o.drain)
		orphans = map[string]time.Time{} // since when
		calm    = 0
	)
	for {
		left, err := s.queue.Left(ctx)
		if err != nil {
			return "", err
		}
		settled := false
		if left.Waiting+left.Running == 0 {
			if settled, err = s.arm.Settled(ctx, s.conversations()); err != nil {
				return "", err
			}
		}
		// Twice in a row, because a job on its way from one state to another may be in neither for a moment.
		if calm++; !settled {
			calm = 0
		}
		if s.parked = left.Parked; calm == 2 {
			return "", nil
		}
		if time.Now().After(limit) {
			return fmt.Sprintf("%d jobs waiting, %d running, books at rest: %t", left.Waiting, left.Running, settled), nil
		}
		if err := s.alive(); err != nil {
			return "", err
		}
		if err := s.adopt(ctx, orphans); err != nil {
			return "", err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return "", context.Cause(ctx)
		}
	}
}

// adopt has jobs delivered again that the queue takes to be at work though no worker has them.
func (s *stage) adopt(ctx context.Context, orphans map[string]time.Time) error {
	running, err := s.queue.Running(ctx)
	if err != nil {
		return err
	}
	for _, id := range running {
		switch since, known := orphans[id]; {
		case s.watch.isLive(id):
			delete(orphans, id)
		case !known:
			orphans[id] = time.Now()
		case time.Since(since) > orphanAfter:
			delete(orphans, id)
			if _, err := s.queue.Again(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

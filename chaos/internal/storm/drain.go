package storm

import (
	"context"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// adopter returns a function that has jobs delivered again which the queue takes to be at work
// though no worker has them: their worker was killed before it said that it has them, or after it
// said that it is done and before the queue was told.
func (s *stage) adopter() func(context.Context) (left, error) {
	since := map[string]time.Time{}
	return func(ctx context.Context) (left, error) {
		l, err := s.queue.left(ctx)
		if err != nil {
			return l, err
		}
		s.backlog.Store(int64(len(l.waiting) + len(l.running)))
		orphans := map[string]time.Time{}
		for _, id := range l.running {
			if s.watch.isLive(id) {
				continue
			}
			at, known := since[id]
			if !known {
				at = time.Now()
			}
			if time.Since(at) < orphanAfter {
				orphans[id] = at
				continue
			}
			again, err := s.queue.again(ctx, id)
			if err != nil {
				return l, err
			}
			if again {
				s.counts.orphans.Add(1)
			}
		}
		since = orphans
		return l, nil
	}
}

// rest is what a drain leaves.
type rest struct {
	gaveUp  bool
	parked  int
	waiting []string // messages whose jobs were not done
}

// drain waits until the queue is empty and no effect is pending.
func (s *stage) drain(ctx context.Context) (rest, error) {
	adopting := s.adopter()
	var r rest
	for end, calm := time.Now().Add(drainLimit), 0; calm < 3; {
		l, err := adopting(ctx)
		if err != nil {
			return r, err
		}
		r.parked = l.parked
		pending := false
		if s.keeper != nil && len(l.waiting)+len(l.running) == 0 {
			unresolved, err := s.keeper.Unresolved(ctx, 0, 0)
			if err != nil {
				return r, err
			}
			for _, u := range unresolved {
				pending = pending || u.Effect.State() == runs.Pending
			}
		}
		// More than once, because a job on its way from one state to another may be in neither.
		if calm++; pending || len(l.waiting)+len(l.running) > 0 {
			calm = 0
		}
		if time.Now().After(end) {
			r.gaveUp = true
			return r, nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return r, context.Cause(ctx)
		}
	}
	return r, nil
}

// undone returns the messages whose jobs are not done.
func (s *stage) undone(ctx context.Context) ([]string, error) {
	l, err := s.queue.left(ctx)
	if err != nil {
		return nil, err
	}
	s.jobsMu.Lock()
	defer s.jobsMu.Unlock()
	var list []string
	for _, id := range append(l.waiting, l.running...) {
		list = append(list, s.jobs[id])
	}
	return list, nil
}

package seam

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"time"
)

// Real returns the seam of production: the machine's clock, goroutines and random source.
func Real() *Seam {
	return &Seam{
		Now:         time.Now,
		Sleep:       sleep,
		WithTimeout: context.WithTimeout,
		AfterFunc: func(d time.Duration, f func()) func() bool {
			return time.AfterFunc(d, f).Stop
		},
		Go:     func(f func()) { go f() },
		NewID:  rand.Text,
		Jitter: jitter,
		NewLock: func() Lock {
			return &fifoLock{}
		},
		Wait: wait,
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(mathrand.Int64N(int64(d)))
}

// fifoLock serves its waiters in the order in which they came, so that a hot conversation
// is fair; a sync.Mutex would neither promise that nor give up with a ctx.
type fifoLock struct {
	mu      sync.Mutex
	held    bool
	waiters []chan struct{}
}

func (l *fifoLock) Lock(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	if !l.held {
		l.held = true
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiters = append(l.waiters, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		if l.leave(turn) {
			return context.Cause(ctx)
		}
		// The lock was handed over at the same moment: pass it on.
		l.Unlock()
		return context.Cause(ctx)
	}
}

// leave takes turn out of the queue; false means that it had already been served.
func (l *fifoLock) leave(turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiters {
		if w == turn {
			l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
			return true
		}
	}
	return false
}

func (l *fifoLock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiters) == 0 {
		l.held = false
		return
	}
	next := l.waiters[0]
	l.waiters = l.waiters[1:]
	close(next)
}

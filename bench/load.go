package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

// slice is how long one block runs at a time: long enough that starting and stopping do not
// count, short enough that all blocks meet the same machine.
const slice = time.Second

// load measures all blocks, in another order each round, until the time is up.
func load(ctx context.Context, random *rand.Rand, blocks []*block, flush func(context.Context) error, total time.Duration) error {
	order := slices.Clone(blocks)
	end := time.Now().Add(total)
	for round := 0; len(order) > 0 && (round == 0 || time.Now().Before(end)); round++ {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, b := range order {
			if err := flush(ctx); err != nil {
				return err
			}
			if err := b.once(ctx); err != nil {
				return fmt.Errorf("measure %s with %d workers: %w", b.name, b.workers, err)
			}
		}
	}
	return nil
}

// title names a block for people.
func (b *block) title() string {
	if b.workers == 1 {
		return b.name + ", 1 worker"
	}
	return fmt.Sprintf("%s, %d workers", b.name, b.workers)
}

func (b *block) once(ctx context.Context) error {
	step, stop, err := b.start(ctx, b.workers)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		done   int
		failed error
		cpu    = cpuTime()
		begun  = time.Now()
	)
	for worker := range b.workers {
		all.Go(func() {
			n, took, err := b.work(ctx, func() (int, error) { return step(ctx, worker) }, begun.Add(slice))
			mu.Lock()
			defer mu.Unlock()
			done += n
			failed = errors.Join(failed, err)
			b.latency.values = append(b.latency.values, took...)
		})
	}
	all.Wait()
	b.perSecond.add(float64(done) / time.Since(begun).Seconds())
	b.cpu.add((cpuTime() - cpu).Seconds() / float64(max(done, 1)))
	return errors.Join(failed, stop())
}

// cpuTime is what this process has used of the processors so far. How busy others keep them
// changes it little.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it takes no argument that could be wrong
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// work repeats step until end, and finishes the one at hand.
func (b *block) work(ctx context.Context, step func() (int, error), end time.Time) (done int, took []float64, err error) {
	for time.Now().Before(end) && ctx.Err() == nil {
		begun := time.Now()
		n, err := step()
		if err != nil {
			return done, took, err
		}
		if n == 0 {
			return done, took, nil
		}
		took = append(took, time.Since(begun).Seconds()/float64(n))
		done += n
	}
	return done, took, ctx.Err()
}

package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/fencedrun/fencedrun/runs"
)

// The blocks' names.
const (
	floorBlock = "INSERT, then UPDATE"
	dbosBlock  = "DBOS: workflow of 10 steps"
	steps      = 10
)

// blocks are what is measured with several workers side by side.
func (w *world) blocks(ctx context.Context) ([]*block, error) {
	dbos, err := w.openDBOS(ctx)
	if err != nil {
		return nil, err
	}
	var blocks []*block
	for _, workers := range []int{1, 8, 32} {
		add := func(name, base, unit, target string, start starter) {
			if workers == 1 {
				target = ""
			}
			blocks = append(blocks, &block{name: name, workers: workers, base: base, unit: unit, target: target, start: start})
		}
		add(floorBlock, floorBlock, "effects", "", always(1, floor(w.pool, pgUpdate)))
		add("INSERT, then UPDATE not flushed", floorBlock, "effects", "", always(1, floor(w.pool, pgUpdateAsync)))
		add("Once", floorBlock, "effects", "≥ 0.85", w.sessions)
		add(dbosBlock, dbosBlock, "steps", "", dbos)
		add("job of 10 effects", dbosBlock, "steps", "≥ 1.5", always(steps, w.job))
	}
	return append(blocks, &block{name: "Once, all on one conversation", workers: 50, unit: "effects", start: w.hot}), nil
}

// always repeats what needs no preparation, and is n operations.
func always(n int, op func(context.Context) error) starter {
	return func(context.Context, int) (step, func() error, error) {
		return func(ctx context.Context, _ int) (int, error) { return n, op(ctx) }, func() error { return nil }, nil
	}
}

// sessions gives each worker a delivery on a conversation of its own.
func (w *world) sessions(ctx context.Context, workers int) (step, func() error, error) {
	open := make([]*rotating, workers)
	for i := range open {
		open[i] = &rotating{keeper: w.once}
		if err := open[i].prepare(ctx); err != nil {
			return nil, nil, err
		}
		// A worker's Begins and Ends are what a job costs, not what an effect does.
		open[i].left = 1 << 30
	}
	stop := func() error {
		var errs []error
		for _, r := range open {
			errs = append(errs, r.close())
		}
		return errors.Join(errs...)
	}
	return func(ctx context.Context, worker int) (int, error) { return 1, open[worker].next(ctx) }, stop, nil
}

// job is the counterpart of DBOS's workflow: a job that is begun, makes 10 effects one after
// another, and is ended.
func (w *world) job(ctx context.Context) error {
	return w.once.Do(ctx, job(unique("conversation")), func(ctx context.Context) error {
		run := runs.FromContext(ctx)
		for range steps {
			if err := run.Once(ctx, effect(), call); err != nil {
				return err
			}
		}
		return nil
	})
}

// hot makes 20 effects in each of the workers, all in one delivery on one conversation.
func (w *world) hot(ctx context.Context, workers int) (step, func() error, error) {
	const each = 20
	s, err := begin(ctx, w.once, unique("hot"))
	if err != nil {
		return nil, nil, err
	}
	left := make([]atomic.Int64, workers)
	twenty := func(_ context.Context, worker int) (int, error) {
		if left[worker].Add(1) > each {
			return 0, nil
		}
		return 1, s.once(effect())
	}
	return twenty, s.close, nil
}

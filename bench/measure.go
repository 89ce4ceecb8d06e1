package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// variant is one thing to measure, one operation at a time.
type variant struct {
	name   string
	note   string // what one operation is, for the table
	base   string // the variant that it is compared with, "" none
	target string // of the ratio or the time, for people; "" none
	per    int    // operations of one measurement, 0 means 1

	prepare func(ctx context.Context) error // not timed; nil means nothing to do
	op      func(ctx context.Context) error
	// own replaces the time that the clock says by one that op took itself; nil mostly.
	own func() time.Duration

	samples
}

// block is one thing to measure with several workers side by side.
type block struct {
	name    string
	workers int
	base    string // the block that it is compared with at the same number of workers
	unit    string
	target  string
	start   starter

	perSecond samples // operations a second, kept as such
	cpu       samples // of this process for an operation
	latency   samples // of single operations, where step tells them
}

// A starter prepares workers, which is not timed. stop ends what it began.
type starter func(ctx context.Context, workers int) (s step, stop func() error, err error)

// A step is what a worker does again and again: n operations; none, and the worker is done.
type step func(ctx context.Context, worker int) (n int, err error)

// samples are measurements.
type samples struct{ values []float64 }

func (s *samples) add(v float64) { s.values = append(s.values, v) }

// at returns the value below which the share p of the samples lies, between two samples if need
// be; 0 without samples.
func (s *samples) at(p float64) float64 {
	if len(s.values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.values))
	whole, part := math.Modf(p * float64(len(sorted)-1))
	i := int(whole)
	return sorted[i] + part*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
}

// warmups are rounds that are not counted: connections, caches and plans come into being.
const warmups = 5

// measure measures all variants, in another order each round, until the time is up. A fixed
// order would give each variant the same predecessor, whose work of the background would be
// counted as its own. Before each measurement all of them do the same, flush.
func measure(ctx context.Context, random *rand.Rand, variants []*variant, flush func(context.Context) error, total time.Duration) error {
	order := slices.Clone(variants)
	end := time.Now().Add(total)
	for round := 0; len(order) > 0 && (round <= warmups || time.Now().Before(end)); round++ {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, v := range order {
			took, err := v.once(ctx, flush)
			if err != nil {
				return fmt.Errorf("measure %s: %w", v.name, err)
			}
			if round >= warmups {
				v.add(took.Seconds() / float64(max(v.per, 1)))
			}
		}
	}
	return nil
}

func (v *variant) once(ctx context.Context, flush func(context.Context) error) (time.Duration, error) {
	if v.prepare != nil {
		if err := v.prepare(ctx); err != nil {
			return 0, fmt.Errorf("prepare: %w", err)
		}
	}
	if err := flush(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	err := v.op(ctx)
	took := time.Since(begun)
	if v.own != nil {
		took = v.own()
	}
	return took, err
}

package runs_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

func TestDrainWaitsForWhatIsAtWork(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		if err := p.Drain(b.Context()); err != nil {
			b.Errorf("nothing is at work: %v", err)
		}
		slow := func(context.Context, *runs.Call) error {
			time.Sleep(20 * time.Second)
			return nil
		}
		// The queue has cancelled the handler, which is deaf, and its server does not wait for it.
		ctx, cancel := context.WithCancel(b.Context())
		var all sync.WaitGroup
		all.Go(func() {
			p.Deliver(ctx, job(1), runs.Delivery{}, func(ctx context.Context) error { return once(ctx, tag("x"), slow) })
		})
		all.Go(func() { _ = p.Once(b.Context(), "other", tag("y"), slow) })
		time.Sleep(time.Second)
		cancel()
		short, stop := context.WithTimeoutCause(b.Context(), 5*time.Second, errNoAnswer)
		defer stop()
		if err := p.Drain(short); !errors.Is(err, errNoAnswer) {
			b.Errorf("it did not wait, or said not why it ended: %v", err)
		}
		if err := p.Drain(b.Context()); err != nil {
			b.Error(err)
		}
		if e := p.effect("c"); e.State() != runs.Committed {
			b.Errorf("when it was drained, the effect was %s", e.State())
		}
		all.Wait()
	})
}

func TestDrainWaitsForASweep(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.takes = 20 * time.Second
		in := d.intent("refund", true)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		unknown(b, p, in, d.drop)
		time.Sleep(quietOver)
		var all sync.WaitGroup
		all.Go(func() { _, _ = p.Sweep(b.Context()) })
		time.Sleep(time.Second)
		_ = p.Drain(b.Context())
		if e := p.effect("c"); e.State() != runs.Failed {
			b.Errorf("drained, and the probe's answer is not recorded: %s", e.State())
		}
		all.Wait()
	})
}

func TestDrainWaitsForAnEffectThatOutlivesItsHandler(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		var all sync.WaitGroup
		p.deliver(job(1), func(ctx context.Context) error {
			all.Go(func() {
				_ = once(ctx, tag("x"), func(context.Context, *runs.Call) error { time.Sleep(20 * time.Second); return nil })
			})
			time.Sleep(time.Second)
			return nil
		})
		_ = p.Drain(b.Context())
		if e := p.effect("c"); e.State() != runs.Committed {
			b.Errorf("drained, and an effect is at work: %s", e.State())
		}
		all.Wait()
	})
}

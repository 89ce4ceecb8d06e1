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

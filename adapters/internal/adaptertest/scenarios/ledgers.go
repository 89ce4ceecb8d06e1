package scenarios

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
	"github.com/fencedrun/fencedrun/runs"
)

// ledgers: what happens when the ledger cannot be asked.
func ledgers() []scenario {
	return []scenario{
		{"ledger down: the handler is not entered, the job is retried", Options{}, ledgerDown},
		{"lease lost in mode exclusive: the job is retried", Options{Mode: runs.Exclusive}, leaseLost},
	}
}

func ledgerDown(b *bench) {
	b.Queue.Enqueue(job("a", "m1"))
	b.store.down.Store(true)
	b.start(func(ctx context.Context, _ string, _ int) error { return b.answerOpen(ctx) })
	time.Sleep(10 * time.Second)
	b.wantEntered("a", 0)
	r := b.await("a", adaptertest.Waiting)
	if r.Spent == 0 || !strings.Contains(r.Error, "the store is down") {
		b.Errorf("spent %d attempts, error %q: want a plain error that says why", r.Spent, r.Error)
	}
	b.store.down.Store(false)
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 1)
	b.wantSent("reply m1", 1)
}

func leaseLost(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, runs.ErrLeaseLost) {
				b.Errorf("cause of the job's ctx: %v, want lease lost", cause)
			}
			return nil // a handler that swallows it
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	b.store.down.Store(true)
	time.Sleep(40 * time.Second)
	b.store.down.Store(false)
	b.await("a", adaptertest.Done)
	b.wantSent("reply m1", 1)
}

package runs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger"
)

var noWatchdog = sabotage.NoWatchdog

// join adds a run to those whose lease is renewed, and starts the beating when it is the
// first.
func (k *Keeper) join(r *Run) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.live[r] = struct{}{}
	if k.idle == nil {
		idle := make(chan struct{})
		k.idle = idle
		k.seam.Go(func() { k.beats(idle) })
	}
	return nil
}

func (k *Keeper) leave(r *Run) {
	k.mu.Lock()
	delete(k.live, r)
	k.mu.Unlock()
}

// beats renews leases until no run is left or the keeper is closed. A beat that failed is
// tried again soon: one failed beat is not loss (rule S9.4).
func (k *Keeper) beats(idle chan struct{}) {
	defer close(idle)
	pause := k.config.Beat
	for {
		if k.seam.Sleep(k.ctx, pause) != nil {
			return
		}
		runs := k.renewable()
		if runs == nil {
			return
		}
		pause = k.config.Beat
		if len(runs) > 0 && k.beat(runs) != nil {
			pause = k.config.Beat / 4
		}
	}
}

// renewable returns the runs whose queue still counts on them, in a fixed order; nil means
// that no run is left and the beating ends.
func (k *Keeper) renewable() []*Run {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.live) == 0 || k.closed {
		k.idle = nil
		return nil
	}
	runs := make([]*Run, 0, len(k.live))
	for r := range k.live {
		// Renewal is bound to the queue's own ctx: a handler that ignores it must not keep
		// its lease for ever (rule S9.1).
		if r.queue.Err() == nil || k.seam.Off.Has(sabotage.BeatsForEver) {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b *Run) int {
		if a.job.key().String() < b.job.key().String() {
			return -1
		}
		return 1
	})
	return runs
}

// beat renews the leases of runs with one statement.
func (k *Keeper) beat(runs []*Run) error {
	// Bounded, so that a store that hangs does not stop the beating for good.
	ctx, cancel := k.seam.WithTimeout(k.ctx, k.config.Beat)
	defer cancel()
	keys := make([]ledger.LeaseKey, len(runs))
	for i, r := range runs {
		keys[i] = r.h.Lease()
	}
	sent := k.seam.Now()
	renewed, err := k.ledger.Renew(ctx, keys, k.config.Lease)
	if err != nil {
		if k.ctx.Err() == nil {
			k.tell(ctx, Event{Kind: fence.EventLedgerError, Text: "renew", Err: err})
		}
		return err
	}
	for i, r := range runs {
		if renewed[i].Found {
			r.watch(sent)
		}
		if !renewed[i].Found || r.h.Moved(ctx, renewed[i].Tag) {
			r.learn(ctx, !renewed[i].Found, sent)
		}
	}
	return nil
}

// learn asks whether a run whose conversation moved may still write (rule S9.2).
func (r *Run) learn(ctx context.Context, rejoin bool, sent time.Time) {
	v, now, err := r.h.Beat(ctx, rejoin)
	switch {
	case err != nil:
		// The next beat asks again.
	case v.Refusal != nil:
		r.lose(r.lossOf(v.Refusal, now))
	case v.Rejoined:
		r.watch(sent)
	}
}

// lossOf turns a refusal into the cause that a handler's ctx is cancelled with. In mode
// exclusive, another holder means that the lease was lost.
func (r *Run) lossOf(ref *fence.Refusal, now fence.Millis) *RefusedError {
	e := r.k.refused(ref, EffectRef{}, now)
	if ref.Reason == fence.ReasonBusy {
		e.Reason = fence.ReasonLeaseLost
	}
	return e
}

// isLoss reports whether a refusal means that the run's right to write is gone for good.
func isLoss(err error) bool {
	return errors.Is(err, ErrSuperseded) || errors.Is(err, ErrCancelled) || errors.Is(err, ErrLeaseLost)
}

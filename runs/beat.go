package runs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger"
)

// join adds a run to those whose lease is renewed, and starts the beating when it is the
// first.
func (k *Keeper) join(r *Run) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.joined++
	r.number = k.joined
	k.live[r] = struct{}{}
	if k.beating == nil {
		ended := make(chan struct{})
		k.beating = ended
		k.seam.Go(func() { k.beats(ended) })
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
func (k *Keeper) beats(ended chan struct{}) {
	defer close(ended)
	period := k.config.Beat
	pause := period
	for round := 0; ; round++ {
		if k.seam.Sleep(k.ctx, pause) != nil {
			return
		}
		live, working := k.renewable()
		if !working {
			return
		}
		sent := k.seam.Now()
		err := k.beat(live, round)
		pause = max(period-k.seam.Now().Sub(sent), 0)
		if err != nil {
			pause = min(pause, period/4)
		}
	}
}

// renewable returns the runs whose lease is to be renewed, in the order in which they began.
// Without any run at work the beating ends.
func (k *Keeper) renewable() (renew []*Run, working bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.live) == 0 || k.closed {
		k.beating = nil
		return nil, false
	}
	for r := range k.live {
		if r.renews() {
			renew = append(renew, r)
		}
	}
	slices.SortFunc(renew, func(a, b *Run) int { return cmp.Compare(a.number, b.number) })
	return renew, true
}

// renews reports whether the run's lease is to be renewed. Renewal is bound to the queue's own
// ctx: a handler that ignores it must not keep its lease for ever (rule S9.1). One that lost
// its right to write keeps nobody else waiting.
func (r *Run) renews() bool {
	if r.k.seam.Off.Has(sabotage.BeatsForEver) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loss == nil && r.queue.Err() == nil
}

// beat renews the leases of runs with one statement, and asks about those whose conversation
// was moved by somebody else.
func (k *Keeper) beat(runs []*Run, round int) error {
	if len(runs) == 0 {
		return nil
	}
	keys := make([]ledger.LeaseKey, len(runs))
	for i, r := range runs {
		keys[i] = r.h.Lease()
	}
	sent := k.seam.Now()
	renewed, err := k.renew(keys)
	if err != nil {
		return err
	}
	for i, r := range runs {
		if renewed[i].Found {
			r.watch(sent)
		}
	}
	// A conversation that hangs must not keep the others from learning for ever: each has its
	// part of the time, and the first is another one in every round.
	ctx, cancel := k.seam.WithTimeout(k.ctx, k.config.Beat/2)
	defer cancel()
	for i := range runs {
		at := (i + round) % len(runs)
		runs[at].learn(ctx, renewed[at], sent)
	}
	return nil
}

// renew is bounded, so that a store that hangs can be asked again while the lease still runs.
func (k *Keeper) renew(keys []ledger.LeaseKey) ([]ledger.Renewed, error) {
	ctx, cancel := k.seam.WithTimeout(k.ctx, k.config.Beat/2)
	defer cancel()
	renewed, err := k.ledger.Renew(ctx, keys, k.config.Lease)
	if err != nil && k.ctx.Err() == nil {
		k.tell(ctx, Event{Kind: fence.EventLedgerError, Text: "renew", Err: err})
	}
	return renewed, err
}

// learn asks whether a run whose conversation moved, or whose lease is gone, may still write
// (rule S9.2).
func (r *Run) learn(ctx context.Context, renewed ledger.Renewed, sent time.Time) {
	ctx, cancel := r.k.seam.WithTimeout(ctx, r.k.config.Beat/8)
	defer cancel()
	if renewed.Found && !r.h.Moved(ctx, renewed.Tag) {
		return
	}
	v, now, err := r.h.Beat(ctx, !renewed.Found)
	switch {
	case err != nil:
		// The next beat asks again.
	case v.Refusal != nil:
		r.lose(r.k.refused(v.Refusal, EffectRef{}, now))
	case v.Rejoined:
		r.watch(sent)
	}
}

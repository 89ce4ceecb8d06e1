package runs

import (
	"context"

	"github.com/fencedrun/fencedrun/fence"
)

// WaitStale blocks until the newer delivery of the job has ended, or ctx is done; it returns
// ctx's cause then. It is for queues whose record of a job cannot be left alone.
//
// The newer delivery may work for minutes and nobody waits for this one, so the ledger is asked
// less and less often, at last every few seconds.
func (k *Keeper) WaitStale(ctx context.Context, job Job) error {
	for pause := k.config.PollMin; ; pause = min(2*pause, max(k.config.PollMax, soon)) {
		alive, err := k.alive(ctx, job)
		if err == nil && !alive {
			return nil
		}
		if cause := k.seam.Sleep(ctx, pause/2+k.seam.Jitter(pause)); cause != nil {
			return cause
		}
	}
}

// alive reports whether a delivery of the job holds a lease.
func (k *Keeper) alive(ctx context.Context, job Job) (bool, error) {
	row := fence.RunRow(job.key())
	v, err := k.ledger.Look(ctx, job.Conversation, row)
	if err != nil {
		return false, err
	}
	for id, until := range v.Leases {
		if id.Run == row && until > v.Now {
			return true, nil
		}
	}
	return false, nil
}

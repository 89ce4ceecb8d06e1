package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// FindRun returns the conversation that a run lives on. known is false when the ledger has not
// heard of the run; the conversation is "" when it was cancelled before it began.
func (k *Keeper) FindRun(ctx context.Context, run RunKey) (conversation string, known bool, err error) {
	if err := k.open(); err != nil {
		return "", false, err
	}
	if err := checkRunKey(run); err != nil {
		return "", false, err
	}
	conversation, known, err = k.ledger.FindRun(ctx, run)
	if err != nil {
		return "", false, k.failed(ctx, Job{Queue: run.Queue, ID: run.ID}, "find run", err)
	}
	return conversation, known, nil
}

func checkRunKey(run RunKey) error {
	if err := key.ValidateName("queue", run.Queue, key.MaxQueue); err != nil {
		return err
	}
	return key.ValidateName("id", run.ID, key.MaxJobID)
}

// checkValue checks the value of a verdict.
func (k *Keeper) checkValue(v Resolution) error {
	switch {
	case v.Value == nil:
		return nil
	case !v.Happened:
		return fmt.Errorf("fencedrun: resolve: Resolution.Value is given for an effect that did not happen")
	case len(v.Value) > k.config.MaxResult:
		return fmt.Errorf("fencedrun: resolve: Resolution.Value has %d bytes, over the limit of %d", len(v.Value), k.config.MaxResult)
	case !jsontext.Value(v.Value).IsValid():
		return fmt.Errorf("fencedrun: resolve: Resolution.Value is no JSON: a string needs its quotes")
	}
	return nil
}

// PurgeOlder is [Keeper.Purge] for records that, beside their retention having passed, were
// settled, ended or last named at least older ago: a record's own retention was set by the service
// that wrote it, and nothing is deleted earlier.
func (k *Keeper) PurgeOlder(ctx context.Context, older time.Duration, limit int) (Purged, error) {
	if err := k.checkPurge(older); err != nil {
		return Purged{}, err
	}
	if limit <= 0 {
		return Purged{}, fmt.Errorf("fencedrun: purge: limit is not positive: %d", limit)
	}
	p, err := k.ledger.PurgeOlder(ctx, fence.MillisOf(older), limit)
	if err != nil {
		return p, k.failed(ctx, Job{}, "purge", err)
	}
	return p, nil
}

// CountPurge counts what PurgeOlder would delete in the end, and deletes nothing. It looks at no
// more than limit records whose retention has passed (0: all) and says More when there may be others.
// Conversations are not counted.
func (k *Keeper) CountPurge(ctx context.Context, older time.Duration, limit int) (Purged, error) {
	if err := k.checkPurge(older); err != nil {
		return Purged{}, err
	}
	p, err := k.ledger.CountPurge(ctx, fence.MillisOf(older), limit)
	if err != nil {
		return p, k.failed(ctx, Job{}, "count purge", err)
	}
	return p, nil
}

func (k *Keeper) checkPurge(older time.Duration) error {
	if err := k.open(); err != nil {
		return err
	}
	if older < 0 {
		return fmt.Errorf("fencedrun: purge: older is negative: %v", older)
	}
	return nil
}

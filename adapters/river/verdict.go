package riverruns

import (
	"fmt"

	"github.com/riverqueue/river"

	"github.com/fencedrun/fencedrun/runs"
)

// result says what River gets for a verdict. cancelDropped is
// Config.CancelDropped.
func result(v runs.Verdict, cancelDropped bool) error {
	switch v.Action {
	case runs.ActionDone:
		return nil
	case runs.ActionDrop:
		if cancelDropped {
			return river.JobCancel(&runs.VerdictError{Action: v.Action, Reason: v.Reason, Note: v.Note})
		}
		return nil
	case runs.ActionComeBack:
		return river.JobSnooze(max(v.After, 0)) // panics below zero
	case runs.ActionPark, runs.ActionDiscard:
		return river.JobCancel(v.Err)
	case runs.ActionStale:
		return &staleError{v.Err}
	case runs.ActionRetry, runs.ActionReturn:
		return v.Err
	}
	return fmt.Errorf("fencedrun: riverruns: unknown verdict %q", v.Action)
}

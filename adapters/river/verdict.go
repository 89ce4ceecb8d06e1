package riverruns

import (
	"fmt"

	"github.com/riverqueue/river"

	"github.com/fencedrun/fencedrun/runs"
)

// VerdictError is the error that River gets when the run decided, not the worker.
// An ErrorHandler finds it with errors.As. errors.Is finds the sentinel of its
// reason in it (runs.ErrSuperseded, …), and nothing that the worker's own error
// wraps.
type VerdictError struct {
	Verdict runs.Verdict
}

// Error gives the note of the verdict.
func (e *VerdictError) Error() string {
	switch {
	case e.Verdict.Err != nil:
		return e.Verdict.Err.Error()
	case e.Verdict.Note != "":
		return "fencedrun: " + e.Verdict.Note
	}
	return "fencedrun: " + string(e.Verdict.Action)
}

// Unwrap returns the run's error.
func (e *VerdictError) Unwrap() error { return e.Verdict.Err }

// result says what River gets for a verdict. cancelDropped is
// Config.CancelDropped.
func result(v runs.Verdict, cancelDropped bool) error {
	switch v.Action {
	case runs.ActionDone:
		return nil
	case runs.ActionDrop:
		if cancelDropped {
			return river.JobCancel(&VerdictError{Verdict: v})
		}
		return nil
	case runs.ActionComeBack:
		return river.JobSnooze(max(v.After, 0)) // panics below zero
	case runs.ActionRetry:
		return &VerdictError{Verdict: v}
	case runs.ActionPark, runs.ActionDiscard:
		return river.JobCancel(&VerdictError{Verdict: v})
	case runs.ActionStale:
		return &staleError{note: "fencedrun: " + v.Note}
	case runs.ActionReturn:
		return v.Err
	}
	return fmt.Errorf("fencedrun: riverruns: unknown verdict %q", v.Action)
}

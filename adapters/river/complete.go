package riverruns

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/runs"
)

// CompleteTx completes the job inside tx, together with its run: what the worker wrote in tx, what
// [runs.Run.OnceTx] recorded there, the end of the run and the job's completion commit together or
// not at all. The ledger must live in River's database. The driver is named as for
// [river.JobCompleteTx], which this replaces:
//
//	_, err := riverruns.CompleteTx[*riverpgxv5.Driver](ctx, tx, job)
//
// Commit tx and return nil afterwards; after an error roll tx back and return the error.
//
// River's own function completes the job for whichever delivery asks, also for one that was
// replaced long ago. Here the run is locked and asked first: a delivery that was replaced, or a
// run that owns an unresolved effect, gets a *runs.RefusedError, and a job that River has given
// to nobody is an error too.
func CompleteTx[TDriver riverdriver.Driver[TTx], TTx any, TArgs river.JobArgs](ctx context.Context, tx TTx, job *river.Job[TArgs]) (*river.Job[TArgs], error) {
	if job == nil || job.JobRow == nil {
		return nil, errors.New("fencedrun: riverruns: CompleteTx: job is nil")
	}
	run := runs.FromContext(ctx)
	if id := strconv.FormatInt(job.ID, 10); run != nil && run.Job().ID != id {
		return nil, fmt.Errorf("fencedrun: riverruns: CompleteTx: job %s in the run of job %s", id, run.Job().ID)
	}
	if err := run.CompleteTx(ctx, tx); err != nil {
		return nil, err
	}
	done, err := river.JobCompleteTx[TDriver](ctx, tx, job)
	if err != nil {
		return nil, err
	}
	if done.State != rivertype.JobStateCompleted {
		return nil, fmt.Errorf("fencedrun: riverruns: CompleteTx: job %d is %s, no longer running: River has taken it from this delivery", job.ID, done.State)
	}
	return done, nil
}

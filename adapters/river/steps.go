package riverruns

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// River's resumable steps (river.ResumableStep) fail behind the worker's back: the worker returns nil, and
// a middleware of River's own, outside of every plugin, makes an error of it. A run that ended with the
// nil would never be entered again, and the steps that are left never done. The same middleware makes an
// error of a nil when the worker did not come to the step at which the job is to resume, as when a run
// that has ended is acknowledged without entering the worker.

// errSteps is what a worker "returned" whose steps are not done.
var errSteps = errors.New("fencedrun: riverruns: a resumable step is not done")

// probeStep is the name of a step that is asked for and never made.
const probeStep = "fencedrun:probe"

// stepsDone reports whether River will let the worker's nil stand. ctx is the middleware's. River tells it
// by whether a further step is made: none is after one that failed, nor before the one at which the job
// is to resume. That step ends by a panic, which leaves no trace in River's record of steps.
func stepsDone(ctx context.Context) (done bool) {
	defer func() {
		if recover() != nil {
			done = true // also where River's middleware is not there
		}
	}()
	river.ResumableStep(ctx, probeStep, nil, func(context.Context) error { panic(probeStep) })
	return false
}

// passSteps tells River that the job need not resume anywhere, for a nil without the worker.
func passSteps(ctx context.Context, row *rivertype.JobRow) {
	if !bytes.Contains(row.Metadata, []byte("river:resumable")) {
		return
	}
	object := map[string]jsontext.Value{}
	if json.Unmarshal(row.Metadata, &object, jsontext.AllowDuplicateNames(true)) != nil {
		return // what River makes of it, it says
	}
	var step string
	_ = json.Unmarshal(object["river:resumable_step"], &step)
	cursors := map[string]jsontext.Value{}
	_ = json.Unmarshal(object["river:resumable_cursor"], &cursors)

	defer func() { _ = recover() }() // where River's middleware is not there
	if step != "" {
		river.ResumableStep(ctx, step, nil, func(context.Context) error { return nil })
		return
	}
	for _, name := range slices.Sorted(maps.Keys(cursors)) {
		river.ResumableStepCursor(ctx, name, nil, func(context.Context, any) error { return nil })
	}
}

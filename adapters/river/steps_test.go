package riverruns_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/internal/race"
)

// twoSteps makes two steps, of which the second fails once. It returns nil as River's documentation says
// it should.
func twoSteps(ctx context.Context, made *list[string], fail error) error {
	river.ResumableStep(ctx, "one", nil, func(context.Context) error {
		made.add("one")
		return nil
	})
	river.ResumableStep(ctx, "two", nil, func(context.Context) error {
		if made.add("two") == 2 {
			return fail
		}
		return nil
	})
	return nil
}

func TestHazardAResumableStepFailsBehindTheWorkersBack(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var made list[string]
		b.Start(plugins(&spy{work: func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
			err := inner(ctx)
			if err != nil {
				t.Errorf("the plugin sees %v", err)
			}
			return err
		}}), func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			return twoSteps(ctx, &made, errors.New("step two failed"))
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(time.Minute)
		row := wantState(t, b, job.ID, rivertype.JobStateCompleted)
		if got := strings.Join(made.all(), " "); got != "one two two" || len(row.Errors) != 1 || row.Errors[0].Error != "step two failed" {
			t.Errorf("made %q, errors %v", got, row.Errors)
		}
	})
}

func TestHazardANilBeforeTheResumedStepIsMadeAnError(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error { return nil })
		job := b.Insert(riverharness.Args{}, &river.InsertOpts{MaxAttempts: 1, Metadata: []byte(`{"river:resumable_step":"one"}`)})
		time.Sleep(10 * time.Second)
		row := wantState(t, b, job.ID, rivertype.JobStateDiscarded)
		if got := row.Errors[0].Error; !strings.Contains(got, `resumable step "one" not found`) {
			t.Errorf("error %q", got)
		}
	})
}

// The run must not have ended with the nil of a worker whose step has failed.
func TestAJobWhoseResumableStepFailedIsResumed(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	for name, c := range map[string]struct {
		fail   error
		errors int // of the job, in the end
	}{
		"an error":    {errors.New("step two failed"), 1},
		"a snooze":    {river.JobSnooze(time.Minute), 0},
		"a no, ended": {river.JobCancel(errors.New("step two failed")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
				var made, sent list[string]
				b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
					if err := note(ctx, "k", &sent); err != nil {
						return err
					}
					return twoSteps(ctx, &made, c.fail)
				})
				job := b.Insert(args("a"), nil)
				time.Sleep(5 * time.Minute)
				if name == "a no, ended" {
					wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
					b.again(job.ID)
					time.Sleep(time.Minute)
				}
				row := wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
				if got := strings.Join(made.all(), " "); got != "one two two" || len(row.Errors) != c.errors || len(sent.all()) != 1 {
					t.Errorf("made %q, errors %v, sent %v", got, row.Errors, sent.all())
				}
				if c.errors > 0 && !strings.HasSuffix(row.Errors[0].Error, "step two failed") {
					t.Errorf("error %q, want the step's own", row.Errors[0].Error)
				}
				if end := b.runEnd(job.ID); end != "success" {
					t.Errorf("the run's end is %q", end)
				}
			})
		})
	}
}

func TestAFinishedJobOfStepsIsAcknowledgedWithoutTheWorker(t *testing.T) {
	for name, metadata := range map[string]string{
		"none":     `{}`,
		"a step":   `{"river:resumable_step":"one"}`,
		"a cursor": `{"river:resumable_cursor":{"one":7,"two":{"page":1}}}`,
		"both":     `{"river:resumable_step":"one","river:resumable_cursor":{"two":7}}`,
		"cleared":  `{"river:resumable_step":"one","river:resumable_cursor":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
				var entered atomic.Int32
				b.start(func(context.Context, *river.Job[riverharness.Args]) error {
					entered.Add(1)
					return nil
				})
				job := b.Insert(args("a"), nil)
				time.Sleep(10 * time.Second)
				row := wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
				b.Exec(`UPDATE river_job SET metadata = jsonb($1) WHERE id = $2`, join(row.Metadata, metadata), job.ID)
				b.again(job.ID)
				time.Sleep(10 * time.Second)
				row = wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
				if entered.Load() != 1 || len(row.Errors) != 0 {
					t.Errorf("entered %d times, errors %v, want once and none", entered.Load(), row.Errors)
				}
			})
		})
	}
}

// join adds the members of the second object to the first.
func join(first []byte, second string) string {
	members := strings.TrimPrefix(second, "{")
	if members == "}" {
		return string(first)
	}
	return strings.TrimSuffix(string(first), "}") + "," + members
}

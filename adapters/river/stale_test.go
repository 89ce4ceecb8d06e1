package riverruns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/runs"
)

// played is what a stale delivery and a newer one of the same job did.
type played struct {
	held  bool // the stale one returned only after the newer one had ended
	state rivertype.JobState
}

// playStale plays a delivery that is overtaken by a newer one and then returns
// nil. prepare sets up each client's configuration and worker.
func playStale(t *testing.T, b *bench, prepare func(work func(context.Context, *river.Job[riverharness.Args]) error) (*river.Config, river.Worker[riverharness.Args])) played {
	t.Helper()
	first, second := make(gate), make(gate)
	var entered, ended atomic.Int32
	start := func() *river.Client[riverharness.Tx] {
		return b.StartWorker(prepare(func(context.Context, *river.Job[riverharness.Args]) error {
			if entered.Add(1) == 1 {
				first.wait()
			} else {
				second.wait()
			}
			ended.Add(1)
			return nil
		}))
	}
	a := start()
	job := b.Insert(args("a"), nil)
	time.Sleep(3 * time.Second)
	stopped := make(chan struct{})
	go func() {
		_ = a.Stop(context.Background()) // returns when the stale delivery has
		close(stopped)
	}()
	time.Sleep(time.Second)
	b.Release(job.ID)
	start()
	time.Sleep(3 * time.Second)
	first.open()
	time.Sleep(30 * time.Second)

	var p played
	select {
	case <-stopped:
	default:
		p.held = true
	}
	p.state = b.Row(job.ID).State
	if p.state != rivertype.JobStateRunning {
		t.Errorf("the job is %s while its newer delivery is at work", p.state)
	}
	second.open()
	<-stopped
	time.Sleep(30 * time.Second)
	wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
	if n := entered.Load(); n != 2 {
		t.Errorf("entered %d times, want 2", n)
	}
	return p
}

func TestStaleDeliveryLeavesTheRowAloneAtOnce(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		p := playStale(t, b, func(work func(context.Context, *river.Job[riverharness.Args]) error) (*river.Config, river.Worker[riverharness.Args]) {
			return plugins(b.fenced, &spy{}), river.WorkFunc(work)
		})
		if p.held {
			t.Error("the return was held although River sees the plugin's value")
		}
	})
}

func TestStaleReturnIsHeldOnAnotherVersionOfRiver(t *testing.T) {
	riverruns.OnUnprovenRiver(t)
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		p := playStale(t, b, func(work func(context.Context, *river.Job[riverharness.Args]) error) (*river.Config, river.Worker[riverharness.Args]) {
			return plugins(b.fenced), river.WorkFunc(work)
		})
		if !p.held {
			t.Error("the return was not held")
		}
	})
}

func TestStaleReturnIsHeldWhereItsValueCouldBeHidden(t *testing.T) {
	hide := func(err error) error {
		if err != nil {
			return fmt.Errorf("wrapped: %w", err)
		}
		return nil
	}
	type prepare = func(work func(context.Context, *river.Job[riverharness.Args]) error) (*river.Config, river.Worker[riverharness.Args])
	for name, setup := range map[string]func(b *bench) prepare{
		"Worker.Middleware": func(b *bench) prepare {
			return func(work func(context.Context, *river.Job[riverharness.Args]) error) (*river.Config, river.Worker[riverharness.Args]) {
				return plugins(b.fenced), &wrapping{
					work: work,
					wrap: func(ctx context.Context, inner func(context.Context) error) error { return hide(inner(ctx)) },
				}
			}
		},
		"a plugin before ours": func(b *bench) prepare {
			return func(work func(context.Context, *river.Job[riverharness.Args]) error) (*river.Config, river.Worker[riverharness.Args]) {
				outer := &spy{work: func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
					return hide(inner(ctx))
				}}
				return plugins(outer, b.fenced), river.WorkFunc(work)
			}
		},
		"a plugin of River's own kind before ours": func(b *bench) prepare {
			return func(work func(context.Context, *river.Job[riverharness.Args]) error) (*river.Config, river.Worker[riverharness.Args]) {
				outer := river.WorkerMiddlewareFunc(func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
					return hide(inner(ctx))
				})
				return plugins(outer, b.fenced), river.WorkFunc(work)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
				if p := playStale(t, b, setup(b)); !p.held {
					t.Error("the return was not held")
				}
			})
		})
	}
}

func TestDeliveryThatWasFetchedEarlierIsNotEnteredAfterANewerOne(t *testing.T) {
	fenced(t, riverruns.Config{Conversation: func(*rivertype.JobRow) string { return "c" }, Inbound: riverruns.NoInbound}, func(t *testing.T, b *bench) {
		hold := make(gate)
		entered := make(chan struct{})
		newer, older := time.Now(), time.Now().Add(-time.Second)
		done := make(chan error, 1)
		go func() {
			done <- b.fenced.Work(t.Context(), &rivertype.JobRow{ID: 1, AttemptedAt: &newer, MaxAttempts: 5}, func(context.Context) error {
				close(entered)
				hold.wait()
				return nil
			})
		}()
		<-entered
		err := b.fenced.Work(t.Context(), &rivertype.JobRow{ID: 1, AttemptedAt: &older, MaxAttempts: 5}, func(context.Context) error {
			t.Error("the worker was entered")
			return nil
		})
		if _, ok := err.(interface{ ErrorsByID() map[int64]error }); !ok {
			t.Errorf("err = %v, want the value that leaves the row alone", err)
		}
		hold.open()
		if err := <-done; err != nil {
			t.Errorf("the newer delivery: %v", err)
		}
	})
}

func TestRescuedJobOfALiveWorkerIsDoneOnce(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		hold := make(gate)
		var entered atomic.Int32
		var sent list[string]
		stale := make(chan error, 1)
		config := plugins(b.fenced)
		config.JobTimeout, config.RescueStuckJobsAfter = time.Minute, time.Hour
		b.Start(config, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			if entered.Add(1) == 1 {
				hold.wait() // ignores its ctx
				err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "other", Key: runs.ID("k")}, func(context.Context, *runs.Call) error {
					sent.add("stale")
					return nil
				})
				stale <- err
				return err
			}
			return note(ctx, "k", &sent)
		})
		job := b.Insert(args("a"), nil)
		time.Sleep(3 * time.Second)
		b.Backdate(job.ID, 2*time.Hour)
		time.Sleep(2 * time.Minute)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		hold.open()
		if err := <-stale; err == nil {
			t.Error("the stale delivery made an effect")
		}
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if got := sent.all(); len(got) != 1 || got[0] != "k" {
			t.Errorf("sent %v, want k once", got)
		}
	})
}

func TestRemoteCancelPassesUnchanged(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		a := b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely) {
				t.Errorf("cause = %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		job := b.Insert(args("a"), nil)
		time.Sleep(3 * time.Second)
		if _, err := a.JobCancel(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
		if end := b.runEnd(job.ID); end != "discarded" {
			t.Errorf("the run's end is %q, want discarded", end)
		}
	})
}

// runEnd is why the job's run ended, "" if it is active.
func (b *bench) runEnd(id int64) string {
	b.T.Helper()
	h, err := b.keeper.History(b.T.Context(), "c")
	if err != nil {
		b.T.Fatal(err)
	}
	for _, r := range h.Runs {
		if r.Key.ID == fmt.Sprint(id) {
			return string(r.End)
		}
	}
	b.T.Fatalf("no run of job %d", id)
	return ""
}

// On a soft stop River keeps the attempt of a job that returns the ctx's error,
// even inside of JobCancel. Ours hides it, so a verdict of ours counts.
func TestVerdictCountsAlsoOnASoftStop(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		a := b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			<-ctx.Done()
			again := context.WithoutCancel(ctx)
			var err error
			for _, amount := range []int{1, 2} {
				err = runs.FromContext(ctx).Once(again, runs.Effect{Intent: "refund", Key: runs.ID("o"), Params: amount}, func(context.Context, *runs.Call) error { return nil })
			}
			return errors.Join(ctx.Err(), err)
		})
		job := b.Insert(args("a"), nil)
		time.Sleep(3 * time.Second)
		if err := a.StopAndCancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
	})
}

func TestCancelDroppedShowsDroppedJobs(t *testing.T) {
	fenced(t, riverruns.Config{CancelDropped: true}, func(t *testing.T, b *bench) {
		job := b.Insert(args("a"), nil)
		if _, err := b.keeper.Cancel(t.Context(), runs.RunKey{Queue: "river:public", ID: "1"}, runs.CancelOptions{By: "t", Why: "w"}); err != nil {
			t.Fatal(err)
		}
		b.start(func(context.Context, *river.Job[riverharness.Args]) error {
			t.Error("the worker was entered")
			return nil
		})
		time.Sleep(10 * time.Second)
		row := wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
		if !strings.Contains(row.Errors[0].Error, "cancelled") {
			t.Errorf("errors %v", row.Errors)
		}
	})
}

func TestNoteGoesWhenItNoLongerHolds(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		var entered atomic.Int32
		b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			if entered.Add(1) > 1 {
				return river.RecordOutput(ctx, "theirs")
			}
			if _, err := b.keeper.Report(ctx, "c", runs.Write{ID: "w"}); err != nil {
				return err
			}
			var sent list[string]
			_ = note(ctx, "k", &sent)
			return note(ctx, "k", &sent) // without a look in between: parked
		})
		job := b.Insert(args("a"), nil)
		time.Sleep(10 * time.Second)
		row := wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
		if !strings.Contains(string(row.Metadata), `"fencedrun:note":"refused twice`) {
			t.Errorf("metadata %s, want the note", row.Metadata)
		}
		if _, err := b.Client.JobRetry(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		row = wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if strings.Contains(string(row.Metadata), "refused twice") || !strings.Contains(string(row.Metadata), "theirs") {
			t.Errorf("metadata %s, want the worker's output and no old note", row.Metadata)
		}
	})
}

package riverruns_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	"github.com/fencedrun/fencedrun/internal/race"
)

// River's rescuer, without our library. It never tells the worker whose job it takes.

// nothingToDo is a worker of a kind of its own.
type nothingToDo struct {
	river.WorkerDefaults[silentArgs]
}

func (nothingToDo) Work(context.Context, *river.Job[silentArgs]) error { return nil }

// leader starts a client that is elected before any other, and knows no kind but silentArgs.
func leader(t *testing.T, b *riverharness.Bench) {
	t.Helper()
	config := &river.Config{
		Queues: map[string]river.QueueConfig{"elsewhere": {MaxWorkers: 1}}, Workers: river.NewWorkers(),
		FetchPollInterval: time.Minute, PollOnly: true,
	}
	river.AddWorker(config.Workers, nothingToDo{})
	client := b.NewClient(config)
	if err := client.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.StopAndCancel(context.Background()) })
	time.Sleep(10 * time.Second)
}

// honestly waits for the rescuer with nothing moved back and all of River's defaults.
func TestHazardRescuerTakesAJobAfterAnHour(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		hold := make(gate)
		var attempts list[int]
		b.Start(&river.Config{FetchPollInterval: 30 * time.Second}, func(_ context.Context, job *river.Job[riverharness.Args]) error {
			if attempts.add(job.Attempt) == 1 {
				hold.wait() // ignores its ctx, which is done after a minute
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(59 * time.Minute)
		wantState(t, b, job.ID, rivertype.JobStateRunning)
		time.Sleep(3 * time.Minute)
		row := wantState(t, b, job.ID, rivertype.JobStateCompleted)
		if got := attempts.all(); len(got) != 2 || got[1] != 2 {
			t.Errorf("attempts %v, want [1 2]", got)
		}
		if len(row.Errors) != 1 || !strings.Contains(row.Errors[0].Error, "Stuck job rescued") || metadata(t, row)["river:rescue_count"] != 1.0 {
			t.Errorf("errors %v, metadata %s, want the rescue told", row.Errors, row.Metadata)
		}
		hold.open()
	})
}

func TestHazardRescueAfterMustCoverTheTimeout(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		_, err := river.NewClient(riversqlite.New(b.DB), &river.Config{JobTimeout: 2 * time.Hour, RescueStuckJobsAfter: time.Hour})
		if err == nil || !strings.Contains(err.Error(), "RescueStuckJobsAfter cannot be less than JobTimeout") {
			t.Errorf("%v", err)
		}
	})
}

// rescues are what the rescuer makes of a live job, other than one more delivery.
var rescues = map[string]struct {
	attempts int
	before   func(t *testing.T, b *riverharness.Bench)            // before the job is delivered
	during   func(t *testing.T, b *riverharness.Bench, job int64) // while its worker is at work
	state    rivertype.JobState
}{
	"on its last attempt it is discarded":              {attempts: 1, state: rivertype.JobStateDiscarded},
	"a leader that does not know its kind discards it": {attempts: 5, before: leader, state: rivertype.JobStateDiscarded},
	"one that is to be cancelled is cancelled": {
		attempts: 5, state: rivertype.JobStateCancelled,
		during: func(t *testing.T, b *riverharness.Bench, job int64) {
			if _, err := b.Client.JobCancel(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		},
	},
}

func TestHazardRescueMayEndALiveJob(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	for name, c := range rescues {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *riverharness.Bench) {
				if c.before != nil {
					c.before(t, b)
				}
				hold := make(gate)
				var delivered, returned atomic.Int32
				b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
					delivered.Add(1)
					hold.wait()
					returned.Add(1)
					return nil
				})
				job := b.Insert(riverharness.Args{}, &river.InsertOpts{MaxAttempts: c.attempts})
				time.Sleep(3 * time.Second)
				if c.during != nil {
					c.during(t, b, job.ID)
				}
				b.Backdate(job.ID, 2*time.Hour)
				time.Sleep(2 * time.Minute)
				wantState(t, b, job.ID, c.state)
				hold.open()
				time.Sleep(10 * time.Second)
				wantState(t, b, job.ID, c.state) // what it returns changes nothing
				if delivered.Load() != 1 || returned.Load() != 1 {
					t.Errorf("delivered %d times, returned %d times, want once", delivered.Load(), returned.Load())
				}
			})
		})
	}
}

package riverruns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	"github.com/fencedrun/fencedrun/internal/services/private"
)

// The tests of this file show, on the real River and without our library, what
// the adapter relies on. One that fails says that the queue has changed: look
// at what the adapter makes of it before touching the test.

// hazard runs f in a bubble with a bench.
func hazard(t *testing.T, f func(t *testing.T, b *riverharness.Bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, riverharness.New(t, nil)) })
}

// gate holds handlers until it is opened.
type gate chan struct{}

func (g gate) wait() { <-g }
func (g gate) open() { close(g) }

// list collects what handlers of any worker saw.
type list[T any] struct {
	mu    sync.Mutex
	items []T
}

// add appends v and returns the length.
func (l *list[T]) add(v T) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, v)
	return len(l.items)
}

func (l *list[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}

func wantState[TTx any](t *testing.T, b *riverharness.BenchOf[TTx], id int64, want rivertype.JobState) *rivertype.JobRow {
	t.Helper()
	row := b.Row(id)
	if row == nil {
		t.Fatalf("job %d is gone, want %s", id, want)
	}
	if row.State != want {
		t.Fatalf("job %d is %s, want %s", id, row.State, want)
	}
	return row
}

// multi is the one error value that makes River leave the row alone: its
// executor asks the outermost error for these two methods.
type multi struct{ error }

func (multi) Jobs() []*rivertype.JobRow   { return nil }
func (multi) ErrorsByID() map[int64]error { return nil }

// staleReturns is what becomes of the row of delivery 2 when delivery 1 returns while 2 is at work.
var staleReturns = map[string]struct {
	stale     error
	state     rivertype.JobState // of the row, while delivery 2 is at work
	delivered int32              // in the end
	attempt   int                // of the row, while delivery 2 is at work
}{
	"nil completes it":            {nil, rivertype.JobStateCompleted, 2, 2},
	"JobCancel cancels it":        {river.JobCancel(errors.New("no")), rivertype.JobStateCancelled, 2, 2},
	"JobSnooze rewinds it":        {river.JobSnooze(time.Hour), rivertype.JobStateScheduled, 2, 0},
	"JobSnooze(0) starts a third": {river.JobSnooze(0), rivertype.JobStateRunning, 3, 1},
	"an error starts a third":     {errors.New("oops"), rivertype.JobStateRunning, 3, 3},
	"a multi error leaves it":     {multi{errors.New("stale")}, rivertype.JobStateRunning, 2, 2},
}

// Completion asks only whether the row is running, never which delivery made
// it so: what a stale delivery returns happens to the row of the newer one.
func TestHazardStaleReturnIsAppliedToTheRowOfTheNewerDelivery(t *testing.T) {
	for name := range staleReturns {
		t.Run(name, func(t *testing.T) { hazard(t, func(t *testing.T, b *riverharness.Bench) { returnStale(t, b, name) }) })
	}
}

func TestHazardStaleReturnOnPostgres(t *testing.T) {
	at := private.ServicePostgres.Need(t)
	for name := range staleReturns {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { returnStale(t, riverharness.NewOnPostgres(t, at, nil), name) })
		})
	}
}

func returnStale[TTx any](t *testing.T, b *riverharness.BenchOf[TTx], name string) {
	c := staleReturns[name]
	first, rest := make(gate), make(gate)
	var delivered atomic.Int32
	work := func(context.Context, *river.Job[riverharness.Args]) error {
		if delivered.Add(1) == 1 {
			first.wait()
			return c.stale
		}
		rest.wait()
		return nil
	}
	a := b.Start(nil, work)
	job := b.Insert(riverharness.Args{}, nil)
	time.Sleep(3 * time.Second)
	go func() { _ = a.Stop(context.Background()) }()
	time.Sleep(time.Second)
	b.Release(job.ID)
	b.Start(nil, work)
	time.Sleep(3 * time.Second)
	if n := delivered.Load(); n != 2 {
		t.Fatalf("delivered %d times, want 2 before the stale one returns", n)
	}

	first.open()
	time.Sleep(10 * time.Second)
	row := wantState(t, b, job.ID, c.state)
	if n := delivered.Load(); n != c.delivered {
		t.Errorf("delivered %d times, want %d", n, c.delivered)
	}
	if row.Attempt != c.attempt {
		t.Errorf("attempt = %d, want %d", row.Attempt, c.attempt)
	}
	rest.open()
	if name != "a multi error leaves it" {
		return
	}
	if len(row.Errors) != 0 {
		t.Errorf("errors %v: the row was touched", row.Errors)
	}
	time.Sleep(10 * time.Second)
	wantState(t, b, job.ID, rivertype.JobStateCompleted)
}

// A Worker.Middleware sits outside of every plugin and can hide the value.
func TestHazardWrappedMultiErrorIsAnOrdinaryError(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
			return fmt.Errorf("wrapped: %w", multi{errors.New("stale")})
		})
		job := b.Insert(riverharness.Args{}, &river.InsertOpts{MaxAttempts: 1})
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateDiscarded)
	})
}

func TestHazardJobSnoozeWinsAnywhereInTheChain(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
			return river.JobCancel(errors.Join(errors.New("x"), fmt.Errorf("y: %w", river.JobSnooze(time.Hour))))
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateScheduled)
	})
}

func TestHazardJobCancelIsVisibleWithItsText(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
			return river.JobCancel(errors.New("a reason"))
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(10 * time.Second)
		row := wantState(t, b, job.ID, rivertype.JobStateCancelled)
		if len(row.Errors) != 1 || !strings.Contains(row.Errors[0].Error, "a reason") {
			t.Errorf("errors = %v, want the reason", row.Errors)
		}
	})
}

func TestHazardAttemptRepeatsAfterSnooze(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var attempts list[int]
		var at []time.Time
		b.Start(nil, func(_ context.Context, job *river.Job[riverharness.Args]) error {
			n := attempts.add(job.Attempt)
			at = append(at, *job.AttemptedAt)
			if n < 3 {
				return river.JobSnooze(time.Second)
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(time.Minute)
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
		if got, want := fmt.Sprint(attempts.all()), "[1 1 1]"; got != want {
			t.Errorf("attempts = %s, want %s", got, want)
		}
		if !at[0].Before(at[1]) || !at[1].Before(at[2]) {
			t.Errorf("attempted_at = %v, want it growing", at)
		}
	})
}

func TestHazardReturnedCanceledOnSoftStopKeepsTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		wrap    func(error) error
		attempt int // of the second delivery
	}{
		"as it came":    {func(err error) error { return err }, 1},
		"wrapped":       {func(err error) error { return fmt.Errorf("w: %w", err) }, 1},
		"text only":     {func(err error) error { return errors.New(err.Error()) }, 2},
		"in JobCancel!": {river.JobCancel, 1},
	} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *riverharness.Bench) {
				var attempts list[int]
				work := func(ctx context.Context, job *river.Job[riverharness.Args]) error {
					n := attempts.add(job.Attempt)
					if n == 1 {
						<-ctx.Done()
						if errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely) {
							t.Error("a soft stop looks like a remote cancel")
						}
						return c.wrap(ctx.Err())
					}
					return nil
				}
				a := b.Start(nil, work)
				job := b.Insert(riverharness.Args{}, nil)
				time.Sleep(3 * time.Second)
				if err := a.StopAndCancel(context.Background()); err != nil {
					t.Fatal(err)
				}
				b.Start(nil, work)
				time.Sleep(20 * time.Second)
				if got, want := fmt.Sprint(attempts.all()), fmt.Sprintf("[1 %d]", c.attempt); got != want {
					t.Errorf("attempts = %s, want %s", got, want)
				}
				wantState(t, b, job.ID, rivertype.JobStateCompleted)
			})
		})
	}
}

func TestHazardRescueRedeliversWhileTheFirstHandlerLives(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		hold := make(gate)
		var attempts list[int]
		b.Start(&river.Config{JobTimeout: time.Minute, RescueStuckJobsAfter: time.Hour}, func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			n := attempts.add(job.Attempt)
			if n == 1 {
				hold.wait()
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(3 * time.Second)
		b.Backdate(job.ID, 2*time.Hour)
		time.Sleep(2 * time.Minute)
		if got, want := fmt.Sprint(attempts.all()), "[1 2]"; got != want {
			t.Errorf("attempts = %s, want %s while the first lives", got, want)
		}
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
		hold.open()
	})
}

func TestHazardJobWithoutTimeoutIsNeverRescued(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		hold := make(gate)
		var delivered atomic.Int32
		b.Start(&river.Config{JobTimeout: -1, RescueStuckJobsAfter: time.Hour}, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			delivered.Add(1)
			hold.wait()
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(3 * time.Second)
		b.Backdate(job.ID, 2*time.Hour)
		time.Sleep(2 * time.Minute)
		if n := delivered.Load(); n != 1 {
			t.Errorf("delivered %d times, want 1", n)
		}
		wantState(t, b, job.ID, rivertype.JobStateRunning)
		hold.open()
	})
}

func TestHazardJobRetryOfACompletedJobRedelivers(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var attempts list[int]
		b.Start(nil, func(_ context.Context, job *river.Job[riverharness.Args]) error {
			attempts.add(job.Attempt)
			return nil
		})
		job := b.Insert(riverharness.Args{}, &river.InsertOpts{MaxAttempts: 1})
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
		row, err := b.Client.JobRetry(context.Background(), job.ID)
		if err != nil {
			t.Fatal(err)
		}
		if row.MaxAttempts != 2 {
			t.Errorf("max attempts = %d, want one more than 1", row.MaxAttempts)
		}
		time.Sleep(10 * time.Second)
		if got, want := fmt.Sprint(attempts.all()), "[1 2]"; got != want {
			t.Errorf("attempts = %s, want %s", got, want)
		}
	})
}

func TestHazardJobRetryRunsACancelledJobAgain(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var delivered atomic.Int32
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
			if delivered.Add(1) == 1 {
				return river.JobCancel(errors.New("parked"))
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateCancelled)
		if _, err := b.Client.JobRetry(context.Background(), job.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
	})
}

func TestHazardRemoteCancelReplacesTheReturnedError(t *testing.T) {
	for name, c := range map[string]struct {
		returned error
		state    rivertype.JobState
	}{
		"nil completes":           {nil, rivertype.JobStateCompleted},
		"an error cancels":        {errors.New("x"), rivertype.JobStateCancelled},
		"even a snooze cancels":   {river.JobSnooze(time.Hour), rivertype.JobStateCancelled},
		"even our marker cancels": {multi{errors.New("stale")}, rivertype.JobStateCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *riverharness.Bench) {
				a := b.Start(nil, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely) {
						t.Errorf("cause = %v", context.Cause(ctx))
					}
					return c.returned
				})
				job := b.Insert(riverharness.Args{}, nil)
				time.Sleep(3 * time.Second)
				if _, err := a.JobCancel(context.Background(), job.ID); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				wantState(t, b, job.ID, c.state)
			})
		})
	}
}

package riverruns_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/runs"
)

// What the hazards of hazards_deliveries_test.go and hazards_rescue_test.go come to with the plugin.

func TestAFailedAttemptIsResumed(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
				var sent list[string]
				config := plugins(b.fenced)
				config.JobTimeout = 5 * time.Second
				b.Start(config, func(ctx context.Context, job *river.Job[riverharness.Args]) error {
					if err := note(ctx, "k", &sent); err != nil {
						return err
					}
					if got := runs.FromContext(ctx).Delivery(); got != int64(job.Attempt) {
						t.Errorf("delivery %d on attempt %d", got, job.Attempt)
					}
					if job.Attempt == 1 {
						return fail(ctx)
					}
					return note(ctx, "l", &sent)
				})
				job := b.Insert(args("a"), nil)
				time.Sleep(time.Minute)
				row := wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
				if got := strings.Join(sent.all(), " "); got != "k l" || row.Attempt != 2 {
					t.Errorf("sent %q in %d attempts, want k and l once in 2", got, row.Attempt)
				}
			})
		})
	}
}

// The rescuer ends the job of a live worker, and somebody retries it. The worker has done its work in
// the meantime, and is the only one that did.
func TestAJobThatRiverEndedUnderALiveWorkerIsDoneOnce(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	for name, c := range rescues {
		t.Run(name, func(t *testing.T) {
			fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
				if c.before != nil {
					c.before(t, b.Bench)
				}
				hold := make(gate)
				var entered atomic.Int32
				var sent list[string]
				b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
					if entered.Add(1) == 1 {
						hold.wait()
					}
					return note(context.WithoutCancel(ctx), "k", &sent)
				})
				result, err := b.Client.Insert(t.Context(), args("a"), &river.InsertOpts{MaxAttempts: c.attempts})
				if err != nil {
					t.Fatal(err)
				}
				job := result.Job
				time.Sleep(3 * time.Second)
				if c.during != nil {
					c.during(t, b.Bench, job.ID)
				}
				b.Backdate(job.ID, 2*time.Hour)
				time.Sleep(2 * time.Minute)
				wantState(t, b.Bench, job.ID, c.state)
				hold.open()
				time.Sleep(10 * time.Second)
				if _, err := b.Client.JobRetry(t.Context(), job.ID); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
				if got := sent.all(); len(got) != 1 || entered.Load() != 1 {
					t.Errorf("sent %v, entered %d times, want once each", got, entered.Load())
				}
				if end := b.runEnd(job.ID); end != "success" {
					t.Errorf("the run's end is %q, want success", end)
				}
			})
		})
	}
}

// The same, and somebody retries the job before the worker comes back: it is stale then.
func TestAJobRetriedUnderALiveWorkerIsDoneByTheNewerDelivery(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		hold := make(gate)
		var entered atomic.Int32
		var sent list[string]
		stale := make(chan error, 1)
		b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			if entered.Add(1) > 1 {
				return note(ctx, "k", &sent)
			}
			hold.wait()
			err := note(context.WithoutCancel(ctx), "k2", &sent)
			stale <- err
			return err
		})
		result, err := b.Client.Insert(t.Context(), args("a"), &river.InsertOpts{MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		job := result.Job
		time.Sleep(3 * time.Second)
		b.Backdate(job.ID, 2*time.Hour)
		time.Sleep(2 * time.Minute)
		wantState(t, b.Bench, job.ID, rivertype.JobStateDiscarded)
		if _, err := b.Client.JobRetry(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		hold.open()
		if err := <-stale; err == nil {
			t.Error("the first delivery made an effect after the second")
		}
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if got := strings.Join(sent.all(), " "); got != "k" {
			t.Errorf("sent %q, want k", got)
		}
	})
}

func TestTwoDeliveriesInOneProcessAreDoneOnce(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		first, second := make(gate), make(gate)
		var entered atomic.Int32
		var sent list[string]
		b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			if entered.Add(1) == 1 {
				first.wait()
				if err := note(context.WithoutCancel(ctx), "stale", &sent); err == nil {
					t.Error("the stale delivery made an effect")
				}
				return nil
			}
			second.wait()
			return note(ctx, "k", &sent)
		})
		job := b.Insert(args("a"), nil)
		time.Sleep(3 * time.Second)
		b.Release(job.ID)
		time.Sleep(3 * time.Second)
		first.open()
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateRunning)
		second.open()
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if got := strings.Join(sent.all(), " "); got != "k" || entered.Load() != 2 {
			t.Errorf("sent %q in %d deliveries, want k in 2", got, entered.Load())
		}
	})
}

// River stores what a delivery recorded together with what it returned. A stale one's goes nowhere.
func TestTheOutputOfAStaleDeliveryIsNotStored(t *testing.T) {
	for name, staleFirst := range map[string]bool{"while the current one works": true, "after the current one has ended": false} {
		t.Run(name, func(t *testing.T) {
			fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
				stale, current := make(gate), make(gate)
				var entered atomic.Int32
				b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
					if entered.Add(1) == 1 {
						stale.wait()
						return river.RecordOutput(ctx, "stale")
					}
					current.wait()
					return river.RecordOutput(ctx, "current")
				})
				job := b.Insert(args("a"), nil)
				time.Sleep(3 * time.Second)
				b.Release(job.ID)
				time.Sleep(3 * time.Second)
				order := []gate{current, stale}
				if staleFirst {
					order = []gate{stale, current}
				}
				for _, g := range order {
					g.open()
					time.Sleep(10 * time.Second)
				}
				row := wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
				if got := metadata(t, row)["output"]; got != "current" {
					t.Errorf("output %v, want that of the current delivery", got)
				}
			})
		})
	}
}

// River's JobCompleteTx says nothing when the rescuer has taken the job; what was written beside it
// would be committed, and the job would be delivered again.
func TestCompleteTxOfARescuedJobIsAnError(t *testing.T) {
	together(t, func(t *testing.T, b *bench) {
		var errs list[string]
		b.start(func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			if job.Attempt == 1 {
				rescue(b.Bench, job.ID)
			}
			err := b.pay(ctx, job, func(commit, _ func() error) error { return commit() })
			if err != nil {
				errs.add(err.Error())
			}
			return err
		})
		row := b.Insert(args("a"), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantState(t, b.Bench, row.ID, rivertype.JobStateCompleted)
		if got := errs.all(); len(got) != 1 || !strings.Contains(got[0], "is retryable, no longer running") {
			t.Errorf("errors %q, want one that says what became of the job", got)
		}
		if n := b.credits(); n != 1 {
			t.Errorf("%d credits, want 1", n)
		}
	})
}

// SQLite without its AUTOINCREMENT, a restored backup, a truncated table: River gives the same id to
// other work, which may look the same. The stamp of the insert tells the two apart.
func TestAnIDThatRiverUsesAgainIsANewJob(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		var entered atomic.Int32
		b.start(func(context.Context, *river.Job[riverharness.Args]) error {
			entered.Add(1)
			return nil
		})
		first := b.Insert(args("a"), nil)
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, first.ID, rivertype.JobStateCompleted)
		b.Exec(`DELETE FROM river_job`)
		b.Exec(`DELETE FROM sqlite_sequence`)
		second := b.Insert(args("a"), nil)
		if second.ID != first.ID {
			t.Fatalf("ids %d and %d", first.ID, second.ID)
		}
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, second.ID, rivertype.JobStateCompleted)
		if n := entered.Load(); n != 2 {
			t.Errorf("entered %d times, want once for each job", n)
		}
	})
}

// The worker was told to stop and obeys; the attempt is not spent, and its number comes again.
func TestASoftStopKeepsTheAttemptAndTheRunCounts(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		var sent list[string]
		var deliveries, attempts list[int]
		work := func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			attempts.add(job.Attempt)
			if err := note(ctx, "k", &sent); err != nil {
				return err
			}
			if deliveries.add(int(runs.FromContext(ctx).Delivery())) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		a := b.start(work)
		job := b.Insert(args("a"), nil)
		time.Sleep(3 * time.Second)
		if err := a.StopAndCancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantState(t, b.Bench, job.ID, rivertype.JobStateAvailable)
		b.start(work)
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		d, n := deliveries.all(), attempts.all()
		if len(d) != 2 || d[1] != 2 || n[0] != 1 || n[1] != 1 || len(sent.all()) != 1 {
			t.Errorf("deliveries %v of attempts %v sent %v, want 1 and 2 of attempt 1, and k once", d, n, sent.all())
		}
	})
}

package riverruns_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/services/private"
)

// What makes River deliver a job again, and what it leaves behind, as in hazards_test.go: without our
// library, on the real River.

// failures are what spends an attempt.
var failures = map[string]func(ctx context.Context) error{
	"an error": func(context.Context) error { return errors.New("oops") },
	"a panic":  func(context.Context) error { panic("oops") },
	"a timeout": func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	},
}

func TestHazardFailureSpendsAnAttemptAndIsOverBeforeTheNext(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *riverharness.Bench) {
				var attempts list[int]
				var live atomic.Int32
				b.Start(&river.Config{JobTimeout: 5 * time.Second}, func(ctx context.Context, job *river.Job[riverharness.Args]) error {
					if n := live.Add(1); n > 1 {
						t.Errorf("%d deliveries live", n)
					}
					defer live.Add(-1)
					if attempts.add(job.Attempt) == 1 {
						return fail(ctx)
					}
					return nil
				})
				job := b.Insert(riverharness.Args{}, nil)
				time.Sleep(time.Minute)
				row := wantState(t, b, job.ID, rivertype.JobStateCompleted)
				if got := fmt.Sprint(attempts.all()); got != "[1 2]" || len(row.Errors) != 1 {
					t.Errorf("attempts %s, errors %v, want [1 2] and one", got, row.Errors)
				}
			})
		})
	}
}

// metadata is the job's, without what River needs on SQLite.
func metadata(t *testing.T, row *rivertype.JobRow) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(row.Metadata, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "river:unique_nonce")
	return m
}

func TestHazardSnoozeRewindsTheAttemptAndCountsItself(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error { return river.JobSnooze(time.Hour) })
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(10 * time.Second)
		row := wantState(t, b, job.ID, rivertype.JobStateScheduled)
		if got := fmt.Sprint(metadata(t, row)); row.Attempt != 0 || len(row.Errors) != 0 || got != "map[snoozes:1]" {
			t.Errorf("attempt %d, errors %v, metadata %s", row.Attempt, row.Errors, got)
		}
	})
}

func TestHazardSnoozeBelowZeroPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it does not")
		}
	}()
	_ = river.JobSnooze(-1)
}

func TestHazardSoftStopLeavesNoTrace(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		a := b.Start(nil, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			<-ctx.Done()
			return ctx.Err()
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(3 * time.Second)
		if err := a.StopAndCancel(context.Background()); err != nil {
			t.Fatal(err)
		}
		row := wantState(t, b, job.ID, rivertype.JobStateAvailable)
		if m := metadata(t, row); row.Attempt != 0 || len(row.Errors) != 0 || len(m) != 0 {
			t.Errorf("attempt %d, errors %v, metadata %v, want as new", row.Attempt, row.Errors, m)
		}
	})
}

func TestHazardJobRetryOfADiscardedJobGivesItOneMoreAttempt(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var attempts list[int]
		b.Start(nil, func(_ context.Context, job *river.Job[riverharness.Args]) error {
			if attempts.add(job.Attempt) == 1 {
				return errors.New("oops")
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, &river.InsertOpts{MaxAttempts: 1})
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateDiscarded)
		row, err := b.Client.JobRetry(context.Background(), job.ID)
		if err != nil || row.MaxAttempts != 2 {
			t.Fatalf("max attempts %v, %v, want 2", row, err)
		}
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
		if got := fmt.Sprint(attempts.all()); got != "[1 2]" {
			t.Errorf("attempts %s, want [1 2]", got)
		}
	})
}

// What a run leaves in the job's metadata outlives a JobRetry.
func TestHazardJobRetryKeepsTheOldOutput(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var delivered atomic.Int32
		b.Start(nil, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			if delivered.Add(1) == 1 {
				return river.RecordOutput(ctx, "first")
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(10 * time.Second)
		if _, err := b.Client.JobRetry(context.Background(), job.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		row := wantState(t, b, job.ID, rivertype.JobStateCompleted)
		if got := metadata(t, row)["output"]; got != "first" || delivered.Load() != 2 {
			t.Errorf("output %v after %d deliveries", got, delivered.Load())
		}
	})
}

// Once a worker is lost with its running job, only the rescuer frees the row.
func TestHazardNoCallFreesARunningJob(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		hold := make(gate)
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
			hold.wait()
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(3 * time.Second)
		ctx := context.Background()
		for name, call := range map[string]func() error{
			"JobRetry": func() error {
				_, err := b.Client.JobRetry(ctx, job.ID)
				return err
			},
			"JobCancel": func() error {
				_, err := b.Client.JobCancel(ctx, job.ID)
				return err
			},
			"JobDelete": func() error {
				if _, err := b.Client.JobDelete(ctx, job.ID); !errors.Is(err, rivertype.ErrJobRunning) {
					return fmt.Errorf("%w, want ErrJobRunning", err)
				}
				return nil
			},
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(10 * time.Second)
			wantState(t, b, job.ID, rivertype.JobStateRunning)
		}
		hold.open()
	})
}

func TestHazardJobCancelOfAWaitingJobIsFinalAtOnce(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		job := b.Insert(riverharness.Args{}, nil)
		if _, err := b.Client.JobCancel(context.Background(), job.ID); err != nil {
			t.Fatal(err)
		}
		wantState(t, b, job.ID, rivertype.JobStateCancelled)
	})
}

// Between the two the process may die, and a job that was done is delivered again.
func TestHazardCompletionIsWrittenAWhileAfterTheWorkerReturned(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		returned := make(chan struct{})
		b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
			defer close(returned)
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		<-returned
		synctest.Wait()
		wantState(t, b, job.ID, rivertype.JobStateRunning)
		time.Sleep(time.Second)
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
	})
}

// One process keeps its executors by job id. When two of one job are at work, the first to end takes
// the entry of the other with it.
func TestHazardOneProcessMayHoldTwoDeliveriesAndForgetOne(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		first, second := make(gate), make(gate)
		var delivered atomic.Int32
		var cancelled atomic.Bool
		a := b.Start(nil, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			if delivered.Add(1) == 1 {
				first.wait()
				return multi{errors.New("stale")}
			}
			select {
			case <-ctx.Done():
				cancelled.Store(true)
			case <-second:
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(3 * time.Second)
		b.Release(job.ID)
		time.Sleep(3 * time.Second)
		if n := delivered.Load(); n != 2 {
			t.Fatalf("delivered %d times, want twice to one process", n)
		}
		first.open()
		time.Sleep(3 * time.Second)
		if _, err := a.JobCancel(context.Background(), job.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if cancelled.Load() {
			t.Error("JobCancel reached the second delivery: River keeps both now")
		}
		wantState(t, b, job.ID, rivertype.JobStateRunning)
		second.open()
	})
}

func TestHazardStopDoesNotWaitForADeliveryThatWasForgotten(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		first, second := make(gate), make(gate)
		var delivered, returned atomic.Int32
		a := b.Start(nil, func(context.Context, *river.Job[riverharness.Args]) error {
			if delivered.Add(1) == 1 {
				first.wait()
			} else {
				second.wait()
			}
			returned.Add(1)
			return multi{errors.New("stale")}
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(3 * time.Second)
		b.Release(job.ID)
		time.Sleep(3 * time.Second)
		first.open()
		time.Sleep(3 * time.Second)
		stopped := make(chan struct{})
		go func() {
			_ = a.Stop(context.Background())
			close(stopped)
		}()
		time.Sleep(10 * time.Second)
		select {
		case <-stopped:
		default:
			t.Error("Stop waits for the second delivery: River keeps both now")
		}
		if delivered.Load() != 2 || returned.Load() != 1 {
			t.Errorf("delivered %d times, returned %d times, want 2 and 1", delivered.Load(), returned.Load())
		}
		second.open()
	})
}

func TestHazardAttemptedByStopsAtAHundred(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var seen list[int]
		b.Start(&river.Config{FetchPollInterval: 100 * time.Millisecond, FetchCooldown: 100 * time.Millisecond}, func(_ context.Context, job *river.Job[riverharness.Args]) error {
			if seen.add(len(job.AttemptedBy)) < 103 {
				return river.JobSnooze(0)
			}
			return nil
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(3 * time.Minute)
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
		if got := seen.all(); len(got) != 103 || slices.Max(got) != 100 {
			t.Errorf("%d deliveries, attempted_by up to %d, want 103 and 100", len(got), slices.Max(got))
		}
	})
}

func TestHazardIDsGrowAndAreNotReused(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { hazard(t, notReused) })
	t.Run("postgres", func(t *testing.T) {
		at := private.ServicePostgres.Need(t)
		synctest.Test(t, func(t *testing.T) { notReused(t, riverharness.NewOnPostgres(t, at, nil)) })
	})
}

func notReused[TTx any](t *testing.T, b *riverharness.BenchOf[TTx]) {
	first := b.Insert(riverharness.Args{}, nil)
	if _, err := b.Client.JobDelete(context.Background(), first.ID); err != nil {
		t.Fatal(err)
	}
	if second := b.Insert(riverharness.Args{}, nil); second.ID <= first.ID {
		t.Errorf("ids %d, %d, the first of which was deleted: want the second larger", first.ID, second.ID)
	}
}

// The counterpart of TestHazardJobCompleteTxOfAStaleDeliveryIsNoError: the job was rescued, and nobody
// has fetched it yet.
func TestHazardJobCompleteTxOfARescuedJobIsNoErrorEither(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var delivered atomic.Int32
		b.Start(nil, func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			if delivered.Add(1) > 1 {
				return nil
			}
			rescue(b, job.ID)
			tx, err := b.DB.Begin()
			if err != nil {
				return err
			}
			done, err := river.JobCompleteTx[*riversqlite.Driver](ctx, tx, job)
			if err != nil || done.State != rivertype.JobStateRetryable {
				t.Errorf("%v, %v, want the row as it is, retryable, and no error", done, err)
			}
			return tx.Commit()
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(time.Minute)
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
		if n := delivered.Load(); n != 2 {
			t.Errorf("delivered %d times, want 2", n)
		}
	})
}

// rescue does to the row of a running job what the rescuer does.
func rescue(b *riverharness.Bench, id int64) {
	b.Exec(`UPDATE river_job SET state = 'retryable', scheduled_at = $1 WHERE id = $2 AND state = 'running'`,
		time.Now().Add(time.Second).UTC().Format("2006-01-02 15:04:05.000"), id)
}

// The adapter warns of attempts that outlast the ledger's memory; it reckons with this.
func TestHazardDefaultRetriesAreTwentyFiveInThreeWeeks(t *testing.T) {
	if river.MaxAttemptsDefault != 25 {
		t.Errorf("%d attempts by default, want 25", river.MaxAttemptsDefault)
	}
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		row := &rivertype.JobRow{}
		var sum time.Duration
		for n := 1; n < river.MaxAttemptsDefault; n++ {
			got := time.Until((&river.DefaultClientRetryPolicy{}).NextRetry(row))
			want := time.Duration(n*n*n*n) * time.Second
			if got < want*9/10-time.Second || got > want*11/10+time.Second {
				t.Errorf("after error %d: %v, want %v give or take a tenth", n, got, want)
			}
			sum += got
			row.Errors = append(row.Errors, rivertype.AttemptError{})
		}
		if sum < 18*24*time.Hour || sum > 23*24*time.Hour {
			t.Errorf("%v in all, want about three weeks", sum)
		}
	})
}

func TestHazardFinishedRowsAreDeletedLongBeforeTheLedgerForgets(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		b.Start(nil, func(_ context.Context, job *river.Job[riverharness.Args]) error {
			if strings.HasPrefix(job.Args.Name, "discarded") {
				return errors.New("oops")
			}
			return nil
		})
		ids := map[string]int64{}
		for name, age := range map[string]time.Duration{
			"completed 23 h": 23 * time.Hour, "completed 25 h": 25 * time.Hour,
			"discarded 6 d": 6 * 24 * time.Hour, "discarded 8 d": 8 * 24 * time.Hour,
		} {
			job := b.Insert(riverharness.Args{Name: name}, &river.InsertOpts{MaxAttempts: 1})
			ids[name] = job.ID
			time.Sleep(10 * time.Second)
			b.Exec(`UPDATE river_job SET finalized_at = $1 WHERE id = $2`, time.Now().Add(-age).UTC().Format("2006-01-02 15:04:05.000"), job.ID)
		}
		time.Sleep(2 * time.Minute) // the cleaner comes every half minute
		for name, id := range ids {
			gone := b.Row(id) == nil
			if want := strings.HasSuffix(name, "25 h") || strings.HasSuffix(name, "8 d"); gone != want {
				t.Errorf("%s: gone %v, want %v", name, gone, want)
			}
		}
	})
}

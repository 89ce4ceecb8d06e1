package riverruns_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// together runs f with the queue, the ledger and the service's table in one database.
func together(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "all.db")
		store, err := sqliteledger.OpenSeamed(t.Context(), path, nil, seam.Real())
		if err != nil {
			t.Fatal(err)
		}
		keeper, err := runs.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = keeper.Close() })
		p := newPlugin(t, keeper, riverruns.Config{Inbound: riverruns.FromArgs, Reads: runs.AfterBegin})
		b := &bench{Bench: riverharness.NewIn(t, path, plugins(p)), keeper: keeper, fenced: p}
		b.Exec("create table credit (who text)") // no unique key: it would hide a duplicate
		f(t, b)
	})
}

func (b *bench) credits() (n int) {
	b.T.Helper()
	if err := b.DB.QueryRow("select count(*) from credit").Scan(&n); err != nil {
		b.T.Fatal(err)
	}
	return n
}

// pay credits, and completes the job, in one transaction that end finishes.
func (b *bench) pay(ctx context.Context, job *river.Job[riverharness.Args], end func(commit, rollback func() error) error) error {
	tx, err := b.DB.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	err = runs.FromContext(ctx).OnceTx(ctx, tx, runs.Effect{Intent: "credit", Key: runs.ID(job.Args.Name)}, func(ctx context.Context, _ *runs.Call) error {
		_, err := tx.ExecContext(ctx, "insert into credit values (?)", job.Args.Name)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := riverruns.CompleteTx[*riversqlite.Driver](ctx, tx, job); err != nil {
		return err
	}
	return end(tx.Commit, tx.Rollback)
}

func TestTheJobItsEffectAndItsRunCommitTogether(t *testing.T) {
	crashed := errors.New("crashed")
	for name, c := range map[string]struct {
		end     func(commit, rollback func() error) error // of the first delivery
		entered int
	}{
		"commit":                {func(commit, _ func() error) error { return commit() }, 1},
		"crash after commit":    {func(commit, _ func() error) error { return errors.Join(commit(), crashed) }, 1},
		"crash before commit":   {func(_, rollback func() error) error { return errors.Join(rollback(), crashed) }, 2},
		"rollback, but no word": {func(_, rollback func() error) error { return rollback() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			together(t, func(t *testing.T, b *bench) {
				entered := 0
				b.start(func(ctx context.Context, job *river.Job[riverharness.Args]) error {
					entered++
					if entered > 1 {
						return b.pay(ctx, job, func(commit, _ func() error) error { return commit() })
					}
					return b.pay(ctx, job, c.end)
				})
				row := b.Insert(args("a"), nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := b.Row(row.ID); got.State != rivertype.JobStateCompleted {
					t.Errorf("the job is %s", got.State)
				}
				if entered != c.entered {
					t.Errorf("the worker was entered %d times, want %d", entered, c.entered)
				}
				want := 1
				if name == "rollback, but no word" {
					want = 0 // nothing was done, and the worker said that it was
				}
				if n := b.credits(); n != want {
					t.Errorf("%d credits, want %d", n, want)
				}
			})
		})
	}
}

func TestAReplacedDeliveryCannotCompleteTheJob(t *testing.T) {
	together(t, func(t *testing.T, b *bench) {
		var stale error
		first, second := make(chan struct{}), make(chan struct{})
		entered := 0
		b.start(func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			entered++
			commit := func(commit, _ func() error) error { return commit() }
			if entered == 1 {
				close(first)
				<-second
				// River's own function would complete the job under the newer delivery.
				tx, err := b.DB.Begin()
				if err != nil {
					return err
				}
				if _, stale = riverruns.CompleteTx[*riversqlite.Driver](context.WithoutCancel(ctx), tx, job); stale != nil {
					return errors.Join(stale, tx.Rollback())
				}
				return tx.Commit()
			}
			close(second)
			time.Sleep(10 * time.Second) // at work while the other one wants to complete it
			return b.pay(ctx, job, commit)
		})
		row := b.Insert(args("a"), nil)
		<-first
		b.Release(row.ID)
		time.Sleep(time.Minute)
		synctest.Wait()
		if refused, ok := errors.AsType[*runs.RefusedError](stale); !ok || refused.Reason != "superseded" {
			t.Errorf("%v", stale)
		}
		if got := b.Row(row.ID); got.State != rivertype.JobStateCompleted || b.credits() != 1 || entered != 2 {
			t.Errorf("the job is %s, %d credits, entered %d times", got.State, b.credits(), entered)
		}
	})
}

func TestCompleteTxIsForTheJobInHand(t *testing.T) {
	together(t, func(t *testing.T, b *bench) {
		var errs []string
		b.start(func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			tx, err := b.DB.Begin()
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			other := *job.JobRow
			other.ID = 77
			for _, try := range []func() error{
				func() error {
					_, err := riverruns.CompleteTx[*riversqlite.Driver](ctx, tx, &river.Job[riverharness.Args]{JobRow: &other})
					return err
				},
				func() error {
					_, err := riverruns.CompleteTx[*riversqlite.Driver, riverharness.Tx, riverharness.Args](ctx, tx, nil)
					return err
				},
				func() error {
					_, err := riverruns.CompleteTx[*riversqlite.Driver](context.WithoutCancel(t.Context()), tx, job)
					return err
				},
			} {
				errs = append(errs, try().Error())
			}
			return nil
		})
		b.Insert(args("a"), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{
			"fencedrun: riverruns: CompleteTx: job 77 in the run of job 1",
			"fencedrun: riverruns: CompleteTx: job is nil",
			"fencedrun: refused: no_run",
		}
		for i, w := range want {
			if i >= len(errs) || !strings.HasPrefix(errs[i], w) {
				t.Errorf("want %q, got %q", w, errs)
				break
			}
		}
	})
}

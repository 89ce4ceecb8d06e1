package riverruns_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// SweepArgs make a job that asks the providers about unknown outcomes. It belongs to no conversation, so it has no method
// Conversation.
type SweepArgs struct{}

func (SweepArgs) Kind() string { return "fencedrun_sweep" }

// InsertOpts makes one attempt, because the next sweep is the better retry, and keeps sweeps from queueing up.
func (SweepArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByPeriod: sweepEvery}}
}

const sweepEvery = 5 * time.Minute

// SweepWorker works them.
type SweepWorker struct {
	river.WorkerDefaults[SweepArgs]

	Keeper *runs.Keeper
}

// Timeout is long, because a sweep asks about one effect after the other. What is not asked by then comes with the next sweep.
func (*SweepWorker) Timeout(*river.Job[SweepArgs]) time.Duration { return sweepEvery }

// Work implements river.Worker.
func (w *SweepWorker) Work(ctx context.Context, _ *river.Job[SweepArgs]) error {
	swept, err := w.Keeper.Sweep(ctx)
	if err != nil {
		return err
	}
	return river.RecordOutput(ctx, swept) // for those who look at the job
}

// A periodic job asks about unknown outcomes. Here the ledger has one refund whose answer was lost.
func ExamplePlugin_sweep() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "riverruns"))
	defer os.RemoveAll(dir)
	db := must(sql.Open("sqlite", "file:"+filepath.Join(dir, "river.db")))
	defer db.Close()
	db.SetMaxOpenConns(1)
	quiet := slog.New(slog.DiscardHandler)
	migrator := must(rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: quiet}))
	must(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))

	keeper := refundInDoubt() // for runs.New(ledger, &runs.Config{Intents: []runs.Declared{refund}})
	defer keeper.Close()
	fenced := must(riverruns.NewPlugin(keeper, &riverruns.Config{
		Inbound:  riverruns.FromArgs,
		Reads:    runs.AfterBegin,
		Unfenced: true, // the sweep has no conversation
	}))

	workers := river.NewWorkers()
	river.AddWorker(workers, &SweepWorker{Keeper: keeper})
	config := &river.Config{
		FetchCooldown: 5 * time.Millisecond,
		Logger:        quiet,
		// The elected leader inserts them, so all clients have them.
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(
			river.PeriodicInterval(sweepEvery),
			func() (river.JobArgs, *river.InsertOpts) { return SweepArgs{}, nil },
			&river.PeriodicJobOpts{ID: "fencedrun_sweep", RunOnStart: true},
		)},
		Plugins:  []rivertype.Plugin{fenced},
		Queues:   map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		TestOnly: true,
		Workers:  workers,
	}
	if err := fenced.Check(config); err != nil {
		panic(err)
	}
	client := must(river.NewClient(riversqlite.New(db), config))
	done, unsubscribe := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed)
	defer unsubscribe()
	if err := client.Start(ctx); err != nil {
		panic(err)
	}
	event := <-done
	fmt.Println(event.Kind, event.Job.Kind, string(event.Job.Output()))
	if err := client.Stop(ctx); err != nil {
		panic(err)
	}
	// Output: job_completed fencedrun_sweep {"asked":1,"applied":1,"not_applied":0,"unknown":0,"not_yet":0,"no_probe":0}
}

// refundInDoubt returns a keeper over a ledger with a refund of which nobody knows that it was made. The quiet period is over.
func refundInDoubt() *runs.Keeper {
	made := map[string]bool{}
	refund := runs.Intent[string]{
		Name: "refund",
		Probe: func(_ context.Context, q runs.Question) (runs.Found[string], error) {
			if made[q.IdempotencyKey] {
				return runs.Applied("re_1", "re_1"), nil
			}
			return runs.NotFound[string](), nil
		},
	}
	k := runstest.NewKeeper(exampleT{}, &runs.Config{Intents: []runs.Declared{refund}})
	_, _ = refund.OnceOn(context.Background(), k.Keeper, "thread-7", runs.Key("order", "A-1"), func(_ context.Context, call *runs.Call) (string, error) {
		made[call.IdempotencyKey] = true
		return "", errors.New("connection reset by peer")
	})
	k.Advance(5 * time.Minute)
	return k.Keeper
}

// exampleT is what runstest needs of a test.
type exampleT struct{}

func (exampleT) Helper()                           {}
func (exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (exampleT) FailNow()                          { panic("failed") }
func (exampleT) Cleanup(func())                    {}

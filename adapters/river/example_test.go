package riverruns_test

import (
	"context"
	"database/sql"
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
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// must is for examples: a program handles its errors.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// AnswerArgs say what the job works on.
type AnswerArgs struct {
	Thread   string   `json:"thread"`
	Messages []string `json:"messages"`
}

func (AnswerArgs) Kind() string           { return "answer" }
func (a AnswerArgs) Conversation() string { return a.Thread }
func (a AnswerArgs) Inbound() []string    { return a.Messages }

// A support bot whose worker answers all open messages of a thread, once.
func Example() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "riverruns"))
	defer os.RemoveAll(dir)
	db := must(sql.Open("sqlite", "file:"+filepath.Join(dir, "river.db")))
	defer db.Close()
	db.SetMaxOpenConns(1)
	quiet := slog.New(slog.DiscardHandler)
	migrator := must(rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: quiet}))
	must(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))

	keeper := must(runs.New(memledger.New(), nil)) // use a ledger that outlives the process
	defer keeper.Close()
	fenced := must(riverruns.NewPlugin(keeper, &riverruns.Config{
		Inbound: riverruns.FromArgs,
		Reads:   runs.AfterBegin,
	}))

	done := make(chan struct{})
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[AnswerArgs]) error {
		defer close(done)
		return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
			open := view.OpenIDs()
			if len(open) == 0 {
				return nil
			}
			reply := runs.Effect{Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open}
			return runs.FromContext(ctx).Once(ctx, reply, func(_ context.Context, call *runs.Call) error {
				fmt.Println("answering", open, "- call", call.Number)
				return nil
			})
		})
	}))
	config := &river.Config{
		FetchCooldown: 5 * time.Millisecond,
		Logger:        quiet,
		Plugins:       []rivertype.Plugin{fenced},
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		TestOnly:      true,
		Workers:       workers,
	}
	if err := fenced.Check(config); err != nil {
		panic(err)
	}
	client := must(river.NewClient(riversqlite.New(db), config))
	if err := client.Start(ctx); err != nil {
		panic(err)
	}
	must(client.Insert(ctx, AnswerArgs{Thread: "thread-7", Messages: []string{"m1", "m2"}}, nil))
	<-done
	if err := client.Stop(ctx); err != nil {
		panic(err)
	}
	// Output: answering [m1 m2] - call 1
}

// Check is called before the client is made.
func ExamplePlugin_Check() {
	keeper := must(runs.New(memledger.New(), nil))
	defer keeper.Close()
	fenced := must(riverruns.NewPlugin(keeper, &riverruns.Config{Inbound: riverruns.NoInbound, Reads: runs.AfterBegin}))
	fmt.Println(fenced.Check(&river.Config{Plugins: []rivertype.Plugin{fenced}, MaxAttempts: 40}))
	// Output: fencedrun: riverruns: the client's Config.MaxAttempts is 40: with River's default retry policy its last attempt comes after the keeper's Config.Retention (720h0m0s), which covers 26
}

// A choice that has no default is asked for when the plugin is made.
func ExampleNewPlugin() {
	keeper := must(runs.New(memledger.New(), nil))
	defer keeper.Close()
	_, err := riverruns.NewPlugin(keeper, &riverruns.Config{Reads: runs.AfterBegin})
	fmt.Println(err)
	// Output: fencedrun: riverruns: Config.Inbound is not chosen: FromArgs, NoInbound or an InboundFunc
}

// A program that only inserts jobs needs no ledger.
func ExampleStamper() {
	stamper := must(riverruns.NewStamper(&riverruns.Config{Inbound: riverruns.FromArgs, Reads: runs.AfterBegin}))
	config := &river.Config{Plugins: []rivertype.Plugin{stamper}}
	fmt.Println(len(config.Plugins))
	// Output: 1
}

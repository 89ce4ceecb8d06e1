package riverruns_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
)

// spy is a plugin that calls back from every place the adapter uses.
type spy struct {
	river.PluginDefaults
	work    func(ctx context.Context, job *rivertype.JobRow, inner func(context.Context) error) error
	end     func(ctx context.Context, job *rivertype.JobRow, err error) error
	begin   func(ctx context.Context, params *rivertype.JobInsertParams) error
	results func(results []*rivertype.JobInsertResult)
}

func (s *spy) Work(ctx context.Context, job *rivertype.JobRow, inner func(context.Context) error) error {
	if s.work == nil {
		return inner(ctx)
	}
	return s.work(ctx, job, inner)
}

func (s *spy) WorkEnd(ctx context.Context, job *rivertype.JobRow, err error) error {
	if s.end == nil {
		return err
	}
	return s.end(ctx, job, err)
}

func (s *spy) InsertBegin(ctx context.Context, params *rivertype.JobInsertParams) error {
	if s.begin == nil {
		return nil
	}
	return s.begin(ctx, params)
}

func (s *spy) InsertMany(ctx context.Context, _ []*rivertype.JobInsertParams, inner func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	results, err := inner(ctx)
	if s.results != nil {
		s.results(results)
	}
	return results, err
}

func plugins(list ...rivertype.Plugin) *river.Config { return &river.Config{Plugins: list} }

func TestHazardPanicUnwindsThroughThePlugin(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var unwound bool
		b.Start(plugins(&spy{work: func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
			defer func() { unwound = true }()
			return inner(ctx)
		}}), func(context.Context, *river.Job[riverharness.Args]) error { panic("kaboom") })
		job := b.Insert(riverharness.Args{}, &river.InsertOpts{MaxAttempts: 1})
		time.Sleep(10 * time.Second)
		row := wantState(t, b, job.ID, rivertype.JobStateDiscarded)
		if !unwound {
			t.Error("the plugin's defer did not run")
		}
		if len(row.Errors) != 1 || row.Errors[0].Error != "kaboom" || !strings.Contains(row.Errors[0].Trace, "hazards_plugin_test.go") {
			t.Errorf("errors = %+v, want the panic and its place", row.Errors)
		}
	})
}

func TestHazardOnlyTheWorkEndHookSeesTheJobsDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		timeout  time.Duration
		deadline bool
	}{"with a timeout": {time.Minute, true}, "Timeout -1": {-1, false}} {
		t.Run(name, func(t *testing.T) {
			hazard(t, func(t *testing.T, b *riverharness.Bench) {
				var middleware, hook, handler bool
				config := plugins(&spy{
					work: func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
						_, middleware = ctx.Deadline()
						return inner(ctx)
					},
					end: func(ctx context.Context, _ *rivertype.JobRow, err error) error {
						_, hook = ctx.Deadline()
						return err
					},
				})
				config.JobTimeout = c.timeout
				b.Start(config, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
					_, handler = ctx.Deadline()
					return nil
				})
				b.Insert(riverharness.Args{}, nil)
				time.Sleep(10 * time.Second)
				if middleware || hook != c.deadline || handler != c.deadline {
					t.Errorf("deadline seen by middleware %v, hook %v, handler %v; want false, %v, %v", middleware, hook, handler, c.deadline, c.deadline)
				}
			})
		})
	}
}

// wrapping is a worker with its own middleware.
type wrapping struct {
	river.WorkerDefaults[riverharness.Args]
	wrap func(ctx context.Context, inner func(context.Context) error) error
	work func(ctx context.Context, job *river.Job[riverharness.Args]) error
}

func (w *wrapping) Work(ctx context.Context, job *river.Job[riverharness.Args]) error {
	return w.work(ctx, job)
}

func (w *wrapping) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware {
	return []rivertype.WorkerMiddleware{river.WorkerMiddlewareFunc(
		func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
			return w.wrap(ctx, inner)
		})}
}

func TestHazardWorkerMiddlewareIsOutsideOfAllPlugins(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		var order []string
		note := func(word string) *spy {
			return &spy{work: func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
				order = append(order, word)
				return inner(ctx)
			}}
		}
		config := plugins(note("first plugin"), note("second plugin"))
		config.Middleware = []rivertype.Middleware{note("middleware")}
		b.StartWorker(config, &wrapping{
			wrap: func(ctx context.Context, inner func(context.Context) error) error {
				order = append(order, "worker")
				return inner(ctx)
			},
			work: func(context.Context, *river.Job[riverharness.Args]) error { return nil },
		})
		b.Insert(riverharness.Args{}, nil)
		time.Sleep(10 * time.Second)
		if got, want := strings.Join(order, ", "), "worker, first plugin, second plugin, middleware"; got != want {
			t.Errorf("order = %s, want %s", got, want)
		}
	})
}

func TestHazardInsertBeginStampsMetadataThatReachesTheWorker(t *testing.T) {
	stamp := &spy{begin: func(_ context.Context, params *rivertype.JobInsertParams) error {
		args, ok := params.Args.(riverharness.Args)
		if !ok {
			t.Errorf("Args is a %T", params.Args)
		}
		var m map[string]any
		if err := json.Unmarshal(params.Metadata, &m); err != nil {
			t.Errorf("Metadata %q: %v", params.Metadata, err)
		}
		m["stamp"] = args.Thread
		var err error
		params.Metadata, err = json.Marshal(m)
		return err
	}}
	type client = *river.Client[*sql.Tx]
	ctx := context.Background()
	args := riverharness.Args{Thread: "c1"}
	opts := &river.InsertOpts{Metadata: []byte(`{"theirs":1}`)}
	for name, insert := range map[string]func(c client, b *riverharness.Bench) error{
		"Insert": func(c client, _ *riverharness.Bench) error {
			_, err := c.Insert(ctx, args, opts)
			return err
		},
		"InsertTx": func(c client, b *riverharness.Bench) error {
			tx, err := b.DB.Begin()
			if err != nil {
				return err
			}
			if _, err := c.InsertTx(ctx, tx, args, opts); err != nil {
				return err
			}
			return tx.Commit()
		},
		"InsertMany": func(c client, _ *riverharness.Bench) error {
			_, err := c.InsertMany(ctx, []river.InsertManyParams{{Args: args, InsertOpts: opts}})
			return err
		},
		"InsertManyFast": func(c client, _ *riverharness.Bench) error {
			_, err := c.InsertManyFast(ctx, []river.InsertManyParams{{Args: args, InsertOpts: opts}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := riverharness.New(t, plugins(stamp))
				seen := make(chan []byte, 1)
				b.Start(plugins(&spy{work: func(ctx context.Context, job *rivertype.JobRow, inner func(context.Context) error) error {
					seen <- job.Metadata
					return inner(ctx)
				}}), func(context.Context, *river.Job[riverharness.Args]) error { return nil })
				if err := insert(b.Client, b); err != nil {
					t.Fatal(err)
				}
				var m map[string]any
				if err := json.Unmarshal(<-seen, &m); err != nil {
					t.Fatal(err)
				}
				if m["stamp"] != "c1" || m["theirs"] != 1.0 {
					t.Errorf("metadata = %v, want the stamp beside what was there", m)
				}
			})
		})
	}
}

func TestHazardInsertBeginSeesNoMetadataAsAnEmptyObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got string
		b := riverharness.New(t, plugins(&spy{begin: func(_ context.Context, params *rivertype.JobInsertParams) error {
			got = string(params.Metadata)
			return nil
		}}))
		b.Insert(riverharness.Args{}, nil)
		if got != "{}" {
			t.Errorf("Metadata = %q, want {}", got)
		}
	})
}

func TestHazardInsertBeginErrorInsertsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errNo := errors.New("no")
		b := riverharness.New(t, plugins(&spy{begin: func(context.Context, *rivertype.JobInsertParams) error { return errNo }}))
		if _, err := b.Client.Insert(context.Background(), riverharness.Args{}, nil); !errors.Is(err, errNo) {
			t.Errorf("err = %v, want %v", err, errNo)
		}
		var n int
		if err := b.DB.QueryRow(`SELECT count(*) FROM river_job`).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

func TestHazardInsertManyFastGivesNilResultsToInsertMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*rivertype.JobInsertResult
		b := riverharness.New(t, plugins(&spy{results: func(results []*rivertype.JobInsertResult) { got = results }}))
		if _, err := b.Client.InsertManyFast(context.Background(), []river.InsertManyParams{{Args: riverharness.Args{}}}); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0] != nil {
			t.Errorf("results = %v, want one nil", got)
		}
	})
}

func TestHazardMetadataSetByThePluginIsStoredWithTheCompletion(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		b.Start(plugins(&spy{work: func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
			if err := inner(ctx); err != nil {
				return err
			}
			return river.MetadataSet(ctx, "fencedrun:note", "a note")
		}}), func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			return river.RecordOutput(ctx, "theirs")
		})
		job := b.Insert(riverharness.Args{}, nil)
		time.Sleep(10 * time.Second)
		row := wantState(t, b, job.ID, rivertype.JobStateCompleted)
		var m map[string]any
		if err := json.Unmarshal(row.Metadata, &m); err != nil {
			t.Fatal(err)
		}
		if m["fencedrun:note"] != "a note" || m["output"] != "theirs" {
			t.Errorf("metadata = %v, want the note and the user's output", m)
		}
	})
}

func TestHazardJobCompleteTxOfAStaleDeliveryIsNoError(t *testing.T) {
	hazard(t, func(t *testing.T, b *riverharness.Bench) {
		first, second := make(gate), make(gate)
		stale := make(chan error, 1)
		var delivered atomic.Int32
		work := func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			if delivered.Add(1) == 2 {
				second.wait()
				return errors.New("the live delivery fails")
			}
			first.wait()
			tx, err := b.DB.Begin()
			if err != nil {
				return err
			}
			_, err = river.JobCompleteTx[*riversqlite.Driver](ctx, tx, job)
			stale <- errors.Join(err, tx.Commit())
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
		first.open()
		if err := <-stale; err != nil {
			t.Errorf("JobCompleteTx of the stale delivery: %v, want nil", err)
		}
		wantState(t, b, job.ID, rivertype.JobStateCompleted)
		second.open()
		time.Sleep(10 * time.Second)
		wantState(t, b, job.ID, rivertype.JobStateCompleted) // the live one's error is lost
	})
}

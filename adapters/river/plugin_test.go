package riverruns_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// bench is the real queue, a keeper and the plugin.
type bench struct {
	*riverharness.Bench
	keeper *runs.Keeper
	fenced *riverruns.Plugin
}

// fenced runs f in a bubble. Inbound and Reads of config have the usual defaults.
func fenced(t *testing.T, config riverruns.Config, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		keeper, err := runs.New(memledger.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = keeper.Close() })
		if config.Inbound == nil {
			config.Inbound = riverruns.FromArgs
		}
		if config.Reads == "" {
			config.Reads = runs.AfterBegin
		}
		p := newPlugin(t, keeper, config)
		f(t, &bench{Bench: riverharness.New(t, plugins(p)), keeper: keeper, fenced: p})
	})
}

// start starts a client with the plugin.
func (b *bench) start(work func(context.Context, *river.Job[riverharness.Args]) error) *river.Client[riverharness.Tx] {
	b.T.Helper()
	return b.Start(plugins(b.fenced), work)
}

// args are the args of a job on conversation "c" that brings message m1.
func args(name string) riverharness.Args {
	return riverharness.Args{Name: name, Thread: "c", Messages: []string{"m1"}}
}

// foreign inserts a job as somebody does who has no plugin.
func (b *bench) foreign(args riverharness.Args, opts *river.InsertOpts) *rivertype.JobRow {
	b.T.Helper()
	result, err := b.NewClient(nil).Insert(context.Background(), args, opts)
	if err != nil {
		b.T.Fatal(err)
	}
	return result.Job
}

// note makes one effect of the run.
func note(ctx context.Context, key string, sent *list[string]) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "note", Key: runs.ID(key)}, func(context.Context, *runs.Call) error {
		sent.add(key)
		return nil
	})
}

// jobOf works one job and returns what its run was told.
func (b *bench) jobOf(insert func()) runs.Job {
	b.T.Helper()
	seen := make(chan runs.Job, 1)
	b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
		seen <- runs.FromContext(ctx).Job()
		return nil
	})
	insert()
	select {
	case job := <-seen:
		return job
	case <-time.After(time.Minute):
		b.T.Fatal("the worker was not entered with a run")
		return runs.Job{}
	}
}

func TestInsertStampsWhatTheArgsSay(t *testing.T) {
	ctx := context.Background()
	for name, insert := range map[string]func(b *bench) error{
		"Insert": func(b *bench) error {
			_, err := b.Client.Insert(ctx, args("a"), nil)
			return err
		},
		"InsertTx": func(b *bench) error {
			tx, err := b.DB.Begin()
			if err != nil {
				return err
			}
			_, err = b.Client.InsertTx(ctx, tx, args("a"), nil)
			return errors.Join(err, tx.Commit())
		},
		"InsertMany": func(b *bench) error {
			_, err := b.Client.InsertMany(ctx, []river.InsertManyParams{{Args: args("a")}})
			return err
		},
		"InsertManyFast": func(b *bench) error {
			_, err := b.Client.InsertManyFast(ctx, []river.InsertManyParams{{Args: args("a")}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
				job := b.jobOf(func() {
					if err := insert(b); err != nil {
						t.Fatal(err)
					}
				})
				if job.Queue != "river:public" || job.ID != "1" || job.Conversation != "c" || len(job.Inbound) != 1 || job.Inbound[0] != "m1" || job.Digest == "" {
					t.Errorf("job = %+v", job)
				}
				if job.Order != (runs.Order{Source: "river:public", Number: 1}) || job.QueueName != river.QueueDefault {
					t.Errorf("order %+v, queue %q, want the job's id and its queue as data", job.Order, job.QueueName)
				}
			})
		})
	}
}

// Args that say more, or less, than the harness's.
type (
	silentArgs  struct{}
	noInbound   struct{}
	orderedArgs struct{ riverharness.Args }
)

func (silentArgs) Kind() string { return "silent" }

func (noInbound) Kind() string         { return "no_inbound" }
func (noInbound) Conversation() string { return "c" }

func (orderedArgs) Order() runs.Order { return runs.Order{Source: "messages", Number: 42} }
func (orderedArgs) AsOf() int64       { return 7 }

func TestArgsMayGiveOrderAndAsOf(t *testing.T) {
	fenced(t, riverruns.Config{Reads: runs.FromPayload}, func(t *testing.T, b *bench) {
		job := b.jobOf(func() {
			if _, err := b.Client.Insert(t.Context(), orderedArgs{args("a")}, nil); err != nil {
				t.Fatal(err)
			}
		})
		if job.Order != (runs.Order{Source: "messages", Number: 42}) || job.AsOf != 7 {
			t.Errorf("order %+v, as-of %d", job.Order, job.AsOf)
		}
	})
}

func TestInsertErrorNamesWhatIsMissing(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		for want, args := range map[string]river.JobArgs{
			"Conversation is empty": riverharness.Args{Messages: []string{"m1"}},
			"Inbound() []string":    noInbound{},
			"Inbound[1]":            riverharness.Args{Thread: "c", Messages: []string{"m1", ""}},
		} {
			if _, err := b.Client.Insert(t.Context(), args, nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%T: %v, want an error that says %q", args, err, want)
			}
		}
		result, err := b.Client.Insert(t.Context(), silentArgs{}, nil)
		if err != nil || bytes.Contains(result.Job.Metadata, []byte("fencedrun")) {
			t.Errorf("args of another kind: metadata %s, %v", result.Job.Metadata, err)
		}
	})
	fenced(t, riverruns.Config{Unfenced: true, Inbound: riverruns.NoInbound}, func(t *testing.T, b *bench) {
		for _, args := range []river.JobArgs{riverharness.Args{}, noInbound{}} {
			if _, err := b.Client.Insert(t.Context(), args, nil); err != nil {
				t.Errorf("%T: %v", args, err)
			}
		}
	})
}

func TestStamperStampsLikeThePlugin(t *testing.T) {
	if _, err := riverruns.NewStamper(&riverruns.Config{Inbound: riverruns.FromArgs}); err == nil || !strings.Contains(err.Error(), "Config.Reads") {
		t.Errorf("a config without Reads: %v", err)
	}
	stamper, err := riverruns.NewStamper(&riverruns.Config{Inbound: riverruns.FromArgs, Reads: runs.AfterBegin})
	if err != nil {
		t.Fatal(err)
	}
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		job := b.jobOf(func() {
			if _, err := b.NewClient(plugins(stamper)).Insert(t.Context(), args("a"), nil); err != nil {
				t.Fatal(err)
			}
		})
		if job.Conversation != "c" || len(job.Inbound) != 1 {
			t.Errorf("job = %+v", job)
		}
	})
}

func TestForeignJobs(t *testing.T) {
	thread := func(job *rivertype.JobRow) string {
		var a riverharness.Args
		_ = json.Unmarshal(job.EncodedArgs, &a)
		return a.Thread
	}
	ids := riverruns.InboundFunc(func(job *rivertype.JobRow) ([]string, error) {
		var a riverharness.Args
		err := json.Unmarshal(job.EncodedArgs, &a)
		if len(a.Messages) == 0 {
			err = errors.New("no messages")
		}
		return a.Messages, err
	})
	t.Run("named by funcs", func(t *testing.T) {
		fenced(t, riverruns.Config{Conversation: thread, Inbound: ids}, func(t *testing.T, b *bench) {
			job := b.jobOf(func() { b.foreign(args("a"), nil) })
			if job.Conversation != "c" || len(job.Inbound) != 1 || job.Order.Number != 1 {
				t.Errorf("job = %+v", job)
			}
		})
	})
	for name, c := range map[string]struct {
		config riverruns.Config
		args   riverharness.Args
		want   string
	}{
		"no conversation":       {riverruns.Config{}, args("a"), "has no conversation"},
		"func gives none":       {riverruns.Config{Conversation: thread, Inbound: ids}, riverharness.Args{Messages: []string{"m1"}}, "has no conversation"},
		"inbound ids unknown":   {riverruns.Config{Conversation: thread}, args("a"), "inbound ids are unknown"},
		"inbound ids in error":  {riverruns.Config{Conversation: thread, Inbound: ids}, riverharness.Args{Thread: "c"}, "no messages"},
		"conversation too long": {riverruns.Config{Conversation: thread, Inbound: ids}, riverharness.Args{Thread: strings.Repeat("c", 600), Messages: []string{"m1"}}, "Conversation is 600 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			fenced(t, c.config, func(t *testing.T, b *bench) {
				b.start(func(context.Context, *river.Job[riverharness.Args]) error {
					t.Error("the worker was entered")
					return nil
				})
				job := b.foreign(c.args, &river.InsertOpts{MaxAttempts: 1})
				time.Sleep(10 * time.Second)
				row := b.Row(job.ID)
				if len(row.Errors) != 1 || !strings.Contains(row.Errors[0].Error, c.want) {
					t.Errorf("%s, errors %v, want one that says %q", row.State, row.Errors, c.want)
				}
			})
		})
	}
}

func TestUnreadableMetadataIsAnError(t *testing.T) {
	fenced(t, riverruns.Config{Unfenced: true}, func(t *testing.T, b *bench) {
		b.start(func(context.Context, *river.Job[riverharness.Args]) error {
			t.Error("the worker was entered")
			return nil
		})
		job := b.foreign(args("a"), &river.InsertOpts{MaxAttempts: 1, Metadata: []byte(`{"fencedrun:job":7}`)})
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateDiscarded)
	})
}

func TestJobMovedToAnotherQueueIsTheSameRun(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		var sent list[string]
		config := plugins(b.fenced)
		config.Queues = map[string]river.QueueConfig{"default": {MaxWorkers: 5}, "other": {MaxWorkers: 5}}
		b.Start(config, func(ctx context.Context, job *river.Job[riverharness.Args]) error {
			if err := note(ctx, "k", &sent); err != nil {
				return err
			}
			if job.Queue == "default" {
				return river.JobSnooze(time.Minute)
			}
			return nil
		})
		job := b.Insert(args("a"), nil)
		time.Sleep(5 * time.Second)
		b.Exec(`UPDATE river_job SET queue = 'other', state = 'available', scheduled_at = created_at WHERE id = ?`, job.ID)
		time.Sleep(10 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if got := sent.all(); len(got) != 1 {
			t.Errorf("sent %v, want it once", got)
		}
	})
}

func TestPluginInstalledTwiceOpensOneRun(t *testing.T) {
	fenced(t, riverruns.Config{Mode: runs.Exclusive}, func(t *testing.T, b *bench) {
		config := plugins(b.fenced, b.fenced)
		done := make(chan int64, 1)
		b.Start(config, func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			done <- runs.FromContext(ctx).Delivery()
			return nil
		})
		b.Insert(args("a"), nil)
		if n := <-done; n != 1 {
			t.Errorf("delivery %d, want 1", n)
		}
	})
}

func TestCheckNamesWhatDoesNotGoTogether(t *testing.T) {
	fenced(t, riverruns.Config{}, func(t *testing.T, b *bench) {
		other := &spy{}
		for _, c := range []struct {
			name   string
			config *river.Config
			want   string
		}{
			{"right", plugins(b.fenced, other), ""},
			{"right with a schema", &river.Config{Plugins: []rivertype.Plugin{b.fenced}, Schema: "public"}, ""},
			{"nil", nil, "config is nil"},
			{"missing", &river.Config{}, "first of Config.Plugins"},
			{"second", plugins(other, b.fenced), "first of Config.Plugins"},
			{"as middleware", &river.Config{Middleware: []rivertype.Middleware{b.fenced}}, "first of Config.Plugins"},
			{"another schema", &river.Config{Plugins: []rivertype.Plugin{b.fenced}, Schema: "tenant"}, "Schema"},
			{"River's default attempts", &river.Config{Plugins: []rivertype.Plugin{b.fenced}, MaxAttempts: river.MaxAttemptsDefault}, ""},
			{"a policy of its own", &river.Config{Plugins: []rivertype.Plugin{b.fenced}, MaxAttempts: 30, RetryPolicy: &river.DefaultClientRetryPolicy{}}, ""},
			{"too many attempts", &river.Config{Plugins: []rivertype.Plugin{b.fenced}, MaxAttempts: 30}, "Retention"},
		} {
			err := b.fenced.Check(c.config)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		}
	})
}

func TestWarnsOnceOfJobsThatFencingCannotCover(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	fenced(t, riverruns.Config{Logger: logger}, func(t *testing.T, b *bench) {
		config := plugins(b.fenced)
		config.JobTimeout = -1
		b.Start(config, func(context.Context, *river.Job[riverharness.Args]) error { return nil })
		for range 2 {
			b.Insert(args("a"), &river.InsertOpts{MaxAttempts: 40})
		}
		time.Sleep(10 * time.Second)
	})
	for _, want := range []string{"without a timeout", "last attempt"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q was said %d times, want once:\n%s", want, n, log.String())
		}
	}
	log.Reset()
	fenced(t, riverruns.Config{Logger: logger}, func(t *testing.T, b *bench) {
		b.start(func(context.Context, *river.Job[riverharness.Args]) error { return nil })
		b.Insert(args("a"), nil)
		time.Sleep(10 * time.Second)
	})
	if log.Len() > 0 {
		t.Errorf("an ordinary job was warned of:\n%s", log.String())
	}
}

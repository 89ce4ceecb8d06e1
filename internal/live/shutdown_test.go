package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivertype"
	"go.uber.org/goleak"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// A worker gets SIGTERM in the middle of a job: an effect is under way, and after it a model call
// that would take for ever. It stops its queue, waits for its handlers, closes its keeper, looks for
// goroutines that are left, and exits. Another process takes the redelivery.

// grace is how long a queue waits for its handlers before it cancels them.
const grace = 2 * time.Second

// stopping is what these workers play, by the name of their queue.
var stopping = map[string]func(context.Context, *worker, *stopper) (func() error, error){
	"river-postgres": func(ctx context.Context, w *worker, s *stopper) (func() error, error) {
		pool, err := pgxpool.New(ctx, w.Queue)
		if err != nil {
			return nil, err
		}
		return stopRiver(ctx, w, s, riverpgxv5.New(pool), func() error { pool.Close(); return nil })
	},
	"river-sqlite": func(ctx context.Context, w *worker, s *stopper) (func() error, error) {
		db, err := riverFile(w.Queue)
		if err != nil {
			return nil, err
		}
		return stopRiver(ctx, w, s, riversqlite.New(db), db.Close)
	},
	"asynq-redis": stopAsynq,
}

var _ = func() bool { // before TestMain asks for them
	for name := range stopping {
		workers["stop "+name] = func(ctx context.Context, w *worker) error { return untilTold(ctx, w, name) }
	}
	return true
}()

// stopper is a worker that can be stopped.
type stopper struct {
	keeper  *runs.Keeper
	working sync.WaitGroup // handlers; Asynq does not wait for those that it has cancelled
}

// untilTold works until SIGTERM, and prints what there is to say afterwards.
func untilTold(ctx context.Context, w *worker, queue string) error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	store, err := w.open(ctx)
	if err != nil {
		return err
	}
	s := &stopper{}
	if s.keeper, err = runs.New(store, nil); err != nil {
		return err
	}
	stop, err := stopping[queue](ctx, w, s)
	if err != nil {
		return err
	}
	select {
	case <-term:
	case <-ctx.Done():
		return ctx.Err()
	}
	told := time.Now()
	if err := stop(); err != nil {
		return err
	}
	fmt.Println("stopped after", time.Since(told).Milliseconds())
	signal.Stop(term)
	return goleak.Find()
}

// work answers m1, and tags. The first delivery then waits for its model until it is cancelled;
// the next one leaves a note, and ends.
func (s *stopper) work(ctx context.Context, w *worker) error {
	s.working.Add(1)
	defer s.working.Done()
	do := func(intent string, takes time.Duration) error {
		return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: intent, Key: runs.ID("m1")}, func(ctx context.Context, _ *runs.Call) error {
			if err := w.provide(intent); err != nil {
				return err
			}
			select {
			case <-time.After(takes): // the provider's answer
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	if err := errors.Join(do("reply", 0), do("tag", grace/2)); err != nil {
		return err
	}
	if runs.FromContext(ctx).Delivery() == 1 {
		<-ctx.Done()
		return ctx.Err()
	}
	return do("note", 0)
}

func stopRiver[TTx any](ctx context.Context, w *worker, s *stopper, driver riverdriver.Driver[TTx], closed func() error) (func() error, error) {
	plugin, err := riverruns.NewPlugin(s.keeper, &riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs, Schema: w.QueueName})
	if err != nil {
		return nil, err
	}
	config := riverConfig(w.QueueName, plugin)
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[killArgs]) error { return s.work(ctx, w) }))
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}}
	config.FetchCooldown, config.FetchPollInterval, config.PollOnly = 20*time.Millisecond, 20*time.Millisecond, true
	config.SoftStopTimeout, config.RetryPolicy = grace, atOnce{}
	client, err := river.NewClient(driver, config)
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseInt(w.Job, 10, 64)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error {
		if err := client.Stop(ctx); err != nil {
			return err
		}
		s.working.Wait()
		row, err := client.JobGet(ctx, id)
		if err != nil {
			return err
		}
		left := row.Attempt // a job that an interruption put back has not spent one
		if row.State == rivertype.JobStateCompleted {
			left = 0
		}
		fmt.Println("job", row.State, left)
		return errors.Join(s.keeper.Close(), closed())
	}, nil
}

func stopAsynq(_ context.Context, w *worker, s *stopper) (func() error, error) {
	options, err := asynqOptions(w.Queue)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	fenced, err := asynqruns.New(s.keeper, &asynqruns.Config{Reads: runs.AfterBegin, Inbound: asynqruns.FromHeaders})
	if err != nil {
		return nil, err
	}
	server := asynq.NewServerFromRedisClient(client, fenced.Config(asynq.Config{
		Concurrency: 1, Queues: map[string]int{w.QueueName: 1}, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 20 * time.Millisecond, ShutdownTimeout: grace,
	}))
	handler := fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return s.work(ctx, w) }))
	err = server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		s.working.Add(1) // also for what the middleware does when the handler has returned
		defer s.working.Done()
		return handler.ProcessTask(ctx, task)
	}))
	if err != nil {
		return nil, err
	}
	return func() error {
		server.Shutdown()
		s.working.Wait()
		info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo(w.QueueName, w.Job)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound):
			fmt.Println("job completed 0")
		case err != nil:
			return err
		default:
			fmt.Println("job", info.State, info.Retried)
		}
		return errors.Join(s.keeper.Close(), client.Close())
	}, nil
}

// running is a worker process that has not been told to stop.
type running struct {
	cmd       *exec.Cmd
	out, errs bytes.Buffer
}

func startWorker(t *testing.T, p part) *running {
	t.Helper()
	r := &running{cmd: p.process(t)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errs
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// terminate sends SIGTERM, and returns what the process said on its way out and how long its
// shutdown took.
func (r *running) terminate(t *testing.T) (job string, took time.Duration) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, r.errs.String()) // among other things, of goroutines that are left
	}
	for line := range strings.Lines(r.out.String()) {
		if rest, ok := strings.CutPrefix(line, "job "); ok {
			job = strings.TrimSpace(rest)
		}
		if rest, ok := strings.CutPrefix(line, "stopped after "); ok {
			ms, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			took = time.Duration(ms) * time.Millisecond
		}
	}
	return job, took
}

// provided returns what the provider did for p's conversation.
func (p *part) provided(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(p.Provider)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var done []string
	for line := range strings.Lines(string(log)) {
		if what, ok := strings.CutPrefix(line, p.Conversation+" "); ok {
			done = append(done, strings.TrimSpace(what))
		}
	}
	return strings.Join(done, " ")
}

func TestSIGTERMInTheMiddleOfAJob(t *testing.T) {
	waiting := map[string]string{"river-postgres": "available 0", "river-sqlite": "available 0", "asynq-redis": "pending 0"}
	for name, open := range queues(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := open(t)
			p := q.part
			p.Worker, p.Provider, p.Conversation = "stop "+name, filepath.Join(t.TempDir(), "provider"), "c"
			p.Job = q.insert(p.Conversation)
			k := p.watcher(t)

			first := startWorker(t, p)
			await(t, "the tag is under way", func() bool { return p.provided(t) == "reply tag" })
			job, took := first.terminate(t)
			if job != waiting[name] {
				t.Errorf("the job is %q after the shutdown, want %q: waiting, and nothing spent", job, waiting[name])
			}
			// The model call is cancelled when the grace is over. What comes on top is the machine's.
			if took < grace/2 || took > grace+3*time.Second {
				t.Errorf("the shutdown took %v with a grace of %v", took, grace)
			}
			h, err := k.History(t.Context(), p.Conversation)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range h.Effects {
				if e.State() != runs.Committed {
					t.Errorf("%s is %s, want what was done recorded", e.Intent, e.State())
				}
			}
			if len(h.Effects) != 2 || len(h.Runs) != 1 || h.Runs[0].State != fence.RunActive || len(h.Live) != 0 {
				t.Errorf("%d effects, runs %+v, %d live, want two, and one active run that nobody works on", len(h.Effects), h.Runs, len(h.Live))
			}

			second := startWorker(t, p)
			await(t, "the run has ended", func() bool {
				h, err := k.History(t.Context(), p.Conversation)
				return err == nil && len(h.Runs) == 1 && h.Runs[0].Finished()
			})
			if job, _ := second.terminate(t); job != "completed 0" {
				t.Errorf("the job is %q in the end, want completed", job)
			}
			if got, want := p.provided(t), "reply tag note"; got != want {
				t.Errorf("the provider did %q, want %q", got, want)
			}
			t.Logf("shutdown in %v", took)
		})
	}
}

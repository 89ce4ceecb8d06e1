package asynqruns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// bench is the real queue, a keeper and the adapter.
type bench struct {
	*asynqharness.Bench
	keeper *runs.Keeper
	fenced *asynqruns.Adapter

	mu     sync.Mutex
	events map[runs.EventKind]int
}

func (b *bench) told(kind runs.EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events[kind]
}

// fenced runs f in a bubble. Inbound and Reads of config have the usual defaults.
func fenced(t *testing.T, config asynqruns.Config, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{events: map[runs.EventKind]int{}}
		keeper, err := runs.New(memledger.New(), &runs.Config{Observer: func(_ context.Context, e runs.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events[e.Kind]++
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = keeper.Close() })
		if config.Inbound == nil {
			config.Inbound = asynqruns.FromHeaders
		}
		if config.Reads == "" {
			config.Reads = runs.AfterBegin
		}
		b.Bench, b.keeper, b.fenced = asynqharness.New(t), keeper, newAdapter(t, keeper, config)
		f(t, b)
	})
}

// start starts a server with the adapter in both places.
func (b *bench) start(handler asynq.HandlerFunc) *asynqharness.Worker {
	b.T.Helper()
	return b.Start(b.fenced.Config(asynq.Config{
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	}), b.fenced.Middleware(handler))
}

// task makes a task on conversation "c" that brings no messages.
func (b *bench) task(payload string, opts ...asynq.Option) *asynq.Task {
	b.T.Helper()
	task, err := b.fenced.NewTask(context.Background(), "t", []byte(payload), asynqruns.Conversation{ID: "c", NoInbound: true}, opts...)
	if err != nil {
		b.T.Fatal(err)
	}
	return task
}

// note makes one effect of the run.
func note(ctx context.Context, key string, sent *list[string]) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "note", Key: runs.ID(key)}, func(context.Context, *runs.Call) error {
		sent.add(key)
		return nil
	})
}

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

func (l *list[T]) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.items)
}

func (l *list[T]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items)
}

func TestHandlerCalledByHandFailsLoudly(t *testing.T) {
	fenced(t, asynqruns.Config{Unfenced: true}, func(t *testing.T, b *bench) {
		h := b.fenced.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			t.Error("the handler was entered")
			return nil
		}))
		for name, ctx := range map[string]context.Context{
			"bare ctx": context.Background(),
			"no id":    seam.WithDelivery(context.Background(), seam.Delivery{Queue: "default"}),
			"no queue": seam.WithDelivery(context.Background(), seam.Delivery{TaskID: "j"}),
		} {
			if err := h.ProcessTask(ctx, b.task("p")); err == nil || !strings.Contains(err.Error(), "called by hand") {
				t.Errorf("%s: %v, want an error that says so", name, err)
			}
		}
	})
}

func TestSeamDrivesTheMiddlewareWithoutAServer(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		var got runs.Job
		h := b.fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			got = runs.FromContext(ctx).Job()
			return nil
		}))
		ctx := seam.WithDelivery(t.Context(), seam.Delivery{TaskID: "j", Queue: "q", MaxRetry: 3})
		if err := h.ProcessTask(ctx, b.task("p")); err != nil {
			t.Fatal(err)
		}
		if got.Queue != "asynq:q" || got.ID != "j" || got.QueueName != "q" || got.Conversation != "c" || got.Digest == "" {
			t.Errorf("job = %+v", got)
		}
	})
}

func TestNestedMuxOpensOneRun(t *testing.T) {
	fenced(t, asynqruns.Config{Mode: runs.Exclusive}, func(t *testing.T, b *bench) {
		var outer, inner atomic.Pointer[runs.Run]
		nested := asynq.NewServeMux()
		nested.Use(b.fenced.Middleware)
		nested.HandleFunc("t", func(ctx context.Context, _ *asynq.Task) error {
			inner.Store(runs.FromContext(ctx))
			return nil
		})
		mux := asynq.NewServeMux()
		mux.Use(b.fenced.Middleware, func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				outer.Store(runs.FromContext(ctx))
				return next.ProcessTask(ctx, task)
			})
		})
		mux.Handle("t", nested)
		b.Start(b.fenced.Config(asynq.Config{}), mux)
		b.Enqueue(b.task("p"), asynq.TaskID("j"))
		time.Sleep(10 * time.Second)
		wantGone(t, b.Bench, "j")
		if o, i := outer.Load(), inner.Load(); o == nil || i != o || b.told("begun") != 1 {
			t.Errorf("outer %p, inner %p, %d begun, want one run", o, i, b.told("begun"))
		}
	})
}

func TestReusedTaskIDIsNewWork(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		var seen list[string]
		b.start(func(_ context.Context, task *asynq.Task) error {
			seen.add(string(task.Payload()))
			return nil
		})
		for _, payload := range []string{"one", "two", "two"} {
			b.Enqueue(b.task(payload), asynq.TaskID("j"))
			time.Sleep(10 * time.Second)
		}
		if got, want := seen.String(), "[one two two]"; got != want {
			t.Errorf("entered with %s, want %s", got, want)
		}
	})
}

func TestOneTaskEnqueuedAgainIsOneWork(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		var seen list[string]
		b.start(func(_ context.Context, task *asynq.Task) error {
			seen.add(string(task.Payload()))
			return nil
		})
		task := b.task("one")
		for range 2 {
			b.Enqueue(task, asynq.TaskID("j"))
			time.Sleep(10 * time.Second)
		}
		if got, want := seen.String(), "[one]"; got != want {
			t.Errorf("entered with %s, want %s", got, want)
		}
		if n := b.told("finished_again"); n != 1 {
			t.Errorf("finished_again was told %d times, want 1", n)
		}
	})
}

func TestHandMadeTaskIDNeedsAnExplicitChoice(t *testing.T) {
	plain := func(t *testing.T, payload string) *asynq.Task {
		t.Helper()
		headers, err := asynqruns.Headers(asynqruns.Conversation{ID: "c", NoInbound: true})
		if err != nil {
			t.Fatal(err)
		}
		return asynq.NewTaskWithHeaders("t", []byte(payload), headers)
	}
	t.Run("not chosen", func(t *testing.T) {
		fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
			b.start(func(context.Context, *asynq.Task) error {
				t.Error("the handler was entered")
				return nil
			})
			b.Enqueue(plain(t, "p"), asynq.TaskID("order-1"), asynq.MaxRetry(0))
			time.Sleep(10 * time.Second)
			if info := wantState(t, b.Bench, "order-1", asynq.TaskStateArchived); !strings.Contains(info.LastErr, "TrustTaskIDs") {
				t.Errorf("LastErr = %q, want it to name the setting", info.LastErr)
			}
		})
	})
	t.Run("trusted", func(t *testing.T) {
		fenced(t, asynqruns.Config{TrustTaskIDs: true}, func(t *testing.T, b *bench) {
			var seen list[string]
			b.start(func(_ context.Context, task *asynq.Task) error {
				seen.add(string(task.Payload()))
				return nil
			})
			for _, payload := range []string{"one", "one", "two"} {
				b.Enqueue(plain(t, payload), asynq.TaskID("order-1"))
				time.Sleep(10 * time.Second)
			}
			if got, want := seen.String(), "[one two]"; got != want {
				t.Errorf("entered with %s, want %s: the same work once", got, want)
			}
			if n := b.told("finished_again"); n != 1 {
				t.Errorf("finished_again was told %d times, want 1", n)
			}
		})
	})
	t.Run("not needed for asynq's own ids", func(t *testing.T) {
		fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
			done := make(chan struct{})
			b.start(func(context.Context, *asynq.Task) error {
				close(done)
				return nil
			})
			b.Enqueue(plain(t, "p"))
			<-done
		})
	})
}

func TestProducerThatWasNotChanged(t *testing.T) {
	config := asynqruns.Config{Conversation: func(task *asynq.Task) string {
		thread, _, _ := strings.Cut(string(task.Payload()), "/")
		return thread
	}}
	fenced(t, config, func(t *testing.T, b *bench) {
		var sent, orders list[string]
		var entered list[int]
		b.start(func(ctx context.Context, task *asynq.Task) error {
			job := runs.FromContext(ctx).Job()
			orders.add(job.Order.Source)
			if job.Conversation != "thread7" || !job.NoInbound {
				t.Errorf("job = %+v", job)
			}
			if err := note(ctx, string(task.Payload()), &sent); err != nil {
				return err
			}
			if entered.add(1) == 1 {
				return errors.New("a failure")
			}
			return nil
		})
		b.Enqueue(asynq.NewTask("t", []byte("thread7/a")))
		time.Sleep(20 * time.Second)
		if got, want := sent.String(), "[thread7/a]"; got != want || entered.len() != 2 {
			t.Errorf("sent %s in %d entries, want %s in 2", got, entered.len(), want)
		}
		if got, want := orders.String(), "[ ]"; got != want {
			t.Errorf("order sources %s, want none", got)
		}
	})
}

func TestInboundFuncNamesTheMessages(t *testing.T) {
	fenced(t, asynqruns.Config{Inbound: asynqruns.InboundFunc(func(task *asynq.Task) ([]string, error) {
		if string(task.Payload()) == "bad" {
			return nil, errors.New("unreadable")
		}
		return []string{string(task.Payload())}, nil
	})}, func(t *testing.T, b *bench) {
		seen := make(chan []string, 1)
		b.start(func(ctx context.Context, _ *asynq.Task) error {
			seen <- runs.FromContext(ctx).Job().Inbound
			return nil
		})
		b.Enqueue(b.task("m1"))
		if ids := <-seen; len(ids) != 1 || ids[0] != "m1" {
			t.Errorf("inbound = %v, want m1", ids)
		}
		b.Enqueue(b.task("bad"), asynq.TaskID("j"), asynq.MaxRetry(0))
		time.Sleep(10 * time.Second)
		if info := wantState(t, b.Bench, "j", asynq.TaskStateArchived); !strings.Contains(info.LastErr, "unreadable") {
			t.Errorf("LastErr = %q", info.LastErr)
		}
	})
}

func TestNewTaskStampsOrderNonceAndRetention(t *testing.T) {
	fenced(t, asynqruns.Config{}, func(t *testing.T, b *bench) {
		one, two := b.task("p").Headers(), b.task("p", asynq.Retention(time.Hour)).Headers()
		if one["fencedrun-nonce"] == "" || one["fencedrun-nonce"] == two["fencedrun-nonce"] {
			t.Errorf("nonces %q and %q", one["fencedrun-nonce"], two["fencedrun-nonce"])
		}
		var a, c int64
		for h, n := range map[*int64]string{&a: one["fencedrun-order"], &c: two["fencedrun-order"]} {
			if _, err := fmt.Sscanf(n, "%d "+runs.StampSource, h); err != nil {
				t.Fatalf("order %q: %v", n, err)
			}
		}
		if a >= c {
			t.Errorf("orders %d, %d, want them growing", a, c)
		}
		if one["fencedrun-as-of"] != "" {
			t.Errorf("as-of %q: a stamp taken after the payload was made says nothing about it", one["fencedrun-as-of"])
		}
		if one["fencedrun-kept"] != "" || two["fencedrun-kept"] != "1" {
			t.Errorf("kept %q and %q, want it only with a Retention", one["fencedrun-kept"], two["fencedrun-kept"])
		}
		if _, err := b.fenced.NewTask(t.Context(), "t", nil, asynqruns.Conversation{NoInbound: true}); err == nil {
			t.Error("a task without a conversation was made")
		}
	})
}

func TestStampSaysWhatThePayloadHasSeen(t *testing.T) {
	fenced(t, asynqruns.Config{Reads: runs.FromPayload}, func(t *testing.T, b *bench) {
		if _, err := b.keeper.Report(t.Context(), "c", runs.Write{ID: "w1"}); err != nil {
			t.Fatal(err)
		}
		stamp, err := b.keeper.Stamp(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		var sent list[string]
		b.start(func(ctx context.Context, task *asynq.Task) error { return note(ctx, string(task.Payload()), &sent) })
		for payload, stamp := range map[string]int64{"seen": stamp, "unseen": 0} {
			task, err := b.fenced.NewTask(t.Context(), "t", []byte(payload), asynqruns.Conversation{ID: "c", NoInbound: true, Stamp: stamp})
			if err != nil {
				t.Fatal(err)
			}
			b.Enqueue(task, asynq.TaskID(payload), asynq.Retention(time.Hour))
			time.Sleep(10 * time.Second)
		}
		if got := sent.String(); got != "[seen]" {
			t.Errorf("sent %s, want only the one that has seen the report", got)
		}
		wantState(t, b.Bench, "unseen", asynq.TaskStateArchived)
	})
}

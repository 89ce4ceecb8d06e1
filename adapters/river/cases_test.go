package riverruns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Failures that people had with queues like this one, on the real River: F01, F07, F08 and F09 of those
// that internal/cases tells without a queue.

// theCase runs f with the adapter on a ledger that can be lost, with times of the case's own.
func theCase(t *testing.T, config runs.Config, f func(t *testing.T, b *bench, store *lost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, store := newCase(t, config, memledger.New())
		f(t, b, store)
	})
}

func newCase(t *testing.T, config runs.Config, on ledger.Store) (*bench, *lost) {
	t.Helper()
	store := &lost{Store: on}
	keeper, err := runs.New(store, &config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keeper.Close() })
	p := newPlugin(t, keeper, riverruns.Config{Inbound: riverruns.FromArgs, Reads: runs.AfterBegin})
	return &bench{Bench: riverharness.New(t, plugins(p)), keeper: keeper, fenced: p}, store
}

// lost is a ledger that the worker may lose touch with.
type lost struct {
	ledger.Store
	down atomic.Bool
}

var errLost = errors.New("the ledger cannot be reached")

func (l *lost) Load(ctx context.Context, conv string, q ledger.Query) (ledger.Snapshot, error) {
	if l.down.Load() {
		return ledger.Snapshot{}, errLost
	}
	return l.Store.Load(ctx, conv, q)
}

func (l *lost) Apply(ctx context.Context, conv string, w ledger.Write) (ledger.Result, error) {
	if l.down.Load() {
		return ledger.Result{}, errLost
	}
	return l.Store.Apply(ctx, conv, w)
}

func (l *lost) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if l.down.Load() {
		return nil, errLost
	}
	return l.Store.Renew(ctx, leases, d)
}

// forgets makes River fail to record what the first n deliveries of a job returned, for ever, as when
// their processes are dead or have lost the database. The rescuer still reaches the row.
func forgets(b *bench, n int) {
	b.Exec(fmt.Sprintf(`CREATE TRIGGER forget BEFORE UPDATE ON river_job
		WHEN OLD.state = 'running' AND OLD.attempt <= %d AND NEW.state NOT IN ('running', 'retryable')
		BEGIN SELECT raise(ABORT, 'the link is down'); END`, n))
}

// rescued are clients whose rescuer comes after a minute, not an hour.
func (b *bench) rescued(work func(context.Context, *river.Job[riverharness.Args]) error) {
	b.T.Helper()
	config := plugins(b.fenced)
	config.JobTimeout, config.RescueStuckJobsAfter = time.Minute, time.Minute
	b.Start(config, work)
}

// reply and tag are the effects of the cases; sent has what the provider did.
func reply(ctx context.Context, do func(ctx context.Context, call *runs.Call) error) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, do)
}

func tag(ctx context.Context, sent *list[string]) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "tag", Key: runs.ID("billing")}, func(context.Context, *runs.Call) error {
		sent.add("tag")
		return nil
	})
}

// doing is a call of the provider that does it, and then fails with err or does not.
func doing(sent *list[string], what string, err error) func(context.Context, *runs.Call) error {
	return func(context.Context, *runs.Call) error {
		sent.add(what)
		return err
	}
}

// decide is a person who says of the one unresolved effect whether it happened.
func (b *bench) decide(happened bool) {
	b.T.Helper()
	found := b.unresolved()
	if len(found) != 1 {
		b.T.Fatalf("%d unresolved effects, want 1", len(found))
	}
	if _, _, err := b.keeper.Resolve(b.T.Context(), "c", found[0].Effect.ID, runs.Resolution{Happened: happened, By: "test"}); err != nil {
		b.T.Fatal(err)
	}
}

func (b *bench) unresolved() []runs.UnresolvedEffect {
	b.T.Helper()
	found, err := b.keeper.Unresolved(b.T.Context(), 0, 0)
	if err != nil {
		b.T.Fatal(err)
	}
	return found
}

func (b *bench) again(id int64) {
	b.T.Helper()
	if _, err := b.Client.JobRetry(b.T.Context(), id); err != nil {
		b.T.Fatal(err)
	}
}

// The handler was done, River never heard of it, and the rescuer gives the job out again.
//
// https://github.com/hibiken/asynq/issues/1030
func TestF01TheQueueForgotAndTheLedgerRemembers(t *testing.T) {
	theCase(t, runs.Config{}, func(t *testing.T, b *bench, _ *lost) {
		var sent list[string]
		var entered atomic.Int32
		b.rescued(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			entered.Add(1)
			if err := reply(ctx, doing(&sent, "reply", nil)); err != nil {
				return err
			}
			return tag(ctx, &sent)
		})
		forgets(b, 1)
		job := b.Insert(args("a"), nil)
		time.Sleep(40 * time.Second)
		wantState(t, b.Bench, job.ID, rivertype.JobStateRunning) // although the handler returned
		if end := b.runEnd(job.ID); end != "success" {
			t.Fatalf("the run's end is %q, want success", end)
		}
		time.Sleep(3 * time.Minute)
		row := wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if got := strings.Join(sent.all(), " "); got != "reply tag" || entered.Load() != 1 || row.Attempt != 2 {
			t.Errorf("sent %q, entered %d times, attempt %d; want reply and tag, once, 2", got, entered.Load(), row.Attempt)
		}
	})
}

// The same, and the ledger was out of reach too from the moment at which the reply had gone out.
func TestF01TheQueueForgotAndTheLedgerWasDownToo(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	theCase(t, runs.Config{}, func(t *testing.T, b *bench, store *lost) {
		var sent list[string]
		var entered atomic.Int32
		b.rescued(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			entered.Add(1)
			err := reply(ctx, func(context.Context, *runs.Call) error {
				sent.add("reply")
				store.down.Store(true)
				return nil
			})
			if err != nil {
				return err
			}
			return tag(ctx, &sent)
		})
		forgets(b, 1)
		job := b.Insert(args("a"), nil)
		time.Sleep(50 * time.Second)
		store.down.Store(false)
		time.Sleep(7 * time.Minute)
		row := wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled) // for people to see
		if last := row.Errors[len(row.Errors)-1].Error; !strings.Contains(last, "unknown") {
			t.Errorf("the row's last error is %q, want it to say that the outcome is unknown", last)
		}
		if got := strings.Join(sent.all(), " "); got != "reply" {
			t.Errorf("sent %q, want the reply once", got)
		}
		before := entered.Load()
		time.Sleep(10 * time.Minute)
		if n := entered.Load(); n != before {
			t.Errorf("entered %d times more: it loops", n-before)
		}
		b.decide(true)
		b.again(job.ID)
		time.Sleep(time.Minute)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if got := strings.Join(sent.all(), " "); got != "reply tag" {
			t.Errorf("sent %q, want reply and tag once", got)
		}
	})
}

// The process dies after the provider has said yes, and so does each that comes after it, before it has
// recorded anything new. (internal/live kills real processes; here the waiting is done.)
//
// https://github.com/openclaw/openclaw/issues/29106
func TestF07UnknownStaysUnknownOverAnyNumberOfRestarts(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	theCase(t, runs.Config{}, func(t *testing.T, b *bench, store *lost) {
		const deaths = 3
		var sent list[string]
		var entered atomic.Int32
		b.rescued(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			if entered.Add(1) <= deaths {
				// Nothing that this process does from some point on reaches anybody.
				err := reply(ctx, func(context.Context, *runs.Call) error {
					sent.add("reply")
					store.down.Store(true)
					return nil
				})
				store.down.Store(true)
				return err
			}
			if err := reply(ctx, doing(&sent, "reply again", nil)); err != nil {
				return err
			}
			return tag(ctx, &sent)
		})
		forgets(b, deaths)
		job := b.Insert(args("a"), nil)
		for n := int32(1); n <= deaths; n++ {
			for range 600 {
				if entered.Load() == n {
					break
				}
				time.Sleep(time.Second)
			}
			if entered.Load() != n {
				t.Fatalf("entered %d times, want %d", entered.Load(), n)
			}
			time.Sleep(30 * time.Second)
			store.down.Store(false)
		}
		time.Sleep(7 * time.Minute)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
		for range 3 { // people press "retry", which is no word on what happened
			b.again(job.ID)
			time.Sleep(7 * time.Minute)
			wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
		}
		if got := strings.Join(sent.all(), " "); got != "reply" {
			t.Errorf("sent %q after %d deliveries, want the reply once", got, entered.Load())
		}
		if found := b.unresolved(); len(found) != 1 || found[0].Effect.Intent != "reply" {
			t.Errorf("unresolved: %v, want the reply", found)
		}
		b.decide(true)
		b.again(job.ID)
		time.Sleep(time.Minute)
		wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
		if got := strings.Join(sent.all(), " "); got != "reply tag" {
			t.Errorf("sent %q, want reply and tag once", got)
		}
	})
}

// The provider takes longer than the caller waits, and acts anyway; the SDK, the agent's loop and the
// queue would each try again.
//
// https://github.com/NousResearch/hermes-agent/pull/3899
func TestF08ATimeoutIsNoNoForAnyLayer(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	unknown := map[string]error{
		"deadline":                  context.DeadlineExceeded,
		"deadline, wrapped":         fmt.Errorf("sdk: POST /v1/messages: %w", context.DeadlineExceeded),
		"reset after the body":      &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		"refused, says no one":      &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, // nobody declared it
		"429, says the status line": errors.New("429 Too Many Requests"),
	}
	for name, answer := range unknown {
		t.Run(name, func(t *testing.T) {
			theCase(t, runs.Config{EffectTimeout: 30 * time.Second}, func(t *testing.T, b *bench, _ *lost) {
				var sent list[string]
				var told list[string]
				b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
					call := func(ctx context.Context, _ *runs.Call) error {
						time.AfterFunc(45*time.Second, func() { sent.add("reply") }) // late, and anyway
						time.Sleep(30 * time.Second)
						return answer
					}
					err := reply(ctx, call)
					for range 3 { // the agent's loop plans it anew
						time.Sleep(time.Second)
						err = reply(ctx, call)
						told.add(runs.Explain(err).Message)
						if e := runs.Explain(err); e.Retryable {
							t.Errorf("the model is told that it may try again: %+v", e)
						}
					}
					return err
				})
				job := b.Insert(args("a"), nil)
				time.Sleep(5 * time.Minute)
				row := wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
				if got := sent.all(); len(got) != 1 {
					t.Errorf("the provider acted %d times, want once", len(got))
				}
				for _, message := range told.all() {
					if !strings.Contains(message, "Do not repeat it") {
						t.Errorf("the model is told %q", message)
					}
				}
				if row.Attempt != 1 && row.Attempt != 0 {
					t.Errorf("%d attempts spent on waiting for an outcome", row.Attempt)
				}
				b.decide(true)
				b.again(job.ID)
				time.Sleep(time.Minute)
				wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)
				if got := sent.all(); len(got) != 1 {
					t.Errorf("the provider acted %d times, want once", len(got))
				}
			})
		})
	}
}

func TestF08ADefiniteNoIsTriedAgainByTheQueueUpToTheLimit(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	declared := map[string]runs.Intent[string]{
		"429, not processed": {Name: "reply"},
		"connection refused": {Name: "reply", Classify: func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
	}
	answers := map[string]error{
		"429, not processed": runs.NotApplied(errors.New("429: not processed")),
		"connection refused": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
	}
	for name, intent := range declared {
		for _, noes := range []int{2, 3} { // of which three are the limit
			t.Run(fmt.Sprint(name, " ", noes, " times"), func(t *testing.T) {
				theCase(t, runs.Config{}, func(t *testing.T, b *bench, _ *lost) {
					var calls, entered atomic.Int32
					b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
						entered.Add(1)
						before := calls.Load()
						_, err := intent.Once(ctx, runs.ID("m1"), func(context.Context, *runs.Call) (string, error) {
							if int(calls.Add(1)) <= noes {
								return "", answers[name]
							}
							return "sent", nil
						})
						if made := calls.Load() - before; made > 1 {
							t.Errorf("one Once made %d calls", made)
						}
						return err
					})
					job := b.Insert(args("a"), nil)
					time.Sleep(time.Minute)
					want, state := int32(3), rivertype.JobStateCompleted
					if noes == 3 {
						state = rivertype.JobStateCancelled // exhausted, and visible
					}
					wantState(t, b.Bench, job.ID, state)
					if calls.Load() != want {
						t.Errorf("%d calls in %d deliveries, want %d calls", calls.Load(), entered.Load(), want)
					}
				})
			})
		}
	}
}

// The retry must not come with a key of its own.
//
// https://github.com/medusajs/medusa/issues/16681
func TestF09TheProvidersKeyIsTheEffectsOwn(t *testing.T) {
	race.Skip(t, "plays hours of River's polling")
	var keysOf []map[string][]string
	for name, open := range map[string]func(t *testing.T) ledger.Store{
		"memory": func(*testing.T) ledger.Store { return memledger.New() },
		"sqlite": func(t *testing.T) ledger.Store {
			store, err := sqliteledger.OpenSeamed(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), nil, seam.Real())
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := newCase(t, runs.Config{}, open(t))
				keysOf = append(keysOf, refunds(t, b))
			})
		})
	}
	if len(keysOf) != 2 || fmt.Sprint(keysOf[0]) != fmt.Sprint(keysOf[1]) {
		t.Errorf("the keys depend on the ledger: %v", keysOf)
	}
}

// refunds refunds two lines of an order for the same amount, and charges the first again. The response
// to the first refund is lost, and a person says that it did not happen. It returns the keys that the
// provider saw.
func refunds(t *testing.T, b *bench) map[string][]string {
	var mu sync.Mutex
	keys := map[string][]string{}
	did := map[string]int{}
	start := func() *river.Client[riverharness.Tx] {
		return b.start(func(ctx context.Context, _ *river.Job[riverharness.Args]) error {
			for _, e := range []struct {
				intent string
				line   int
			}{{"refund", 1}, {"refund", 2}, {"charge", 1}} {
				what := fmt.Sprint(e.intent, e.line)
				effect := runs.Effect{Intent: e.intent, Key: runs.Key("order", "A", "line", e.line), Params: map[string]any{"amount": "3.92"}}
				err := runs.FromContext(ctx).Once(ctx, effect, func(_ context.Context, call *runs.Call) error {
					mu.Lock()
					defer mu.Unlock()
					keys[what] = append(keys[what], call.IdempotencyKey)
					if what == "refund1" && len(keys[what]) == 1 {
						return context.DeadlineExceeded // its response is lost
					}
					did[what]++
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	first := start()
	job := b.Insert(args("a"), nil)
	time.Sleep(7 * time.Minute)
	wantState(t, b.Bench, job.ID, rivertype.JobStateCancelled)
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	start() // another worker
	b.decide(false)
	b.again(job.ID)
	time.Sleep(time.Minute)
	wantState(t, b.Bench, job.ID, rivertype.JobStateCompleted)

	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(did) != "map[charge1:1 refund1:1 refund2:1]" {
		t.Errorf("done %v, want each once", did)
	}
	if k := keys["refund1"]; len(k) != 2 || k[0] != k[1] {
		t.Errorf("the first refund's keys are %q, want the same twice", k)
	}
	var distinct []string
	for _, k := range keys {
		distinct = append(distinct, k[0])
		if len(k[0]) > 255 || strings.ContainsFunc(k[0], func(r rune) bool { return r < '!' || r > '~' }) {
			t.Errorf("key %q is too long for a provider, or not printable ASCII", k[0])
		}
	}
	slices.Sort(distinct)
	if n := len(slices.Compact(distinct)); n != 3 {
		t.Errorf("%d different keys of 3 effects", n)
	}
	return keys
}

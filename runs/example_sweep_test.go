package runs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
	"github.com/fencedrun/fencedrun/runs/runstest"
)

// A program that cron starts every few minutes: it opens the workers' ledger, sweeps once, and ends.
// Here the ledger has two refunds of which nobody knows whether they were made.
func ExampleKeeper_Sweep() {
	keeper := inDoubt(nil) // for runs.New(ledger, &runs.Config{Intents: []runs.Declared{refund}})
	defer keeper.Close()

	swept, err := keeper.Sweep(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Printf("asked %d: %d had happened, %d had not, %d stay unknown\n", swept.Asked, swept.Applied, swept.NotApplied, swept.Unknown)
	fmt.Printf("too early for %d, and %d wait for a person\n", swept.NotYet, swept.NoProbe)
	// Output:
	// asked 2: 1 had happened, 1 had not, 0 stay unknown
	// too early for 0, and 0 wait for a person
}

// sweepEvery sweeps at once, and then every interval until ctx is done. Any number of processes may do so.
func sweepEvery(ctx context.Context, keeper *runs.Keeper, interval time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		swept, err := keeper.Sweep(ctx)
		if swept.Asked > 0 {
			log.LogAttrs(ctx, slog.LevelInfo, "swept", slog.Int("asked", swept.Asked),
				slog.Int("applied", swept.Applied), slog.Int("not_applied", swept.NotApplied), slog.Int("unknown", swept.Unknown))
		}
		if err != nil && ctx.Err() == nil {
			log.LogAttrs(ctx, slog.LevelError, "sweep", slog.Any("error", err)) // the next one may do better
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// A worker process that sweeps beside its handlers, until it is told to stop.
func ExampleKeeper_Sweep_ticker() {
	ctx, stop := context.WithCancel(context.Background())
	decided := 0
	keeper := inDoubt(func(_ context.Context, e runs.Event) {
		if e.Kind != runs.EventResolved {
			return
		}
		if decided++; decided == 2 {
			stop() // the process gets its SIGTERM
		}
	})
	defer keeper.Close()

	sweepEvery(ctx, keeper, 5*time.Minute, stdoutLogger())
	// Output:
	// level=INFO msg=swept asked=2 applied=1 not_applied=1 unknown=0
}

// inDoubt returns a keeper over a ledger with two refunds whose outcome nobody knows: one was made and one was not. The
// quiet period is over.
func inDoubt(observer func(context.Context, runs.Event)) *runs.Keeper {
	made := map[string]bool{}
	refund := runs.Intent[string]{
		Name:     "refund",
		Distinct: true,
		Probe: func(_ context.Context, q runs.Question) (runs.Found[string], error) {
			if made[q.IdempotencyKey] {
				return runs.Applied("re_1", "re_1"), nil
			}
			return runs.NotFound[string](), nil
		},
		ReadYourWrites: true,
	}
	k := runstest.NewKeeper(new(exampleT), &runs.Config{Intents: []runs.Declared{refund}, Observer: observer})
	for _, arrives := range []bool{true, false} {
		_, _ = refund.OnceOn(context.Background(), k.Keeper, "thread-7", runs.Key("arrives", arrives), func(_ context.Context, call *runs.Call) (string, error) {
			made[call.IdempotencyKey] = arrives
			return "", errors.New("connection reset by peer")
		})
	}
	k.Advance(5 * time.Minute)
	return k.Keeper
}

// stdoutLogger leaves out the time, so that the output is always the same.
func stdoutLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestTheTickerInTheExampleSweepsAgainAndAgain(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", true)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		unknown(b, p, in, d.send(errNoAnswer))
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			sweepEvery(ctx, p.Keeper, time.Minute, slog.New(slog.DiscardHandler))
		}()
		time.Sleep(10 * time.Minute)
		if _, asked := d.counts(); asked != 1 || p.effect("c").State() != runs.Committed {
			b.Errorf("asked %d times: %s", asked, p.effect("c").State())
		}
		stop()
		<-ended
	})
}

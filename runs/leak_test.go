package runs_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNothingLeaksAfterTenThousandRuns(t *testing.T) {
	before := goleak.IgnoreCurrent()
	k, err := runs.New(memledger.New(), &runs.Config{Lease: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const workers, each = 8, 1250
	endings := []func(ctx context.Context) error{
		idle,
		failing,
		func(ctx context.Context) error { return once(ctx, tag("x"), nothing) },
		func(ctx context.Context) error { return once(ctx, tag("y"), (&provider{}).does(errNoAnswer)) },
		func(context.Context) error { panic("boom") },
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				func() {
					defer func() { _ = recover() }()
					j := job(1)
					j.ID, j.Conversation = strconv.Itoa(i), strconv.Itoa(w)+"/"+strconv.Itoa(i/100)
					if i%2 == 0 {
						j.Mode = runs.Exclusive
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					_ = k.Deliver(ctx, j, runs.Delivery{}, endings[i%len(endings)])
				}()
			}
		})
	}
	wg.Wait()
	if n := runs.Live(k); n != 0 {
		t.Errorf("%d runs are still renewed", n)
	}
	if err := errors.Join(k.Close(), k.Close()); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}

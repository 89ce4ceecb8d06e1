package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Two sweepers and three claimers, each with a keeper and connections of its own, meet at an
// outcome that became unknown: one of them asks the provider, and nobody calls it before it has
// answered (rule S8).
func TestOneProberAtATimeOverServers(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		for round := range 5 {
			proberRound(t, s, fmt.Sprintf("c%d", round), round%2 == 0)
		}
	})
}

// proberRound plays one conversation; happened says whether the first call reached the provider.
func proberRound(t *testing.T, s *server, conversation string, happened bool) {
	t.Helper()
	var calls, probes, inside, crowd, early atomic.Int64
	var answered atomic.Bool
	in := runs.Intent[string]{
		Name: "refund", Timeout: 100 * time.Millisecond, ClaimDeadline: 400 * time.Millisecond, ReadYourWrites: true,
		Probe: func(context.Context, runs.Question) (runs.Found[string], error) {
			probes.Add(1)
			if inside.Add(1) > 1 {
				crowd.Add(1)
			}
			time.Sleep(50 * time.Millisecond)
			inside.Add(-1)
			answered.Store(true)
			if happened {
				return runs.Applied("found", "R"), nil
			}
			return runs.NotFound[string](), nil
		},
	}
	keeper := func() *runs.Keeper {
		k, err := runs.New(s.open(t, s.at), &runs.Config{Intents: []runs.Declared{in}, Quiet: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Close() })
		return k
	}
	call := func(context.Context, *runs.Call) (string, error) {
		if calls.Add(1) > 1 && !answered.Load() {
			early.Add(1)
		}
		return "called", nil
	}
	_, err := in.OnceOn(t.Context(), keeper(), conversation, runs.ID("x"), func(context.Context, *runs.Call) (string, error) {
		return "", errors.New("no answer")
	})
	if outcome := (*runs.OutcomeError)(nil); !errors.As(err, &outcome) {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	until := time.Now().Add(30 * time.Second)
	for range 2 {
		k := keeper()
		all.Go(func() {
			for !answered.Load() && time.Now().Before(until) {
				_, err := k.Sweep(t.Context())
				if _, away := errors.AsType[*runs.LedgerError](err); err != nil && !away {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		k := keeper()
		all.Go(func() {
			for time.Now().Before(until) {
				value, err := in.OnceOn(t.Context(), k, conversation, runs.ID("x"), call)
				if err == nil {
					if want := map[bool]string{true: "found", false: "called"}[happened]; value != want {
						t.Errorf("got %q, want %q", value, want)
					}
					return
				}
				if _, away := errors.AsType[*runs.LedgerError](err); !away && !errors.Is(err, runs.ErrAmbiguous) && !errors.Is(err, runs.ErrInFlight) {
					t.Error(err)
				}
			}
			t.Error("a claimer never got its answer")
		})
	}
	all.Wait()
	want := int64(0)
	if !happened {
		want = 1
	}
	if probes.Load() != 1 || crowd.Load() != 0 || calls.Load() != want || early.Load() != 0 {
		t.Errorf("%d probes, %d beside another; %d calls, want %d, %d before an answer", probes.Load(), crowd.Load(), calls.Load(), want, early.Load())
	}
}

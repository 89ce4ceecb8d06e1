//go:build unix

package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/runs"
)

func installed(t *testing.T, services ...private.Service) {
	t.Helper()
	if err := private.Missing(services); err != nil {
		private.Unavailable(t, err.Error())
	}
}

// The storm's own servers stand still, are killed, and come back, in the middle of it all.
func TestAStormThatStopsItsServersDoublesAndLosesNothing(t *testing.T) {
	t.Parallel()
	installed(t, private.ServicePostgres, private.ServiceRedis)
	r := rage(t, Config{Duration: 2 * short, Seed: 4, Ledger: "postgres", Queue: Asynq, QueueURL: "redis"})
	kept(t, r)
	if !r.Own || r.Stops == 0 || r.Restarts+r.Crashes == 0 {
		t.Errorf("own servers %v: %d stops, %d restarts, %d backends killed: no storm", r.Own, r.Stops, r.Restarts, r.Crashes)
	}
}

// A server that somebody else has started is left in peace.
func TestAServerThatIsNotOnesOwnIsNotStopped(t *testing.T) {
	s := &stage{config: Config{Ledger: "postgres://me@127.0.0.1:1/x", QueueURL: "redis://127.0.0.1:1"}}
	if err := s.startOwn(t.Context()); err != nil || len(s.machines) != 0 || s.owns(s.config.Ledger) {
		t.Fatalf("%v, %d machines", err, len(s.machines))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	if err := errors.Join(s.stop(t.Context(), rng), s.restart(t.Context(), rng)); err != nil || s.counts.stops.Load()+s.counts.restarts.Load() != 0 {
		t.Errorf("%v, %d stops, %d restarts", err, s.counts.stops.Load(), s.counts.restarts.Load())
	}
}

// Ctrl-C ends the storm's own servers, also one that stands still, and removes what they wrote.
func TestAnInterruptedStormEndsItsServers(t *testing.T) {
	installed(t, private.ServicePostgres)
	folder, err := private.NewFolder() // which the servers' account may pass, other than t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	t.Setenv("TMPDIR", folder.Path)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	s := &stage{config: Config{Ledger: "postgres"}}
	if err := s.startOwn(ctx); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { cancel(stopped) })
	if err := s.stop(ctx, rand.New(rand.NewPCG(1, 1))); err != nil || s.counts.stops.Load() != 1 {
		t.Errorf("%v, %d stops", err, s.counts.stops.Load())
	}
	if err := s.machines[0].close(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(folder.Path, "fencedrun-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// What was acknowledged is there after each fault, and a server that stands still does nothing.
func TestAnOwnServerLosesNothingThatItAcknowledged(t *testing.T) {
	installed(t, private.ServicePostgres, private.ServiceRedis)
	for _, kind := range []string{postgres, redisKV} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m, err := startMachine(t.Context(), kind)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.close(); err != nil {
					t.Error(err)
				}
			}()
			p, err := makePlace(t.Context(), m.address(), newTag(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			p.Own = true
			faults := map[string]func() error{
				"restart": func() error { return m.restart(t.Context(), 0) },
				"crash": func() error {
					at := p // with a connection to be killed
					at.URL = named(kind, p.URL, p.Tag, "")
					store, err := at.open(t.Context())
					if err != nil {
						return err
					}
					struck, err := m.crash(t.Context(), p.Tag)
					if struck != (kind == postgres) {
						t.Errorf("a process was killed: %v", struck)
					}
					return errors.Join(err, store.Close())
				},
			}
			for name, fault := range faults {
				if !calls(t, p, name) {
					t.Errorf("%s: an effect that is new was not called", name)
				}
				if err := fault(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if calls(t, p, name) {
					t.Errorf("%s: what was acknowledged is gone", name)
				}
			}
			thaw, err := m.freeze(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			asking, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err = p.open(asking)
			cancel()
			if thaw(); err == nil {
				t.Error("a server that stands still answered")
			}
			if calls(t, p, "restart") || !calls(t, p, "freeze") {
				t.Error("it does not go on where it was")
			}
		})
	}
}

// calls delivers a job, and reports whether its effect was called.
func calls(t *testing.T, p place, name string) (called bool) {
	t.Helper()
	store, err := p.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, err := runs.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	job := runs.Job{Queue: "q", ID: name, Conversation: name, Inbound: []string{"m"}, Digest: "d", Reads: runs.AfterBegin}
	err = k.Do(t.Context(), job, func(ctx context.Context) error {
		return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m")}, func(context.Context, *runs.Call) error {
			called = true
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	return called
}

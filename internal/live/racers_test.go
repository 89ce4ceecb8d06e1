package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Twenty processes with fifty goroutines each are released together on one effect.
const (
	racers     = 20
	goroutines = 50
)

func race(ctx context.Context, w *worker) error {
	store, err := w.open(ctx)
	if err != nil {
		return err
	}
	k, err := runs.New(store, nil)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for start := w.Provider + ".start"; ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(start); err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	err = k.Do(ctx, job(w.Conversation, w.Job), func(ctx context.Context) error {
		var group sync.WaitGroup
		failures := make([]error, goroutines)
		for i := range goroutines {
			group.Go(func() {
				e := runs.Effect{Intent: "reply", Key: runs.ID("m1"), Wait: 40 * time.Second}
				failures[i] = runs.FromContext(ctx).Once(ctx, e, func(context.Context, *runs.Call) error { return w.provide("reply") })
			})
		}
		group.Wait()
		return errors.Join(failures...)
	})
	return errors.Join(err, k.Close())
}

func TestAThousandRacersDoItOnce(t *testing.T) {
	cold := 1
	if os.Getenv("FENCEDRUN_LONG") != "" {
		cold = 10
	}
	for name, base := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			for n := range cold {
				p := base
				p.Worker, p.Conversation, p.Provider = "racer", fmt.Sprint("race ", n), filepath.Join(t.TempDir(), "provider")
				store, err := p.open(t.Context()) // a SQLite file is made by one
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				var group sync.WaitGroup
				for i := range racers {
					racer := p
					racer.Job = fmt.Sprint(n, "-", i)
					group.Go(func() { spawn(t, racer) })
				}
				// Whoever is late finds it done; most are not.
				time.Sleep(2 * time.Second)
				if err := os.WriteFile(p.Provider+".start", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				group.Wait()
				log, err := os.ReadFile(p.Provider)
				if err != nil {
					t.Fatal(err)
				}
				if lines := strings.Count(string(log), "\n"); lines != 1 {
					t.Errorf("cold run %d: done %d times", n, lines)
				}
			}
		})
	}
}

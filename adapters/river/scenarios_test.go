package riverruns_test

import (
	"errors"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/riverharness"
	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/scenarios"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/runs"
)

func TestScenarios(t *testing.T) {
	play(t, func(t *testing.T, fenced *riverruns.Plugin) adaptertest.Queue { return newQueue(t, fenced) })
}

func TestScenariosOnPostgres(t *testing.T) {
	at := private.ServicePostgres.Need(t)
	play(t, func(t *testing.T, fenced *riverruns.Plugin) adaptertest.Queue {
		return riverharness.NewQueue(riverharness.NewOnPostgres(t, at, plugins(fenced)), riverruns.NoteKey, fenced)
	})
}

func play(t *testing.T, queue func(*testing.T, *riverruns.Plugin) adaptertest.Queue) {
	t.Helper()
	scenarios.Run(t, func(t *testing.T, keeper *runs.Keeper, o scenarios.Options) scenarios.Env {
		return scenarios.Env{
			Queue: queue(t, newPlugin(t, keeper, riverruns.Config{
				Inbound: riverruns.FromArgs, Mode: o.Mode, Reads: o.Reads, ReplayOnly: o.ReplayOnly, Unfenced: o.Unfenced,
			})),
			Space:  "river:public",
			Poison: []error{river.JobSnooze(time.Hour), river.JobCancel(errors.New("mine"))},
			Never:  river.JobCancel,
			Later:  func() error { return river.JobSnooze(2 * time.Second) },
		}
	})
}

func newPlugin(t *testing.T, keeper *runs.Keeper, config riverruns.Config) *riverruns.Plugin {
	t.Helper()
	fenced, err := riverruns.NewPlugin(keeper, &config)
	if err != nil {
		t.Fatal(err)
	}
	return fenced
}

func newQueue(t *testing.T, fenced *riverruns.Plugin) *riverharness.Queue {
	t.Helper()
	return riverharness.NewQueue(riverharness.New(t, plugins(fenced)), riverruns.NoteKey, fenced)
}

package asynqruns_test

import (
	"fmt"
	"testing"

	"github.com/hibiken/asynq"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/asynqharness"
	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest/scenarios"
	"github.com/fencedrun/fencedrun/runs"
)

func TestScenarios(t *testing.T) {
	scenarios.Run(t, func(t *testing.T, keeper *runs.Keeper, o scenarios.Options) scenarios.Env {
		return scenarios.Env{
			Queue: newQueue(t, newAdapter(t, keeper, asynqruns.Config{
				Inbound: asynqruns.FromHeaders, Mode: o.Mode, Reads: o.Reads, ReplayOnly: o.ReplayOnly, Unfenced: o.Unfenced,
			})),
			Space:  "asynq:default",
			Poison: []error{asynq.SkipRetry, asynq.RevokeTask},
			Never:  func(err error) error { return fmt.Errorf("%w: %w", err, asynq.SkipRetry) },
		}
	})
}

func newAdapter(t *testing.T, keeper *runs.Keeper, config asynqruns.Config) *asynqruns.Adapter {
	t.Helper()
	fenced, err := asynqruns.New(keeper, &config)
	if err != nil {
		t.Fatal(err)
	}
	return fenced
}

func newQueue(t *testing.T, fenced *asynqruns.Adapter) *asynqharness.Queue {
	t.Helper()
	return asynqharness.NewQueue(asynqharness.New(t), asynqharness.Hooks{
		Middleware: fenced.Middleware,
		Config:     fenced.Config,
		NewTask: func(spec adaptertest.Spec, opts ...asynq.Option) (*asynq.Task, error) {
			if spec.Conversation == "" { // somebody who does not have the adapter
				return asynq.NewTask(asynqharness.Type(), []byte(spec.Payload), opts...), nil
			}
			return fenced.NewTask(t.Context(), asynqharness.Type(), []byte(spec.Payload), asynqruns.Conversation{
				ID: spec.Conversation, Inbound: spec.Inbound, NoInbound: len(spec.Inbound) == 0,
			}, opts...)
		},
	})
}

// Package chaos shows whether a job handler does something twice: it plays the handler on
// simulated time and crashes, redelivers and supersedes it at every call of the ledger and of
// the provider.
package chaos

import (
	"context"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
)

// Provider stands for the world outside, in which a handler's effects happen.
type Provider struct {
	do func(ctx context.Context, deed string) error
}

// Do makes the named deed happen, once more each time it is called: call it from the function
// of an effect, in the place of the real provider. Two deeds are the same one if their names
// are equal: "reply to m1", "refund of order 7".
func (p *Provider) Do(ctx context.Context, deed string) error { return p.do(ctx, deed) }

// Handler is a job handler under test. The run is in ctx; message is the id of the message
// that the job brings, which is the job's Inbound. What it does outside must go through p.
// It must not start goroutines, sleep, or wait for anything but the library and p.
type Handler func(ctx context.Context, message string, p *Provider) error

// Everywhere plays handler with every single fault at every point: a crash before and after
// each call of the ledger and the provider, lost answers, a long pause, a send that arrives
// late, a second delivery while the first is at work, and a newer job on the same
// conversation. It fails tb with the steps of the first world in which a deed is done twice.
//
// The job is one of a conversation of one message, and then of two, in mode supersede, and
// the handler reads the conversation after it was entered. It takes a few seconds.
func Everywhere(tb testing.TB, handler Handler) {
	tb.Helper()
	user := sim.UserHandler(func(ctx context.Context, message string, do func(context.Context, string) error) error {
		return handler(ctx, message, &Provider{do: do})
	})
	e := &sim.Engine{}
	defer e.Close()
	for _, cfg := range []sim.Config{
		{Messages: 1, Budget: 1},
		{Messages: 1, Budget: 1, Twice: true},
		{Messages: 2, Budget: 1},
	} {
		cfg.User, cfg.Provider, cfg.Queue, cfg.Order, cfg.Mode = user, "naive", "asynq", "seq", "supersede"
		cfg.Tag, cfg.Attempts, cfg.Faults = "none", 3, sim.EverywhereFaults
		out := e.Exhaust(cfg, 1500)
		if out.Found == nil {
			continue
		}
		cfg.Frozen = true
		r := e.Replay(cfg, out.Found.Choices, true)
		var b strings.Builder
		_ = r.Terminal(&b)
		tb.Fatalf("chaos: %s\n\n%s", out.Found.Violation, b.String())
		return
	}
}

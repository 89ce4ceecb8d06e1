package chaos_test

import (
	"context"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/chaos"
	"github.com/fencedrun/fencedrun/runs"
)

// recorder is a testing.TB that remembers how it failed.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	if len(args) == 2 {
		r.failure = args[0].(string) + "\n" + args[1].(string)
	}
}

// A handler that sends first and hopes.
func hopeful(ctx context.Context, message string, p *chaos.Provider) error {
	return p.Do(ctx, "reply to "+message)
}

// The same, repaired: the reply is an effect of the run.
func repaired(ctx context.Context, message string, p *chaos.Provider) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID(message), Answers: []string{message}},
		func(ctx context.Context, _ *runs.Call) error { return p.Do(ctx, "reply to "+message) })
}

func TestEverywhereFindsWhatIsDoneTwiceAndShowsIt(t *testing.T) {
	r := &recorder{TB: t}
	chaos.Everywhere(r, hopeful)
	if !strings.Contains(r.failure, "reply to m0 happened 2 times") || !strings.Contains(r.failure, "SEND") {
		t.Errorf("a handler that sends without the library was not found out:\n%s", r.failure)
	}
}

func TestEverywhereFindsNothingInAHandlerThatUsesTheLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("plays some thousand worlds")
	}
	chaos.Everywhere(t, repaired)
}

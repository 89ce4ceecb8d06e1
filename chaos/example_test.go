package chaos_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencedrun/fencedrun/chaos"
	"github.com/fencedrun/fencedrun/runs"
)

// Bot is the handler to be tested. Send reaches the chat provider.
type Bot struct {
	Send func(ctx context.Context, messages []string) error
}

// Careless looks at what is open and answers it. It is under the library and does not use it
// for what it sends.
func (b *Bot) Careless(ctx context.Context) error {
	return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
		if len(view.Open) == 0 {
			return nil
		}
		return b.Send(ctx, view.OpenIDs())
	})
}

// Careful makes the reply an effect, and says which messages it answers.
func (b *Bot) Careful(ctx context.Context) error {
	return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
		open := view.OpenIDs()
		if len(open) == 0 {
			return nil
		}
		reply := runs.Effect{Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open}
		return runs.FromContext(ctx).Once(ctx, reply, func(ctx context.Context, _ *runs.Call) error {
			return b.Send(ctx, open)
		})
	})
}

// everywhere hands a bot a chat provider of chaos: one call, and a deed for each message.
func everywhere(t testing.TB, handle func(*Bot, context.Context) error) {
	chaos.Everywhere(t, func(ctx context.Context, _ string, p *chaos.Provider) error {
		bot := &Bot{Send: func(ctx context.Context, messages []string) error {
			var deeds []string
			for _, id := range messages {
				deeds = append(deeds, "answer to "+id)
			}
			return p.Do(ctx, deeds...)
		}}
		return handle(bot, ctx)
	}, nil)
}

// t prints what a test would fail with; in a test it is the *testing.T.
var t = &printer{}

type printer struct{ testing.TB }

func (*printer) Helper()                           {}
func (*printer) Logf(format string, args ...any)   { fmt.Printf(format+"\n", args...) }
func (*printer) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// A handler that sends outside of run.Once, and what is reported.
func ExampleEverywhere() {
	everywhere(t, (*Bot).Careless)
	// Output:
	// chaos: answer to m0 happened 2 times
	//
	// A shortest story (“w1 j0#2” is worker w1 at the 2nd delivery of job j0):
	//
	//      +0.0s  customer   writes m0, which makes job j0
	//      +0.0s  queue      delivers j0 to w1, delivery 1, and the ledger lets it in
	//      +0.0s  w1 j0#1    SENDS answer to m0
	//      +0.0s  ledger     job j0 ended and left m0 open
	//      +0.0s  ledger     job j0 has ended: success; the queue is told
	//      +0.0s  customer   writes m1, which makes job j1
	//      +0.0s  queue      delivers j1 to w2, delivery 1, and the ledger lets it in
	//      +0.0s  w2 j1#1    SENDS answer to m0 and answer to m1   ◀ WRONG
	//
	// WRONG: answer to m0 happened 2 times
	//
	// What happened twice was sent outside of any effect. Put the call inside run.Once: the
	// ledger then refuses it, or gives back the first result, when it was made before.
}

// The handler of the first example, repaired.
func TestTheRepairedBotDoesNothingTwice(t *testing.T) {
	everywhere(t, (*Bot).Careful)
}

// Package chaos shows whether a job handler does something twice: it plays the handler on
// simulated time and kills its worker, delivers its job again and lets a newer job overtake it
// at every call of the ledger and of the provider.
package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
	"github.com/fencedrun/fencedrun/runs"
)

// Handler is a job handler under test, behind the few lines that make the job of a message. The
// run is in ctx; message is the id of the message that the job brings, and the job's Inbound.
// What the handler does outside must go through p, in the place of the real provider.
//
// One Handler plays all workers, thousands of times: what a worker process holds in memory must
// be made inside it, and so must whatever remembers. It must not start goroutines, sleep, or
// wait for anything but the library and p, and the same calls must lead it the same way.
type Handler func(ctx context.Context, message string, p *Provider) error

// Provider stands for the world outside, in which a handler's effects happen. What is asked of
// it may be lost on the way, may happen and its answer be lost, or may happen when nobody waits
// for it any more.
type Provider struct{ o *sim.Outside }

// Do makes the named deeds happen with one call, each once more whenever it is called. Two
// deeds are the same if their names are equal, so a name must say what must not happen twice:
// "answer to m0", "refund of order 7". A reply that answers two messages is one call with two
// deeds. Its errors are like a provider's: one that is [runs.NotApplied] certainly did nothing.
func (p *Provider) Do(ctx context.Context, deeds ...string) error { return p.o.Do(ctx, "", deeds...) }

// DoOnce is Do at a provider that honours idempotency keys: it does nothing, and says that all
// is well, when it has done a call with this key before. The key is [runs.Call.IdempotencyKey].
func (p *Provider) DoOnce(ctx context.Context, key string, deeds ...string) error {
	return p.o.Do(ctx, key, deeds...)
}

// Happened reports whether a deed was done, as somebody who reads the conversation sees it.
func (p *Provider) Happened(deed string) bool { return p.o.Happened(deed) }

// Messages returns the ids of the messages that customers have written so far, oldest first.
func (p *Provider) Messages() []string { return p.o.Messages() }

// Config says how thoroughly [Everywhere] looks. The zero Config, and nil, mean the defaults.
type Config struct {
	// Messages is how many messages the customer writes, at most 4. It is tried with one, with
	// two, and so on up to this. Default 2.
	Messages int
	// Mode is that of the jobs. Default runs.Supersede.
	Mode runs.Mode
	// Depth is how many things go wrong in one world, or come at another moment, at most 3.
	// Default 2, and 1 under go test -short.
	Depth int
	// Worlds is after how many worlds it is enough, whatever is left. Default 5,000, which takes
	// some seconds.
	Worlds int
}

// Everywhere plays handler in a world in which nothing goes wrong; then, in one world each, with
// every single thing that can go wrong at every call of the ledger and of the provider, with one
// message, with two, and so on; and then with two of them, in the same order, as far as
// Config.Worlds reaches. With the defaults every single thing is usually tried, and not every
// two with two messages: what it logs names what was played to its end. What can go wrong: the worker is killed before the call or after it, the call fails, its
// answer is lost, it happens late, the worker freezes for longer than its claim may last, the
// queue delivers the job a second time, the message comes again under another job's id, and a
// newer message makes a newer job. A job that is stopped because nobody knows what became of a
// call is run again after a person has found out.
//
// It fails tb with the steps of a shortest world in which a deed is done twice, and when the
// handler fails, or does nothing at all, although nothing went wrong. The jobs' orders are
// their messages', and the handler reads what it reads after it was entered
// ([runs.AfterBegin]). The same handler meets the same worlds each time.
func Everywhere(tb testing.TB, handler Handler, config *Config) {
	tb.Helper()
	var c Config
	if config != nil {
		c = *config
	}
	if c.Messages < 0 || c.Messages > 4 {
		tb.Fatalf("chaos: Config.Messages is %d: it can be 1 to 4, or 0 for 2", c.Messages)
		return
	}
	if c.Depth < 0 || c.Depth > 3 {
		tb.Fatalf("chaos: Config.Depth is %d: it can be 1 to 3, or 0 for 2", c.Depth)
		return
	}
	if c.Mode != "" && c.Mode != runs.Supersede && c.Mode != runs.Exclusive {
		tb.Fatalf("chaos: Config.Mode is %q: it can be runs.Supersede or runs.Exclusive", c.Mode)
		return
	}
	if c.Worlds < 0 {
		tb.Fatalf("chaos: Config.Worlds is %d: it can be 1 or more, or 0 for 5000", c.Worlds)
		return
	}
	if c.Messages == 0 {
		c.Messages = 2
	}
	if c.Mode == "" {
		c.Mode = runs.Supersede
	}
	if c.Worlds == 0 {
		c.Worlds = 5000
	}
	if c.Depth == 0 {
		c.Depth = 2
		if testing.Short() {
			c.Depth = 1
		}
	}
	e := &sim.Engine{}
	defer e.Close()
	user := &sim.User{Messages: c.Messages, Mode: c.Mode, Depth: c.Depth, Worlds: c.Worlds}
	user.Fn = func(ctx context.Context, message string, o *sim.Outside) error {
		return handler(ctx, message, &Provider{o})
	}
	out := e.Everywhere(user)
	switch {
	case out.Found != nil:
		var b strings.Builder
		if err := e.Report(&b, out.Found); err != nil {
			tb.Fatalf("chaos: %v", err)
			return
		}
		tb.Fatalf("chaos: %s\n\n%s", out.Found.Violation, b.String())
	case out.Err != nil:
		tb.Fatalf("chaos: the handler fails although nothing goes wrong: %v", out.Err)
	case out.Deeds == 0:
		tb.Fatalf("chaos: the handler has done nothing through its Provider although nothing goes wrong: nothing is tested")
	case !out.Complete:
		tb.Logf("chaos: nothing was done twice in %d worlds, after which Config.Worlds ended the search; %s", out.Worlds, played(out.Levels))
	default:
		tb.Logf("chaos: nothing was done twice in %d worlds: all in which up to %d things go wrong; %s", out.Worlds, c.Depth, played(out.Levels))
	}
}

// played says which levels were played to their end.
func played(levels []sim.Level) string {
	if len(levels) == 0 {
		return "not even every single thing was tried"
	}
	list := make([]string, len(levels))
	for i, l := range levels {
		things, messages := "every single thing", "1 message"
		if l.Wrong > 1 {
			things = fmt.Sprintf("every %d things", l.Wrong)
		}
		if l.Messages > 1 {
			messages = fmt.Sprintf("%d messages", l.Messages)
		}
		list[i] = things + " with " + messages
	}
	return "tried: " + strings.Join(list, ", ")
}

package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/runs"
)

// frozen plays the case that every support team fears: the first reply times out, nobody
// knows whether the customer has it, and four more messages follow.
type frozen struct {
	w     *World
	skip  int // effects that come before the first reply
	pause int // between messages, as the world's choice
}

// others is how many effects a handler makes before its reply.
var others = map[string]int{"refund": 1, "parallel": 2, "haggler": 1}

// choose answers what the world asks. The only fault that is switched on is the timeout, so a
// question with two answers inside an effect is about it; the scheduler's question with four
// answers is when the next message comes.
func (f *frozen) choose(n int) int {
	switch {
	case f.w == nil || f.w.calm:
		return 0
	case f.w.cur != nil && n == 2:
		if f.skip--; f.skip == -1 {
			return 1
		}
	case f.w.cur == nil && n == 4:
		return f.pause
	}
	return 0
}

// thaw is what became of it: until operators came, and in the end.
type thaw struct {
	answered, thoughts, stopped  int
	later, laterThoughts, double int
	bad                          string
}

func (e *Engine) freeze(cfg Config, pause int) thaw {
	src := &frozen{skip: others[cfg.Handler], pause: pause}
	cfg.Messages, cfg.Budget, cfg.Tag, cfg.Queue, cfg.Order = 5, 1, "none", "river", "seq"
	w := newWorld(cfg, &choices{source: src}, &e.pool, &e.Cov, false)
	defer w.close()
	src.w = w
	w.loop()
	if w.bad == "" {
		w.quiet()
	}
	is := thaw{thoughts: w.tally.Thoughts}
	for _, j := range w.jobs {
		if j.state == parked || j.state == discarded {
			is.stopped++
		}
	}
	is.answered, is.double = answeredIn(w)
	for range 6 {
		if cfg.Without || w.bad != "" || !w.operate() {
			break
		}
		w.loop()
	}
	is.laterThoughts = w.tally.Thoughts
	is.later, is.double = answeredIn(w)
	is.bad = w.bad
	return is
}

func answeredIn(w *World) (answered, double int) {
	for i := range w.arrived {
		if w.prov.agent[i] > 0 {
			answered++
		}
		double += max(w.prov.agent[i]-1, 0)
	}
	return answered, double
}

// testdata/freeze.golden says, for each kind of handler, how many of the five messages are
// answered while the first reply is unknown, how many model calls that took, and how it ends
// once a person has decided.
func TestTheFrozenConversation(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	var b strings.Builder
	b.WriteString(`The first reply times out, then four more messages come.
unknown: messages answered of 5 / model calls, while nobody knows about the first reply
stopped: jobs that a person finds stopped
decided: the same once the person has decided truthfully and run them again
without: the same without the library
`)
	does := map[Fault]string{TimeoutBefore: "it was never sent", TimeoutAfter: "it was sent"}
	for _, fault := range []Fault{TimeoutBefore, TimeoutAfter} {
		for _, arm := range []struct {
			provider, pause string
			choice          int
		}{{"naive", "five minutes", 3}, {"naive", "two seconds", 1}, {"honours", "five minutes", 3}} {
			fmt.Fprintf(&b, "\n%s: %s; provider %s; a message every %s\n", fault, does[fault], arm.provider, arm.pause)
			fmt.Fprintf(&b, "%-20s %-8s %-8s %-8s %s\n", "handler", "unknown", "stopped", "decided", "without")
			for i := range Handlers {
				cfg := Config{Handler: Handlers[i].Name, Faults: Faults(fault), Provider: arm.provider, Mode: runs.Supersede}
				with := e.freeze(cfg, arm.choice)
				if with.bad != "" || with.double > 0 {
					t.Errorf("%s, %s, %s, %s: %d answered twice; %s", fault, arm.provider, arm.pause, cfg.Handler, with.double, with.bad)
				}
				cfg.Without = true
				bare := e.freeze(cfg, arm.choice)
				doubled := ""
				if bare.double > 0 {
					doubled = fmt.Sprintf(", %d twice", bare.double)
				}
				fmt.Fprintf(&b, "%-20s %d / %-4d %-8d %d / %-4d %d / %d%s\n", cfg.Handler, with.answered, with.thoughts, with.stopped,
					with.later, with.laterThoughts, bare.answered, bare.thoughts, doubled)
			}
		}
	}
	golden(t, "freeze.golden", b.String())
}

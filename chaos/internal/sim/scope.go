package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencedrun/fencedrun/runs"
)

// smallFaults are those that an exhaustive scope tries at every step: a crash, a lost answer of
// the ledger, a provider that refuses, a timeout before and after the provider did it, a send
// that arrives after its error was returned, and a pause longer than a claim's deadline.
var smallFaults = Faults(CrashBefore, CrashAfter, LostAck, NotApplied, TimeoutBefore, TimeoutAfter, LateSend, PauseDeadline)

// scope is a small world of which every order of steps and every fault is played.
type scope struct {
	name, does string
	cfg        Config
	fine       bool // not Coarse
}

var scopes = []scope{
	{"one-run", "one run of two effects, at most two faults", Config{Handler: "all", Tag: "last", Messages: 1, Budget: 2}, false},
	{"one-run-twice", "the same, its job delivered twice, at most one fault", Config{Handler: "all", Tag: "last", Messages: 1, Budget: 1, Twice: true}, false},
	{"two-runs", "two runs of two effects that catch up, at most one fault", Config{Handler: "all", Tag: "last", Messages: 2, Budget: 1}, false},
	{"two-runs-own", "the same, answering only their own message", Config{Handler: "own-answers", Tag: "last", Messages: 2, Budget: 1}, false},
	{"two-runs-one-effect", "two runs of one effect, at most two faults", Config{Handler: "own-answers", Tag: "none", Messages: 2, Budget: 2}, false},
	{"two-runs-two-faults", "two runs of two effects, at most two faults", Config{Handler: "own-answers", Tag: "last", Messages: 2, Budget: 2}, false},
	{"two-runs-twice", "two runs of one effect, the first job twice, at most one fault", Config{Handler: "own-answers", Tag: "none", Messages: 2, Budget: 1, Twice: true, TwiceFirst: true}, false},
	{"two-runs-fine", "two runs of one effect, no fault, in smaller steps", Config{Handler: "own-answers", Tag: "none", Messages: 2, Budget: -1}, true},
}

// ScopeNotes says what a scope plays and what it leaves out.
const ScopeNotes = `Every scope plays the library over a naive provider under River's queue, in mode
supersede, with orders from one source and three attempts. Time passes only when nothing
else can happen. At each step these faults are tried: a crash, a lost answer of the
ledger, a provider that refuses, a timeout before and after the provider did it, a send
that arrives late, and a pause longer than a claim's deadline. A crash is tried after
whatever changes something, and before a delivery's first step; anywhere else it is the
same as one of these.

What is left out: a step is one load-decide-write of the ledger, one call of the provider
or one look at the conversation; what a run does after its handler has returned is one
step. Whoever comes in between the load and the write of another only makes its
compare-and-swap fail, and two-runs-fine, which lets them, ends in the same ways.
Renewals come as soon as they are due and do not fail, and so does what the queue is
told: the campaigns of random worlds let them.
`

// ScopeNames lists the exhaustive scopes.
func ScopeNames() []string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = s.name
	}
	return names
}

// ScopeDoes says in a few words what a scope plays.
func ScopeDoes(name string) string {
	for _, s := range scopes {
		if s.name == name {
			return s.does
		}
	}
	return ""
}

// Scope returns the configuration of an exhaustive scope.
func Scope(name string) (Config, error) {
	i := slices.IndexFunc(scopes, func(s scope) bool { return s.name == name })
	if i < 0 {
		return Config{}, fmt.Errorf("no scope is called %q: %s", name, strings.Join(ScopeNames(), ", "))
	}
	cfg := scopes[i].cfg
	cfg.Provider, cfg.Queue, cfg.Order, cfg.Mode = "naive", "river", "seq", runs.Supersede
	cfg.Attempts, cfg.Faults = 3, smallFaults
	cfg.Coarse = !scopes[i].fine
	return cfg, nil
}

// OutOfReach says why the simulator's worlds cannot notice that a rule is switched off.
var OutOfReach = map[string]string{
	"numbers-restart":   "out of reach: no world loses a whole conversation and begins it anew",
	"purge-before-run":  "out of reach: no world lasts longer than the retention",
	"purges-unresolved": "out of reach: no world lasts longer than the retention",
	"dropped-silently":  "out of reach: no world lasts longer than the retention",
	"vanished-ignored":  "out of reach: claims are durable, so no crash of a world's ledger takes one",
}

// Unreachable says why a campaign never sees something that it should: see wanted.
var Unreachable = map[string]string{
	"effect failed → committed (late)":   "people tell the truth in these worlds, and a provider that said no keeps to it",
	"effect committed → [*] (retention)": outlived, "effect failed → [*] (retention)": outlived,
	"run ended → [*] (retention)": outlived, "run cancelled → [*] (retention)": outlived,
	"event inbound_dropped": outlived, "event purged": outlived,
	"event vanished":      "claims are durable: no crash of the ledger takes one",
	"reason not_started":  "the ledger asks under another claim id once a call whose answer was lost has been decided",
	"reason wait_timeout": "no kind of handler waits for the winner of a race",
	"reason invalid":      "the producers of these worlds make no jobs that cannot be run",
}

const outlived = "no world lasts longer than the retention"

// seldom is what a campaign may see and need not.
var seldom = map[string]string{
	"event duplicate": "two calls under one key that the provider honours both report success: docs/found-by-chaos.md",
}

// Matrix renders which faults struck at which kinds of yield, and what the library answered.
func (c *Coverage) Matrix() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s", "fault")
	for _, name := range kindNames {
		fmt.Fprintf(&b, "%9s", name)
	}
	fmt.Fprintf(&b, "%11s\n", "by itself")
	for f := Fault(1); f < faults; f++ {
		fmt.Fprintf(&b, "%-16s", f)
		for k := range c.Struck[f] {
			n := "."
			if c.Struck[f][k] > 0 {
				n = fmt.Sprint(c.Struck[f][k])
			}
			width := 9
			if k == len(c.Struck[f])-1 {
				width = 11 // the heading of the last column has two words
			}
			fmt.Fprintf(&b, "%*s", width, n)
		}
		b.WriteByte('\n')
	}
	line(&b, "effects", c.Reasons)
	line(&b, "verdicts", c.Actions)
	line(&b, "events", c.Events)
	return b.String()
}

func line[K ~string](b *strings.Builder, title string, counts map[K]int) {
	names := make([]string, 0, len(counts))
	for k := range counts {
		names = append(names, string(k))
	}
	slices.Sort(names)
	fmt.Fprintf(b, "%s:", title)
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, " %s %d", strings.TrimSpace(n), counts[K(n)])
	}
	b.WriteByte('\n')
}

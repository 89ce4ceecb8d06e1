package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencedrun/fencedrun/runs"
)

// smallFaults are those that an exhaustive scope tries at every yield.
var smallFaults = Faults(CrashBefore, CrashAfter, LostAck, NotApplied, TimeoutBefore, TimeoutAfter, LateSend, PauseDeadline)

var scopes = []struct {
	name string
	cfg  Config
}{
	{"one-run", Config{Handler: "all", Tag: "last", Messages: 1, Budget: 2}},
	{"one-run-twice", Config{Handler: "all", Tag: "last", Messages: 1, Budget: 1, Twice: true}},
	{"two-runs", Config{Handler: "all", Tag: "last", Messages: 2, Budget: 2}},
	{"two-runs-own", Config{Handler: "own", Tag: "last", Messages: 2, Budget: 1}},
	{"two-runs-twice", Config{Handler: "all", Tag: "last", Messages: 2, Budget: 1, Twice: true}},
}

// ScopeNames lists the exhaustive scopes.
func ScopeNames() []string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = s.name
	}
	return names
}

// Scope returns the configuration of an exhaustive scope.
func Scope(name string) (Config, error) {
	i := slices.IndexFunc(scopes, func(s struct {
		name string
		cfg  Config
	}) bool {
		return s.name == name
	})
	if i < 0 {
		return Config{}, fmt.Errorf("no scope is called %q: %s", name, strings.Join(ScopeNames(), ", "))
	}
	cfg := scopes[i].cfg
	cfg.Provider, cfg.Queue, cfg.Order, cfg.Mode = "naive", "river", "seq", runs.Supersede
	cfg.Attempts, cfg.Faults = 3, smallFaults
	return cfg, nil
}

// OutOfReach says why the simulator's worlds cannot notice that a rule is switched off.
var OutOfReach = map[string]string{
	"numbers-restart":   "out of reach: no world loses a whole conversation and begins it anew",
	"purge-before-run":  "out of reach: no world lasts longer than the retention",
	"purges-unresolved": "out of reach: no world lasts longer than the retention",
	"dropped-silently":  "out of reach: no world lasts longer than the retention",
	"vanished-ignored":  "out of reach: claims are durable, so no crash of a world's ledger takes one",

	"own-answer-supersedes": "out of reach: the oracles judge answers, refunds and tags, not what a job leaves undone after its answer",
}

// Matrix renders which faults struck at which kinds of yield, and what the library answered.
func (c *Coverage) Matrix() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s", "fault")
	for _, name := range kindNames {
		fmt.Fprintf(&b, "%9s", name)
	}
	fmt.Fprintf(&b, "%9s\n", "by itself")
	for f := Fault(1); f < faults; f++ {
		fmt.Fprintf(&b, "%-16s", f)
		for k := range c.Struck[f] {
			n := "."
			if c.Struck[f][k] > 0 {
				n = fmt.Sprint(c.Struck[f][k])
			}
			fmt.Fprintf(&b, "%9s", n)
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

package sim

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/runs"
)

// rareWorlds are those in which something happens that random worlds seldom see.
var rareWorlds = []Config{
	{Rate: 25, Messages: 1, Faults: Faults(Cancel, EditedJob, CrashBefore)},
	{Rate: 30, Handler: "replay-only"},
	{Rate: 25, Faults: Faults(Echo, TimeoutAfter, LateSend, CrashAfter, EffectHangs)},
	Focused(sabotage.TakenForgotten).Config,
}

// A campaign of a few thousand worlds sees every fault at every kind of yield, every outcome,
// refusal, verdict and event, and every edge of docs/states.md.
func TestACampaignHasNoGap(t *testing.T) {
	if race.Enabled || testing.Short() {
		t.Skip("takes some thousand worlds")
	}
	e := &Engine{}
	defer e.Close()
	play := func(cfg Config, seed uint64) {
		if r := e.Seed(cfg, seed, false); r.Violation != "" {
			t.Errorf("seed %d of %+v: %s: %s", seed, cfg, r.Kind, r.Violation)
		}
	}
	for _, cfg := range rareWorlds {
		cfg.Off = sabotage.Set{}
		for seed := uint64(1); seed <= 150; seed++ {
			play(cfg, seed)
		}
	}
	gaps := e.Cov.Gaps()
	seed := uint64(1)
	for ; len(gaps) > 0 && seed < 4000; seed++ {
		if play(Campaign{}.Vary(seed), seed); seed%50 == 0 {
			gaps = e.Cov.Gaps()
		}
	}
	t.Logf("%d random worlds and %d others", seed-1, 150*len(rareWorlds))
	for _, gap := range gaps {
		t.Errorf("never seen: %s", gap)
	}
	have := e.Cov.have()
	for what, why := range Unreachable {
		if have[what] > 0 {
			t.Errorf("%s is seen, although %s: take it out of Unreachable", what, why)
		}
	}
}

func TestGapsAreToldOneByOne(t *testing.T) {
	full := func() *Coverage {
		c := &Coverage{Edges: map[edge]int{}, Reasons: map[runs.Reason]int{}, Actions: map[string]int{}, Events: map[runs.EventKind]int{}}
		for f := range c.Struck {
			for k := range c.Struck[f] {
				c.Struck[f][k] = 1
			}
		}
		for _, e := range edges {
			c.Edges[e] = 1
		}
		for _, what := range outcomes {
			c.Reasons[runs.Reason(what)] = 1
		}
		for _, what := range actions {
			c.Actions[string(what)] = 1
		}
		for _, what := range reasons {
			c.Actions["stop "+string(what)] = 1
		}
		for _, what := range events {
			c.Events[what] = 1
		}
		return c
	}
	if gaps := full().Gaps(); len(gaps) > 0 {
		t.Fatalf("nothing is missing: %v", gaps)
	}
	for k, list := range faultsAt {
		for _, f := range list {
			c := full()
			c.Struck[f][k] = 0
			if gaps := c.Gaps(); len(gaps) != 1 {
				t.Errorf("without %s at a %s: %v", f, kindNames[k], gaps)
			}
		}
	}
	without := func(name string, take func(c *Coverage)) {
		t.Helper()
		c := full()
		take(c)
		excused := Unreachable[name] != "" || seldom[name] != ""
		if gaps := c.Gaps(); excused && len(gaps) != 0 || !excused && !slices.Equal(gaps, []string{name}) {
			t.Errorf("without %s: %v", name, gaps)
		}
	}
	for _, e := range edges {
		without(e.String(), func(c *Coverage) { delete(c.Edges, e) })
	}
	for _, what := range outcomes {
		without("effect "+what, func(c *Coverage) { delete(c.Reasons, runs.Reason(what)) })
	}
	for _, what := range reasons {
		without("reason "+string(what), func(c *Coverage) { delete(c.Actions, "stop "+string(what)) })
	}
	for _, what := range actions {
		without("verdict "+string(what), func(c *Coverage) { delete(c.Actions, string(what)) })
	}
	for _, what := range events {
		without("event "+string(what), func(c *Coverage) { delete(c.Events, what) })
	}
	for name := range Unreachable {
		if !slices.Contains(wanted(), name) {
			t.Errorf("Unreachable excuses %q, which nobody wants", name)
		}
	}
}

// The edges are those that docs/states.md draws, no more and no fewer.
func TestTheEdgesAreThoseOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, effects, _ := strings.Cut(string(text), "## An effect")
	effects, rest, _ := strings.Cut(effects, "## A run")
	aRun, _, _ := strings.Cut(rest, "## A delivery")
	ours := map[string]bool{}
	for _, e := range edges {
		ours[e.thing+e.from+e.to] = true
	}
	drawn := map[string]bool{}
	arrow := regexp.MustCompile(`(?m)^ +(\S+) --> (\S+?): `)
	for thing, section := range map[string]string{"effect": effects, "run": aRun} {
		_, diagram, _ := strings.Cut(section, "stateDiagram-v2")
		diagram, _, _ = strings.Cut(diagram, "```")
		for _, m := range arrow.FindAllStringSubmatch(diagram, -1) {
			drawn[thing+m[1]+m[2]] = true
			if !ours[thing+m[1]+m[2]] {
				t.Errorf("docs/states.md draws %s %s → %s, and no campaign looks for it", thing, m[1], m[2])
			}
		}
	}
	if len(drawn) < 15 {
		t.Fatalf("only %d arrows found in docs/states.md", len(drawn))
	}
	for _, e := range edges {
		if !drawn[e.thing+e.from+e.to] {
			t.Errorf("docs/states.md does not draw %s", e)
		}
	}
}

// An edge that is crossed and that no list knows would go unseen.
func TestEveryEdgeCrossedIsKnown(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for seed := uint64(1); seed < sample(300); seed++ {
		e.Seed(Campaign{}.Vary(seed), seed, false)
	}
	known := wanted()
	for name := range e.Cov.Edges {
		if !slices.Contains(known, name.String()) {
			t.Errorf("%s was crossed, and docs/states.md has no such arrow", name)
		}
	}
}

func TestWantedHasEveryWord(t *testing.T) {
	for file, lists := range map[string]map[string]string{
		"../../../fence/words.go":  {"Reason": "reason ", "EventKind": "event "},
		"../../../runs/verdict.go": {"Action": "verdict "},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for kind, prefix := range lists {
			found := regexp.MustCompile(`(?m)^\s+\w+\s+`+kind+`\s+= "(\w+)"`).FindAllStringSubmatch(string(text), -1)
			if len(found) < 8 {
				t.Errorf("only %d words of %s found in %s", len(found), kind, file)
			}
			for _, m := range found {
				if !slices.Contains(wanted(), prefix+m[1]) {
					t.Errorf("no campaign looks for %s%s", prefix, m[1])
				}
			}
		}
	}
}

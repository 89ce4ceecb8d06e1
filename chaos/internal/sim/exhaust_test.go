package sim

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// The counts are pinned: another count means that the rules, or what the worlds can do, have
// changed. Scopes of more worlds than can be waited for here are left to FENCEDRUN_EXHAUST=1;
// FENCEDRUN_EXHAUST=2 writes the golden file.
func TestExhaustiveScopes(t *testing.T) {
	race.Skip(t, "thousands of worlds, in which one goroutine runs at a time")
	const golden = "testdata/exhaustive.golden"
	const patience = 6000 // worlds
	mode := env("FENCEDRUN_EXHAUST", 0)
	text, err := os.ReadFile(golden)
	if err != nil && mode != 2 {
		t.Fatal(err)
	}
	e := &Engine{}
	defer e.Close()
	var b bytes.Buffer
	for _, name := range ScopeNames() {
		cfg, err := Scope(name)
		if err != nil {
			t.Fatal(err)
		}
		line := countsOf(string(text), name)
		if line == "" && mode != 2 {
			t.Errorf("%s has no line in %s", name, golden)
			continue
		}
		var worlds int
		if _, err := fmt.Sscanf(line, name+" %d states %d worlds", new(int), &worlds); err != nil && mode != 2 {
			t.Fatal(err)
		}
		if mode == 0 && worlds > patience {
			continue
		}
		e.Workers = 1
		if worlds > patience {
			e.Workers = runtime.GOMAXPROCS(0)
		}
		out := e.Exhaust(cfg, 0)
		if out.Found != nil {
			t.Errorf("%s: %s: %s\n%v", name, out.Found.Kind, out.Found.Violation, out.Found.Choices)
		}
		got := fmt.Sprintf("%s %d states %d worlds", name, out.States, out.Worlds)
		if mode > 0 {
			t.Log(got) // the larger ones take minutes
		}
		if mode == 2 {
			fmt.Fprintln(&b, got)
		} else if got != line {
			t.Errorf("%s, and pinned is: %s", got, line)
		}
	}
	if mode == 2 && !t.Failed() {
		if err := os.WriteFile(golden, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func countsOf(text, name string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+" ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// ends returns every way in which a search's worlds end, and how often it found one.
func ends(s *exploration) map[string]int {
	var mu sync.Mutex
	found := map[string]int{}
	s.all = true
	s.ended = func(w *World) {
		var b strings.Builder
		fmt.Fprint(&b, w.badKind, w.prov.agent[:w.messages], " parked ", w.tally.Parked, w.tally.FalselyParked, w.tally.Needless)
		for _, j := range w.jobs {
			fmt.Fprint(&b, " ", j.id, " ", j.state, " ", j.reason)
		}
		mu.Lock()
		found[b.String()]++
		mu.Unlock()
	}
	e := &Engine{Workers: runtime.GOMAXPROCS(0)}
	defer e.Close()
	s.run(e)
	return found
}

func tiny(handler, tag string, messages, budget int, faults FaultSet, off ...sabotage.Name) Config {
	cfg, err := Scope("one-run")
	if err != nil {
		panic(err)
	}
	cfg.Handler, cfg.Tag, cfg.Messages, cfg.Budget, cfg.Faults, cfg.Off = handler, tag, messages, budget, faults, sabotage.Of(off...)
	return cfg
}

// What is given up because it was seen before must have nothing new behind it.
func TestASearchThatPrunesMissesNoEnd(t *testing.T) {
	twice := tiny("own-answers", "none", 1, -1, smallFaults)
	twice.Twice = true
	cases := map[string]Config{
		"one run, twice":             twice,
		"one run, one fault":         tiny("all", "last", 1, 1, smallFaults),
		"one run, two crashes":       tiny("own-answers", "none", 1, 2, Faults(CrashAfter, LateSend)),
		"two runs":                   tiny("own-answers", "none", 2, -1, smallFaults),
		"ambiguous is retried":       tiny("all", "none", 1, 1, smallFaults, sabotage.AmbiguousRetried),
		"claims are not durable":     tiny("all", "none", 1, 1, smallFaults, sabotage.ClaimNotDurable),
		"a timeout is a failure":     tiny("own-answers", "none", 1, 1, smallFaults, sabotage.TimeoutMeansFailed),
		"two runs, no conversation":  tiny("own-answers", "none", 2, -1, smallFaults, sabotage.NoConversationCheck),
		"two runs, answers are lost": tiny("own-answers", "none", 2, -1, smallFaults, sabotage.AnswersIgnored),
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		whole := ends(&exploration{cfg: cases[name], unpruned: true})
		short := ends(&exploration{cfg: cases[name]})
		n := 0
		for end, times := range whole {
			n += times
			if short[end] == 0 {
				t.Errorf("%s: missed: %s", name, end)
			}
		}
		if len(short) > len(whole) {
			t.Errorf("%s: %d ends instead of %d", name, len(short), len(whole))
		}
		t.Logf("%s: %d ends, %d ways to them", name, len(whole), n)
	}
}

// Whoever comes in between the load and the write of another changes no end.
func TestCoarseStepsMissNoEnd(t *testing.T) {
	coarse := tiny("own-answers", "none", 2, -1, smallFaults)
	fine := coarse
	fine.Coarse = false
	a, b := ends(&exploration{cfg: coarse}), ends(&exploration{cfg: fine})
	for end := range b {
		if a[end] == 0 {
			t.Errorf("coarse steps miss: %s", end)
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d and %d ends", len(a), len(b))
	}
}

// A state that says too little would be explored on one way and given up on another.
func TestTheOrderOfASearchMakesNoDifference(t *testing.T) {
	race.Skip(t, "thousands of worlds, in which one goroutine runs at a time")
	twice := tiny("own-answers", "none", 1, 1, smallFaults)
	twice.Twice = true
	first := tiny("own-answers", "none", 2, -1, smallFaults)
	first.Twice, first.TwiceFirst = true, true
	for name, cfg := range map[string]Config{
		"one run":                       tiny("all", "last", 1, 1, smallFaults),
		"two runs":                      tiny("own-answers", "last", 2, -1, smallFaults),
		"one run, twice":                twice,
		"two runs, the first one twice": first,
	} {
		e := &Engine{}
		forwards := (&exploration{cfg: cfg}).run(e)
		backwards := (&exploration{cfg: cfg, backwards: true}).run(e)
		e.Workers = 3
		together := (&exploration{cfg: cfg}).run(e)
		e.Close()
		if forwards.States != backwards.States || forwards.Worlds != backwards.Worlds {
			t.Errorf("%s: %d states, %d worlds, and backwards %d states, %d worlds", name, forwards.States, forwards.Worlds, backwards.States, backwards.Worlds)
		}
		if together.States != forwards.States || together.Worlds != forwards.Worlds || !together.Complete {
			t.Errorf("%s: %d states, %d worlds, and by three together %d states, %d worlds", name, forwards.States, forwards.Worlds, together.States, together.Worlds)
		}
	}
}

// The searches above would not notice a state that says too little if nothing bad lay behind
// it. So every step of every way is compared: from equal states, equal events lead to equal
// states.
func TestEqualStatesHaveEqualFutures(t *testing.T) {
	race.Skip(t, "thousands of worlds, in which one goroutine runs at a time")
	twice := tiny("all", "none", 1, -1, smallFaults)
	twice.Twice = true
	for name, cfg := range map[string]Config{
		"one run":                tiny("all", "last", 1, 1, smallFaults),
		"one run, two crashes":   tiny("own-answers", "none", 1, 2, Faults(CrashAfter, LateSend)),
		"two runs":               tiny("own-answers", "none", 2, -1, smallFaults),
		"one run, two at a time": twice,
	} {
		type edge struct {
			from  uint64
			event string
		}
		known := map[edge]uint64{}
		var from uint64
		at := 0
		step := func(w *World) {
			to := w.state()
			if at > 0 && at <= len(w.c.log) {
				e := edge{from, fmt.Sprint(w.c.log[at:])}
				if before, ok := known[e]; ok && before != to {
					t.Errorf("%s: one event %v leads from one state to two: %v", name, e.event, w.c.log)
				}
				known[e] = to
			}
			from, at = to, len(w.c.log)
		}
		s := &exploration{cfg: cfg, unpruned: true, all: true, most: 1000, step: step}
		s.ended = func(*World) { at = 0 }
		e := &Engine{}
		s.run(e)
		e.Close()
		t.Logf("%s: %d ways, %d edges", name, s.worlds, len(known))
	}
}

// Small worlds that are played to the end notice what random ones may take long to meet.
func TestExhaustiveScopesNoticeSabotage(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for name, scope := range map[sabotage.Name]string{
		sabotage.FenceStands:          "one-run",
		sabotage.ClaimNotDurable:      "one-run",
		sabotage.ExpiredBecomesFailed: "one-run",
		sabotage.AmbiguousRetried:     "one-run",
		sabotage.TimeoutMeansFailed:   "one-run",
		sabotage.LateStartCalls:       "one-run",
		sabotage.OwnClaimUnknown:      "one-run",
		sabotage.BeginNonceIgnored:    "one-run",
		sabotage.FinishedRunsAgain:    "one-run-twice",
		sabotage.PendingRetried:       "one-run-twice",
		sabotage.NoFence:              "one-run-twice",
		sabotage.StaleDeliveryWrites:  "one-run-twice",
		sabotage.LostAnswerIsRight:    "one-run-twice",
		sabotage.SupersededIsFinal:    "two-runs-own",
		sabotage.OwnAnswerSupersedes:  "two-runs-own",
	} {
		cfg, err := Scope(scope)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Off = sabotage.Of(name)
		out := e.Exhaust(cfg, 2000)
		if out.Found == nil {
			t.Errorf("%s is not noticed in %s: %d worlds, complete: %v", name, scope, out.Worlds, out.Complete)
			continue
		}
		cfg.Frozen = true
		if again := e.Replay(cfg, out.Found.Choices, false); again.Kind != out.Found.Kind {
			t.Errorf("%s: found %q and replayed %q", name, out.Found.Kind, again.Kind)
		}
	}
}

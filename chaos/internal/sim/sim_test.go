package sim

import (
	"fmt"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

func env(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

// Campaign: random worlds, all kinds of everything. FENCEDRUN_SEEDS makes it longer.
func TestNoSeedBreaksThePromise(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	from, n := env("FENCEDRUN_FROM", 0), env("FENCEDRUN_SEEDS", 300)
	cfg := Config{Rate: env("FENCEDRUN_RATE", 60), PCT: env("FENCEDRUN_PCT", 0) == 1, Handler: os.Getenv("FENCEDRUN_HANDLER")}
	kinds := map[string]int{}
	first := map[string]int{}
	var sum Tally
	for seed := from; seed < from+n; seed++ {
		r := e.Seed(cfg, uint64(seed), false)
		sum.Add(r.Tally)
		if r.Violation == "" {
			continue
		}
		k := r.Kind + " " + r.Config.Handler
		if r.Kind == "panic" {
			k += " " + r.Violation
		}
		if kinds[k] == 0 {
			first[k] = seed
		}
		kinds[k]++
	}
	var list []string
	for k := range kinds {
		list = append(list, k)
	}
	sort.Strings(list)
	for _, k := range list {
		t.Errorf("%6d × %s, first seed %d", kinds[k], k, first[k])
	}
	t.Logf("%+v", sum)
}

// Show prints one seed's trace.
func TestShow(t *testing.T) {
	seed, err := strconv.Atoi(os.Getenv("FENCEDRUN_SHOW"))
	if err != nil {
		t.Skip("FENCEDRUN_SHOW is a seed")
	}
	e := &Engine{}
	defer e.Close()
	cfg := Config{Rate: env("FENCEDRUN_RATE", 60), PCT: env("FENCEDRUN_PCT", 0) == 1, Handler: os.Getenv("FENCEDRUN_HANDLER")}
	if name := os.Getenv("FENCEDRUN_ONLY"); name != "" {
		off, err := sabotage.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Off = sabotage.Of(off)
	}
	r := e.Seed(cfg, uint64(seed), true)
	if r.Violation != "" && os.Getenv("FENCEDRUN_RAW") == "" {
		start := time.Now()
		r = e.Shrink(cfg, r, 3*time.Second)
		fmt.Println("shrunk in", time.Since(start), loud(r.Choices), r.Choices)
		r = e.Replay(cfg, r.Choices, true)
	}
	fmt.Println(dump(r))
}

func dump(r Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", r.Config)
	what := ""
	for _, s := range r.Trace {
		if s.Fault == NoFault && (s.What == "renew" || s.What == what && (what == "load" || what == "write")) {
			continue
		}
		what = s.What
		fault := ""
		if s.Fault != NoFault {
			fault = "  <<" + s.Fault.String() + ">>"
		}
		fmt.Fprintf(&b, "%10s %-9s %-12s %s%s\n", clock(s.At), s.Lane, s.Task, s.What, fault)
	}
	fmt.Fprintf(&b, "%s: %s\n%d choices, %+v\n", r.Kind, r.Violation, len(r.Choices), r.Tally)
	return b.String()
}

func BenchmarkWorld(b *testing.B) {
	e := &Engine{}
	defer e.Close()
	seed := uint64(0)
	steps := 0
	for b.Loop() {
		seed++
		r := e.Seed(Config{Rate: 60}, seed, false)
		steps += r.Tally.Steps
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "worlds/s")
	b.ReportMetric(float64(steps)/float64(b.N), "steps/world")
}

// TestSabotageIsCaught reports for every rule that can be switched off how soon random seeds
// notice.
func TestSabotageIsCaught(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	limit := env("FENCEDRUN_SABOTAGE", 0)
	if limit == 0 {
		t.Skip("FENCEDRUN_SABOTAGE is how many seeds")
	}
	for _, name := range sabotage.All() {
		if only := os.Getenv("FENCEDRUN_ONLY"); only != "" && only != name.String() {
			continue
		}
		caught := ""
		for seed := 1; seed <= limit; seed++ {
			r := e.Seed(Config{Rate: 60, Off: sabotage.Of(name)}, uint64(seed), false)
			if r.Violation != "" {
				caught = fmt.Sprintf("seed %5d %-12s %-8s %-8s %s", seed, r.Config.Handler, r.Config.Provider, r.Kind, r.Violation)
				break
			}
		}
		if caught == "" {
			t.Errorf("%-6s %-28s NOT CAUGHT", name.Rule(), name)
		} else {
			t.Logf("%-6s %-28s %.140s", name.Rule(), name, caught)
		}
	}
}

func TestExhaust(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	n := env("FENCEDRUN_EXHAUST", 0)
	if n == 0 {
		t.Skip("FENCEDRUN_EXHAUST is how many worlds")
	}
	faults := Faults(CrashBefore, CrashAfter, LostAck, StoreError, NotApplied, TimeoutBefore, TimeoutAfter, LateSend, PauseDeadline)
	for _, twice := range []bool{false, true} {
		start := time.Now()
		cfg := Config{Handler: "all", Provider: "naive", Queue: "river", Mode: "supersede", Order: "seq", Tag: "last", Messages: 2, Budget: env("FENCEDRUN_BUDGET", 1), Attempts: 3, Faults: faults, Twice: twice}
		out := e.Exhaust(cfg, n)
		t.Logf("twice %v: %d states, %d worlds, complete %v in %v", twice, out.States, out.Worlds, out.Complete, time.Since(start))
		if out.Found != nil {
			t.Errorf("%s: %s", out.Found.Kind, out.Found.Violation)
			cfg.Frozen = true
			fmt.Println(dump(e.Replay(cfg, out.Found.Choices, true)))
		}
	}
}

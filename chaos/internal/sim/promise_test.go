package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

func env(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

// FENCEDRUN_SEEDS and FENCEDRUN_FROM make the campaign longer.
func TestNoSeedBreaksThePromise(t *testing.T) {
	r := Campaign{From: uint64(env("FENCEDRUN_FROM", 1)), Seeds: env("FENCEDRUN_SEEDS", 400), Workers: runtime.GOMAXPROCS(0)}.Run()
	for _, f := range r.Violations {
		t.Errorf("seed %d (%d times) %s: %s [%s]", f.Seed, f.Times, f.Kind, f.Violation, f.Config.Handler)
	}
	if r.Tally.Duplicates != 0 || r.Tally.Answers == 0 {
		t.Errorf("%+v", r.Tally)
	}
	if r.Seeds >= 5000 {
		for _, gap := range r.Coverage.Gaps() {
			t.Errorf("never seen: %s", gap)
		}
	}
}

// The argument only holds if the same world without the library does duplicate.
func TestEveryFaultThatCanDuplicateDoesSoAloneWithoutTheLibrary(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for _, f := range []Fault{
		CrashAfter, TimeoutAfter, LateSend, CrashLate, EffectPanics, EffectHangs, Cut,
		Duplicate, Twin, JobTimeout, Shutdown, CrashIdle, Human, ClosedRow,
	} {
		if f == Human {
			continue // what a person and a bot both answer is counted by message and author
		}
		found := false
		for seed := uint64(1); seed < 3000 && !found; seed++ {
			r := e.Seed(Config{Rate: 15, Budget: 3, Faults: Faults(f), Without: true, Messages: 2}, seed, false)
			found = r.Tally.Duplicates > 0
		}
		if !found {
			t.Errorf("%s alone makes no duplicate without the library", f)
		}
		for seed := uint64(1); seed < 40; seed++ {
			if r := e.Seed(Config{Rate: 15, Budget: 3, Faults: Faults(f)}, seed, false); r.Violation != "" {
				t.Errorf("%s alone, seed %d: %s: %s", f, seed, r.Kind, r.Violation)
			}
		}
	}
}

func TestASeedIsTheSameWorldEverywhere(t *testing.T) {
	hashes := func() []uint64 {
		e := &Engine{}
		defer e.Close()
		var list []uint64
		for seed := uint64(1); seed < 60; seed++ {
			c := Campaign{}
			list = append(list, e.Seed(c.Vary(seed), seed, seed%2 == 0).Hash)
		}
		return list
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first := hashes()
	runtime.GOMAXPROCS(2)
	if second := hashes(); !slices.Equal(first, second) {
		t.Errorf("GOMAXPROCS 1 and 2 differ:\n%x\n%x", first, second)
	}
}

func TestAReplayIsTheSameWorld(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for seed := uint64(1); seed < 40; seed++ {
		cfg := Campaign{}.Vary(seed)
		r := e.Seed(cfg, seed, false)
		if again := e.Replay(cfg, r.Choices, true); again.Hash != r.Hash {
			t.Errorf("seed %d: replayed from its choices it is another world", seed)
		}
	}
}

// The golden file says which seed notices that a rule is off. A rule whose absence nothing
// notices fails; FENCEDRUN_SABOTAGE=20000 writes the file anew, with so many worlds for each rule.
func TestEverySabotageIsNoticed(t *testing.T) {
	const golden = "testdata/sabotage.golden"
	e := &Engine{}
	defer e.Close()
	if seeds := env("FENCEDRUN_SABOTAGE", 0); seeds > 0 {
		var b bytes.Buffer
		for _, name := range sabotage.All() {
			c := e.Noticed(name, seeds)
			switch {
			case c.Seed != 0:
				fmt.Fprintf(&b, "%s %s %d %s %s\n", name.Rule(), name, c.Seed, c.Config.Handler, strings.ReplaceAll(c.Kind, " ", "-"))
			case OutOfReach[name.String()] == "":
				t.Errorf("%s (%s) is not noticed in %d worlds", name, name.Rule(), seeds)
			}
		}
		if t.Failed() {
			return // what is pinned stays
		}
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		seed, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		known[fields[1]] = seed
	}
	for _, name := range sabotage.All() {
		seed := known[name.String()]
		if seed == 0 {
			if OutOfReach[name.String()] == "" {
				t.Errorf("%s (%s): %s; nothing is known to notice", name, name.Rule(), name.Does())
			}
			continue
		}
		if r := e.Seed(Focused(name).Vary(seed), seed, false); r.Violation != "" {
			continue
		}
		// The code has changed and the seed is another world: look again.
		if c := e.Noticed(name, int(max(3*seed+100, 3000))); c.Seed == 0 {
			t.Errorf("%s (%s): %s; it was noticed by seed %d and now by none of the first %d", name, name.Rule(), name.Does(), seed, c.Seeds)
		}
	}
}

func TestAPlantedViolationBecomesShort(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for _, name := range []sabotage.Name{sabotage.AmbiguousRetried, sabotage.AnswersIgnored, sabotage.NoConversationCheck} {
		c := e.Noticed(name, 3000)
		if c.Seed == 0 {
			t.Errorf("%s is not noticed", name)
			continue
		}
		short := e.Shrink(Focused(name).Vary(c.Seed), c.Result, 10*time.Second)
		if n := loud(short.Choices); n > 16 {
			t.Errorf("%s: %d choices that are not dull are left", name, n)
		}
	}
}

// What chaos found is kept as it looked, so that whoever changes the code sees what changes.
func TestFound(t *testing.T) {
	files, err := filepath.Glob("../../testdata/found/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no finds: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("cause:")) {
			t.Errorf("%s does not say its cause", name)
		}
	}
}

func FuzzWorld(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Fuzz(func(t *testing.T, data []byte) {
		e := &Engine{}
		defer e.Close()
		if r := e.execute(Config{Rate: 60}, &bytesSource{data}, false); r.Violation != "" {
			t.Errorf("%s: %s\n%v", r.Kind, r.Violation, r.Choices)
		}
	})
}

func BenchmarkWorld(b *testing.B) {
	e := &Engine{}
	defer e.Close()
	seed, steps := uint64(0), 0
	for b.Loop() {
		seed++
		steps += e.Seed(Config{Rate: 60}, seed, false).Tally.Steps
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "worlds/s")
	b.ReportMetric(float64(steps)/float64(b.N), "steps/world")
}

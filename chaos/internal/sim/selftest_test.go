package sim

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// regenerate is how many worlds a test may try for each line of its golden file; 0: the file
// is checked. FENCEDRUN_SELFTEST=25 searches anew and takes a minute or two. FENCEDRUN_SELFTEST=1
// only replaces worlds that have become others, and what needs no search.
func regenerate() int { return env("FENCEDRUN_SELFTEST", 0) }

// sample is how many of n worlds a test plays.
func sample(n uint64) uint64 {
	if race.Enabled || testing.Short() {
		return max(n/6, 1)
	}
	return n
}

func golden(t *testing.T, name, text string) {
	t.Helper()
	file := "testdata/" + name
	if regenerate() > 0 {
		if t.Failed() {
			return // what is pinned stays
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s has changed; regenerate it with FENCEDRUN_SELFTEST=25 if that is right:\n%s", file, difference(string(want), text))
	}
}

// difference lists the lines that only one of two texts has.
func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out strings.Builder
	for _, line := range x {
		if !slices.Contains(y, line) {
			fmt.Fprintf(&out, "- %s\n", line)
		}
	}
	for _, line := range y {
		if !slices.Contains(x, line) {
			fmt.Fprintf(&out, "+ %s\n", line)
		}
	}
	return out.String()
}

// Which way of choosing worlds, which fault alone and which kind of handler notices that a
// rule is off: testdata/selftest.golden has the worlds, testdata/selftest.txt shows it.
func TestEveryDriverStillNoticesWhatItNoticed(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	if n := regenerate(); n > 1 {
		s, err := e.Selftest(Effort{Broad: 5 * n, Narrow: n, Exhaustive: 20 * n}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range s.Survivors() {
			t.Errorf("%s is not noticed with this effort", name)
		}
		golden(t, "selftest.golden", s.String())
		golden(t, "selftest.txt", table(t, s))
		return
	}
	s, err := Known()
	if err != nil {
		t.Fatal(err)
	}
	if s.String() != knownCells {
		t.Error("testdata/selftest.golden is not what String writes")
	}
	for _, name := range s.Survivors() {
		t.Errorf("%s (%s): nothing is known to notice that %s", name, name.Rule(), name.Does())
	}
	if (testing.Short() || race.Enabled) && regenerate() == 0 {
		s.Cells = slices.DeleteFunc(s.Cells, func(c Cell) bool { return c.Seed%10 != 1 || len(c.What) > 5 })
	} else {
		golden(t, "selftest.txt", table(t, s))
	}
	v, err := e.Verify(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Lost {
		t.Errorf("%s (%s): %s %s noticed it and does not any more; if that is right, regenerate with FENCEDRUN_SELFTEST=25", c.Name, c.Name.Rule(), c.Driver, c.What)
	}
	for _, c := range v.Other {
		if regenerate() == 0 {
			t.Errorf("%s (%s): %s %s notices something else than it did: %s; if that is right, FENCEDRUN_SELFTEST=1 writes it down", c.Name, c.Name.Rule(), c.Driver, c.What, c.Kind)
		}
	}
	if regenerate() == 1 {
		golden(t, "selftest.golden", v.String())
	} else if v.Stale > 0 {
		t.Logf("%d of %d worlds have become others, and others like them notice; replace them with FENCEDRUN_SELFTEST=1", v.Stale, len(s.Cells))
	}
}

func table(t *testing.T, s Selftest) string {
	t.Helper()
	var b strings.Builder
	if err := s.Table(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestASelftestSaysWhatNothingNotices(t *testing.T) {
	var s Selftest
	for _, name := range sabotage.All() {
		if name != sabotage.NoFence {
			s.Cells = append(s.Cells, Cell{Name: name, Driver: driverCalm, What: "-", Seed: 1, Kind: "x"})
		}
	}
	if got := s.Survivors(); !slices.Equal(got, []sabotage.Name{sabotage.NoFence}) {
		t.Errorf("survivors: %v", got)
	}
	if text := table(t, s); strings.Count(text, "NOT NOTICED") != 1 {
		t.Errorf("the table says:\n%s", text)
	}
	// A cell that notices, one whose world is another by now, and one that cannot notice.
	e := &Engine{}
	defer e.Close()
	v, err := e.Verify(Selftest{Cells: []Cell{
		{Name: sabotage.ClaimNotDurable, Driver: driverCalm, What: "-", Seed: 1, Kind: "durable"},
		{Name: sabotage.AmbiguousRetried, Driver: driverFault, What: "crash-late", Seed: 0, Kind: "duplicate"},
		{Name: sabotage.AmbiguousRetried, Driver: driverCalm, What: "-", Seed: 1, Kind: "duplicate"},
	}})
	if err != nil || len(v.Cells) != 2 || v.Stale != 1 || len(v.Lost) != 1 || v.Lost[0].Driver != driverCalm {
		t.Errorf("%+v, %v", v, err)
	}
}

// withOnly are the worlds in which one kind of fault is all that goes wrong. With one message, or
// with handlers that answer their own only, nothing is answered twice when nothing goes wrong.
func withOnly(f Fault, messages int) Config {
	cfg := Config{Rate: 18, Budget: 3, Faults: Faults(f), Messages: messages, Without: true}
	if messages > 1 {
		cfg.Handler = "own"
	}
	return cfg
}

// The argument only holds if what goes wrong does harm without the library.
// testdata/alone.golden names for each fault of a queue, a worker or the provider a world in
// which it alone makes a duplicate without the library, or says why it cannot. The ledger's
// faults, and people's, need a ledger: for them it names a rule whose absence is only noticed
// when something goes wrong, and a world in which that fault alone is enough.
func TestEveryFaultAloneDoesHarm(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	if n := regenerate(); n > 1 {
		golden(t, "alone.golden", e.searchAlone(t, n))
	}
	for seed := uint64(1); seed < sample(600); seed++ {
		cfg := withOnly(NoFault, int(1+seed%2))
		cfg.Budget = -1
		if r := e.Seed(cfg, seed, false); r.Tally.Duplicates > 0 {
			t.Fatalf("seed %d: a duplicate, and nothing went wrong", seed)
		}
	}
	text, err := os.ReadFile("testdata/alone.golden")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Fault]bool{}
	for line := range strings.Lines(string(text)) {
		var class, fault, verb, what string
		var seed uint64
		if _, err := fmt.Sscanf(line, "%s %s %s %s seed %d", &class, &fault, &verb, &what, &seed); err != nil && verb != "harmless:" {
			t.Fatalf("testdata/alone.golden: %q: %v", line, err)
		}
		f, err := ParseFault(fault)
		if err != nil {
			t.Fatal(err)
		}
		if seen[f] = true; verb == "harmless:" {
			continue
		}
		if messages, err := strconv.Atoi(what); err == nil {
			cfg := withOnly(f, messages)
			cfg.Without = false
			if r := e.Seed(cfg, seed, false); r.Violation != "" || r.Tally.Duplicates > 0 {
				t.Errorf("%s alone, with the library, seed %d: %s: %s", f, seed, r.Kind, r.Violation)
			}
		}
		if e.harms(t, f, what, seed) {
			continue
		}
		again := false
		for other := uint64(1); other <= 3*seed+300 && !again; other++ {
			again = e.harms(t, f, what, other)
		}
		if !again {
			t.Errorf("%s alone did harm (%s) and does not any more; if that is right, regenerate with FENCEDRUN_SELFTEST=25", f, what)
		}
	}
	for _, f := range everyFault() {
		if !seen[f] {
			t.Errorf("%s: testdata/alone.golden does not know it", f)
		}
		for seed := uint64(1); seed <= sample(12); seed++ {
			if r := e.Seed(Config{Rate: 18, Budget: 3, Faults: Faults(f)}, seed, false); r.Violation != "" {
				t.Errorf("%s alone, with the library, seed %d: %s: %s", f, seed, r.Kind, r.Violation)
			}
		}
	}
}

// harms plays a world in which f is all that goes wrong: without the library, if what is a
// number of messages, or without the rule that it names.
func (e *Engine) harms(t *testing.T, f Fault, what string, seed uint64) bool {
	t.Helper()
	if messages, err := strconv.Atoi(what); err == nil {
		return e.Seed(withOnly(f, messages), seed, false).Tally.Duplicates > 0
	}
	name, err := sabotage.Parse(what)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Play(Cell{Name: name, Driver: driverFault, What: f.String(), Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return noticedBy(driverFault, r)
}

// searchAlone finds what each fault does alone.
func (e *Engine) searchAlone(t *testing.T, n int) string {
	t.Helper()
	need := (&search{e: e, caught: map[string]bool{}}).needFaults(40*n, n)
	var b strings.Builder
	for _, f := range everyFault() {
		b.WriteString(e.searchFault(t, f, need, n))
	}
	return b.String()
}

func (e *Engine) searchFault(t *testing.T, f Fault, need []sabotage.Name, n int) string {
	t.Helper()
	if class := f.Class(); class != "ledger" && class != "people" || harmless[f] != "" {
		seeds := uint64(30 * n)
		if harmless[f] == "" {
			seeds *= 10
		}
		for seed := uint64(1); seed <= seeds; seed++ {
			for messages := 1; messages <= 2; messages++ {
				if e.harms(t, f, strconv.Itoa(messages), seed) {
					if harmless[f] != "" {
						t.Errorf("%s is not harmless: %s", f, harmless[f])
					}
					return fmt.Sprintf("%-8s %-14s duplicates %d seed %d\n", class, f, messages, seed)
				}
			}
		}
		if harmless[f] == "" {
			t.Errorf("%s alone makes no duplicate without the library, and nothing says why", f)
		}
		return fmt.Sprintf("%-8s %-14s harmless: %s\n", class, f, harmless[f])
	}
	s := &search{e: e, caught: map[string]bool{}}
	for seeds := 4; len(s.cells) == 0 && seeds <= 8*n; seeds *= 2 {
		s.random(driverFault, f.String(), need, seeds)
	}
	if s.err != nil {
		t.Error(s.err)
	}
	if len(s.cells) == 0 {
		t.Errorf("%s alone does no harm", f)
		return ""
	}
	c := s.cells[0]
	return fmt.Sprintf("%-8s %-14s breaks %s seed %d\n", f.Class(), f, c.Name, c.Seed)
}

package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
	"github.com/fencedrun/fencedrun/internal/race"
)

// called is what a command printed.
type called struct {
	code        int
	out, stderr string
}

func call(command func([]string, *bytes.Buffer, *bytes.Buffer) int, args ...string) called {
	var out, stderr bytes.Buffer
	code := command(args, &out, &stderr)
	return called{code, out.String(), stderr.String()}
}

func demo(args ...string) called {
	return call(func(a []string, o, e *bytes.Buffer) int { return Demo(a, o, e) }, args...)
}

func chaos(args ...string) called {
	return call(func(a []string, o, e *bytes.Buffer) int { return Chaos(a, o, e) }, args...)
}

func (c called) want(t *testing.T, code int, out, stderr string) {
	t.Helper()
	if c.code != code || !strings.Contains(c.out, out) || !strings.Contains(c.stderr, stderr) {
		t.Errorf("exit %d and not %d; stdout without %q:\n%s\nor stderr without %q:\n%s", c.code, code, out, c.out, stderr, c.stderr)
	}
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(&v); err != nil || dec.More() {
		t.Fatalf("%v, more %v, in\n%s", err, dec.More(), text)
	}
	return v
}

func TestACampaignWithAViolationShowsItAndFails(t *testing.T) {
	broken := []string{"-strict", "-seeds", "1", "-from", "59945"}
	c := chaos(broken...)
	c.want(t, 1, "BROKEN by seed 59945 (1 times), waits", "1 worlds in")
	c.want(t, 1, "give it to -replay", "")
	got := decode[campaign](t, chaos(append(broken, "-json")...).out)
	if len(got.Violations) != 1 || got.Violations[0].Seed != 59945 || got.World == nil || got.World.Violation == "" || len(got.World.Steps) == 0 {
		t.Errorf("%+v", got)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	chaos(append(broken, "-html", page)...).want(t, 1, "WRONG", "")
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("Without it")) {
		t.Errorf("the page: %v", err)
	}
}

func TestASelftestFailsWhenSomethingIsMissed(t *testing.T) {
	c := chaos("-selftest", "-seeds", "3")
	c.want(t, 1, "NOT NOTICED in 3 worlds", "")
	c.want(t, 1, "out of reach", "")
	got := decode[struct {
		Noticed []noticed `json:"noticed"`
		Missed  []string  `json:"missed"`
	}](t, chaos("-selftest", "-seeds", "3", "-json").out)
	if len(got.Noticed) < 60 || len(got.Missed) == 0 {
		t.Errorf("%d sabotages, %d missed", len(got.Noticed), len(got.Missed))
	}
}

func TestTheMatrixSaysWhoNotices(t *testing.T) {
	chaos("-matrix").want(t, 2, "", "-matrix means nothing without -selftest")
	if testing.Short() || race.Enabled {
		t.Skip("plays some ten thousand worlds")
	}
	c := chaos("-selftest", "-matrix", "-seeds", "400")
	c.want(t, 1, "no-fence: any delivery may write", "handler refund")
	c.want(t, 1, "NOT NOTICED", "exhaustive one-run")
}

func TestASeedIsReplayedWithTheHandlerThatIsAskedFor(t *testing.T) {
	c := chaos("-replay", "3", "-handler", "refund")
	c.want(t, 0, "(refund)", "")
	got := decode[struct {
		World world `json:"world"`
	}](t, chaos("-replay", "3", "-handler", "refund", "-json").out)
	if got.World.Handler != "refund" || got.World.Replay.Handler != "refund" || len(got.World.Trace) != 16 {
		t.Errorf("%+v", got.World)
	}
	// What is shown is a world that can be played again: it has the same trace.
	file := filepath.Join(t.TempDir(), "world.json")
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	again := decode[struct {
		World world `json:"world"`
	}](t, chaos("-replay", file, "-json").out)
	if again.World.Trace != got.World.Trace {
		t.Errorf("played again the trace is %s, and was %s", again.World.Trace, got.World.Trace)
	}
}

func TestAnExhaustiveSearchThatIsBrokenIsShown(t *testing.T) {
	r := replay{Scope: "one-run", Choices: []int{}}
	cfg, err := r.config()
	if err != nil || !cfg.Frozen || cfg.Rate != 0 {
		t.Errorf("%+v, %v", cfg, err)
	}
	r.Scope = "nope"
	if _, err := r.config(); err == nil || !strings.Contains(err.Error(), "one-run") {
		t.Errorf("%v", err)
	}
}

// full is a file system without space.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestACommandThatCannotPrintFails(t *testing.T) {
	var stderr bytes.Buffer
	if code := Demo([]string{"-conversations", "1"}, full{}, &stderr); code != 1 || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("demo exits with %d: %s", code, &stderr)
	}
	stderr.Reset()
	if code := Chaos([]string{"-seeds", "1"}, full{}, &stderr); code != 1 || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("chaos exits with %d: %s", code, &stderr)
	}
}

func TestHelpExplainsEveryFlag(t *testing.T) {
	for name, c := range map[string]called{"demo": demo("-h"), "chaos": chaos("-h")} {
		c.want(t, 0, "usage: fencedrun "+name, "")
		c.want(t, 0, "Example", "")
		for line := range strings.Lines(c.out) {
			if len([]rune(line)) > 96 {
				t.Errorf("%s: %q is too long for a terminal", name, line)
			}
		}
	}
	demo("-json", "-conversations", "1").want(t, 0, `"providers"`, "10 conversations in")
}

// A campaign that time ends early says that it has not judged what it never met.
func TestACampaignThatEndsEarlySaysThatGapsWereNotJudged(t *testing.T) {
	chaos("-for", "50ms", "-seeds", "500").want(t, 0, "no promise was broken", "too few worlds to judge what was never seen")
	if c := chaos("-seeds", "50"); strings.Contains(c.stderr, "too few worlds") {
		t.Errorf("without -for it says so, too:\n%s", c.stderr)
	}
}

// A file that cannot be written is found out before the search, and one that is there is kept.
func TestAFileThatCannotBeWrittenEndsAtOnce(t *testing.T) {
	for _, flag := range []string{"-html", "-mermaid"} {
		c := chaos("-seeds", "1000000000", flag, filepath.Join(t.TempDir(), "no", "such", "file"))
		if c.code != exitFound || c.out != "" || !strings.Contains(c.stderr, "no such file") {
			t.Errorf("%s: exit %d: %s%s", flag, c.code, c.out, c.stderr)
		}
	}
	kept := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(kept, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	chaos("-seeds", "1", "-html", kept).want(t, exitOK, "", "there is no world to write")
	if text, err := os.ReadFile(kept); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestHelpSaysWhatAFlagTakes(t *testing.T) {
	c := chaos("-h")
	for _, want := range []string{"-for DURATION", "-seeds N", "-html FILE", "-handler NAME"} {
		c.want(t, exitOK, want, "")
	}
	// Two words in the last column's heading, and none of it runs into the one before.
	chaos("-seeds", "1").want(t, exitOK, " beat  by itself\n", "")
}

// The demonstration exits with 1 when the library let something happen that it must not.
func TestADemonstrationWithAViolationFails(t *testing.T) {
	before := demonstrate
	defer func() { demonstrate = before }()
	demonstrate = func(e *sim.Engine, seed uint64, n int) sim.Demonstration {
		d := before(e, seed, n)
		d.First = &sim.Result{Kind: "duplicate", Violation: "message m0 is answered 2 times", Config: sim.Config{Provider: "naive"}}
		return d
	}
	demo("-conversations", "1").want(t, 1, "duplicates", "with the library, provider naive: duplicate: message m0 is answered 2 times")
}

// What README.md shows of the demonstration is what it prints.
func TestTheReadmeShowsTheDemonstration(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(demo().out, "\nwith and without:")
	if !strings.Contains(string(readme), "```\n"+table+"```") {
		t.Errorf("README.md does not show\n%s", table)
	}
}

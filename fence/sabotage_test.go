package fence_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

const matrixFile = "sabotage_matrix.txt"

// elsewhere are the rules that other packages implement: no scenario can notice them.
var elsewhere = []sabotage.Name{
	sabotage.TimeoutMeansFailed, sabotage.ClaimNotDurable, sabotage.LostAnswerIsRight, sabotage.LateStartCalls,
	sabotage.SettleByHandlerCtx, sabotage.BigResultFails, sabotage.NoWatchdog, sabotage.CounterTags, sabotage.BeatsForEver, sabotage.LateProbes,
	sabotage.LateBeginReleases,
}

// TestEveryRuleIsMissedWhenItIsOff plays every scenario with every rule switched off in turn.
// A rule that none of its own scenarios misses is not tested. -rewrite rewrites the matrix and
// nothing else: the demand stays.
func TestEveryRuleIsMissedWhenItIsOff(t *testing.T) {
	stories := map[string][]datadriven.TestData{}
	played := map[string][]string{}
	asked := map[string]*sabotage.Asked{}
	for _, path := range scenarios(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		short := strings.TrimSuffix(filepath.Base(path), ".txt")
		stories[short] = loadScenario(string(b))
		asked[short] = new(sabotage.Asked)
		played[short], _ = play(stories[short], asked[short].Set(), nil)
	}
	all := sabotage.All()
	noticed := make([][]string, len(all))
	var wait sync.WaitGroup
	var plays atomic.Int64
	for i, name := range all {
		wait.Go(func() {
			for _, short := range sorted(stories) {
				if !asked[short].Has(name) {
					continue // it played no part
				}
				plays.Add(1)
				if _, same := play(stories[short], sabotage.Of(name), played[short]); !same {
					noticed[i] = append(noticed[i], short)
				}
			}
		})
	}
	wait.Wait()
	t.Log("plays", plays.Load())
	var matrix strings.Builder
	matrix.WriteString("# Which scenarios come out differently, or break an invariant, when a rule is switched off.\n")
	for i, name := range all {
		fmt.Fprintf(&matrix, "\n%s (%s): %s\n", name, name.Rule(), name.Does())
		prefix := strings.ToLower(strings.ReplaceAll(name.Rule(), ".", "_")) + "_"
		own := slices.ContainsFunc(noticed[i], func(s string) bool { return strings.HasPrefix(s, prefix) })
		switch {
		case slices.Contains(elsewhere, name):
			matrix.WriteString("  elsewhere\n")
			if len(noticed[i]) > 0 {
				t.Errorf("%s is said to be implemented elsewhere, but is noticed by %s", name, strings.Join(noticed[i], ", "))
			}
			continue
		case len(noticed[i]) == 0:
			t.Errorf("no scenario notices %s: %s", name, name.Does())
		case !own:
			t.Errorf("%s is noticed by %s, but by no scenario of its rule %s", name, strings.Join(noticed[i], ", "), name.Rule())
		}
		for _, n := range noticed[i] {
			matrix.WriteString("  " + n + "\n")
		}
	}
	golden(t, filepath.Join("testdata", matrixFile), matrix.String())
}

// play plays a scenario and returns what is to be seen, or reports as soon as something else
// is to be seen than before.
func play(story []datadriven.TestData, off sabotage.Set, before []string) (seen []string, same bool) {
	s := newStage(rules().Without(off))
	s.w.quick = true
	for i, td := range story {
		out := playOne(s, td)
		if i < len(before) && before[i] != out {
			return nil, false
		}
		seen = append(seen, out)
	}
	return seen, true
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if rewriting() {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s is not what it was (%v); go test ./fence -rewrite, and read the diff:\n%s", path, err, got)
	}
}

// playOne plays one command. With a rule off even a panic is an answer.
func playOne(s *stage, td datadriven.TestData) (out string) {
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprint("panic: ", r)
		}
	}()
	return s.run(&td)
}

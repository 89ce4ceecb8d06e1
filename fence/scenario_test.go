package fence_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/fencedrun/fencedrun/fence"
)

// The scenarios under testdata are the rules as stories: commands, and after the rule the
// verdict, what an observer is told, and on show the state, in the words of Describe. After
// every command Check and CheckStep have held, and a view with nothing but what was asked for
// has decided like the whole state. go test ./fence -rewrite writes what is; read the diff.

// rules are the settings of every scenario that sets no other.
func rules() fence.Rules {
	return fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 30 * 24 * 3600 * 1000, MaxCalls: 3}
}

// secrets are what the scenarios draw for nonces and claim ids, and effects' ids: nothing for
// people.
var secrets = regexp.MustCompile(`(epoch|claim)[0-9]+|effect-of-`)

func scenarios(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var found []string
	for _, p := range paths {
		if filepath.Base(p) != matrixFile {
			found = append(found, p)
		}
	}
	return found
}

func TestScenarios(t *testing.T) {
	for _, path := range scenarios(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := newStage(rules())
			s.w.careful = true
			datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
				out := s.run(td)
				if secret := secrets.FindString(out); secret != "" {
					t.Errorf("%s: Describe tells %s", td.Pos, secret)
				}
				if s.broken != nil {
					t.Errorf("%s: %v", td.Pos, s.broken)
				}
				return out
			})
			checkRecordsSurvive(t, s.w)
		})
	}
}

// checkRecordsSurvive stores every record as bytes and reads it back.
func checkRecordsSurvive(t *testing.T, w *world) {
	t.Helper()
	for _, name := range sorted(w.convs) {
		c := w.convs[name]
		records := []fence.Record{}
		if c.head != nil {
			records = append(records, c.head)
		}
		for _, key := range sorted(c.rows) {
			records = append(records, c.rows[key])
		}
		for _, rec := range records {
			got, err := decoded(rec)
			if err != nil || !bytes.Equal(dump(got), dump(rec)) || got.RowKey() != rec.RowKey() || got.Index() != rec.Index() {
				t.Errorf("%q does not survive being stored: %v\n%s\n%s", rec.RowKey(), err, dump(rec), dump(got))
			}
		}
	}
}

func TestEveryScenarioSaysWhatItShows(t *testing.T) {
	for _, path := range scenarios(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(b), "# ") {
			t.Errorf("%s: the first line does not say what the scenario shows", path)
		}
		if len(loadScenario(string(b))) == 0 {
			t.Errorf("%s has no command", path)
		}
	}
}

// rewriting reports whether datadriven's -rewrite was given.
func rewriting() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}

// notHere are the numbered rules that have no scenario, and why.
var notHere = map[string]string{
	"3.3":  "the core knows no clock but the view's",
	"5.5":  "reserved for approvals and budgets",
	"6.1":  "runs: nothing is held while an effect runs",
	"6.2":  "runs: the effect's ctx",
	"6.5":  "runs: one call per Once",
	"7.1":  "runs: the settle's ctx",
	"10.6": "TestAClaimCostsTheSameWhateverTheConversationHolds",
}

// TestEveryRuleHasAScenario looks at sections 2 to 10 of the semantics; section 8 has no
// numbers and resolving is what the core has of it.
func TestEveryRuleHasAScenario(t *testing.T) {
	count := map[int][2]int{2: {1, 3}, 3: {1, 4}, 4: {1, 9}, 5: {0, 7}, 6: {1, 5}, 7: {1, 7}, 9: {1, 5}, 10: {1, 6}}
	names := strings.Join(scenarios(t), "\n")
	for _, section := range slices.Sorted(maps.Keys(count)) {
		for n := count[section][0]; n <= count[section][1]; n++ {
			rule := fmt.Sprintf("%d.%d", section, n)
			has := strings.Contains(names, fmt.Sprintf("/s%d_%d_", section, n))
			if _, excused := notHere[rule]; has == excused {
				t.Errorf("rule S%s: scenario %v, excused %v", rule, has, excused)
			}
		}
	}
	for _, more := range []string{"/s8_", "/f04_", "/f05_", "/f06_", "/f10_", "/f11_"} {
		if !strings.Contains(names, more) {
			t.Errorf("no scenario is called %s", more)
		}
	}
}

// TestEveryRefusalHasAScenario: the reasons that the core refuses with, shown to be refused.
func TestEveryRefusalHasAScenario(t *testing.T) {
	var all strings.Builder
	for _, path := range scenarios(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	for _, reason := range []fence.Reason{
		fence.ReasonSuperseded, fence.ReasonConversationChanged, fence.ReasonAlreadyAnswered, fence.ReasonUnresolved, fence.ReasonParamsChanged,
		fence.ReasonInFlight, fence.ReasonAmbiguous, fence.ReasonNoRun, fence.ReasonCancelled, fence.ReasonEnded, fence.ReasonBusy,
		fence.ReasonExhausted, fence.ReasonConversationMismatch, fence.ReasonNotStarted, fence.ReasonTakenAgain,
	} {
		if !strings.Contains(all.String(), "\nrefused: "+string(reason)+" – ") {
			t.Errorf("no scenario shows %s", reason)
		}
	}
}

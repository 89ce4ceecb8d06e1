package fence_test

import (
	"flag"
	"os"
	"path/filepath"
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
			if err != nil || string(dump(got)) != string(dump(rec)) || got.RowKey() != rec.RowKey() || got.Index() != rec.Index() {
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

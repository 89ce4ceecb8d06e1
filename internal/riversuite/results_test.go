package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const printed = `{"Action":"output","Package":"github.com/riverqueue/river","Test":"Test_A/b","Output":"no\n"}
{"Action":"fail","Package":"github.com/riverqueue/river","Test":"Test_A/b"}
{"Action":"fail","Package":"github.com/riverqueue/river","Test":"Test_A"}
{"Action":"skip","Package":"github.com/riverqueue/river","Test":"Test_C"}
{"Action":"output","Package":"github.com/riverqueue/river","Output":"FAIL\n"}
{"Action":"fail","Package":"github.com/riverqueue/river"}
{"Action":"pass","Package":"github.com/riverqueue/river/rivertest","Test":"TestD"}
{"Action":"pass","Package":"github.com/riverqueue/river/rivertest"}
`

func TestResultsAreRead(t *testing.T) {
	got, outputs, err := read(strings.NewReader(printed))
	want := results{"river.Test_A": "fail", "river.Test_A/b": "fail", "river.Test_C": "skip", "rivertest.TestD": "pass"}
	if err != nil || !maps.Equal(got, want) || outputs["river.Test_A/b"] != "no\n" {
		t.Errorf("got %v, %q, %v; want %v", got, outputs, err, want)
	}
}

func TestAPackageThatFailsAsAWholeIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"does not compile": `{"Action":"output","Package":"github.com/riverqueue/river","Output":"FAIL [build failed]\n"}
{"Action":"fail","Package":"github.com/riverqueue/river"}`,
		"leaks": `{"Action":"pass","Package":"github.com/riverqueue/river","Test":"TestA"}
{"Action":"output","Package":"github.com/riverqueue/river","Output":"goleak: Errors\nFAIL\n"}
{"Action":"fail","Package":"github.com/riverqueue/river"}`,
		"is no JSON": "panic: oh",
	} {
		if res, _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %v and no error", name, res)
		}
	}
}

func TestOnlyTheInnermostDifferenceIsNamed(t *testing.T) {
	without := results{"river.A": "pass", "river.A/b": "pass", "river.C": "pass", "river.Ab": "fail", "river.D": "pass"}
	with := results{"river.A": "fail", "river.A/b": "fail", "river.C": "skip", "river.Ab": "fail", "river.E": "pass"}
	if got, want := differing(without, with), []string{"river.A/b", "river.C", "river.D", "river.E"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, want := range map[string][2]string{"river.A/b": {".", "A"}, "rivertest.C": {"./rivertest", "C"}} {
		if folder, top := test(name); [2]string{folder, top} != want {
			t.Errorf("%s is %s of %s", name, top, folder)
		}
	}
}

// A version of River whose plugins come together elsewhere is noticed here, long before somebody runs
// its suite.
func TestThePinnedRiverCanBePrepared(t *testing.T) {
	dir := t.TempDir()
	version, err := prepare(t.Context(), dir)
	if err != nil || version == "" {
		t.Fatalf("%q, %v", version, err)
	}
	for _, p := range patches {
		text, err := os.ReadFile(filepath.Join(dir, p.file))
		if err != nil || !strings.Contains(string(text), p.to) {
			t.Errorf("%s is not patched: %v", p.file, err)
		}
	}
	stale, err := os.ReadFile("../../adapters/river/stale.go")
	if err != nil || !strings.Contains(string(stale), `provenRiver = "`+version+`"`) {
		t.Errorf("go.mod has River %s, and adapters/river/stale.go trusts another one: run make river-suite and the tests of adapters/river, then change it (%v)", version, err)
	}
}

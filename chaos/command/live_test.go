package command

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/chaos/internal/storm"
)

// The processes of a storm are this program once more.
func TestMain(m *testing.M) {
	if code, ok := storm.Child(); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func live(args ...string) called {
	return call(func(a []string, o, e *bytes.Buffer) int { return Live(a, o, e) }, args...)
}

func TestALiveStormPrintsATableAndJSON(t *testing.T) {
	t.Parallel()
	c := live("-minutes", "0.05", "-seed", "4")
	for _, want := range []string{"WHAT ", "seed ", "kills ", "duplicates ", "lost "} {
		if !strings.Contains(c.out, want) {
			t.Errorf("the table has no row %q", want)
		}
	}
	if c.code != exitOK || !strings.Contains(c.stderr, " s storm ") {
		t.Errorf("exit %d: %s", c.code, c.stderr)
	}
	// Without the library there are duplicates, which break no promise.
	c = live("-without", "-minutes", "0.05", "-json")
	var r storm.Report
	if err := json.Unmarshal([]byte(c.out), &r); err != nil || c.code != exitOK || r.Library || r.Duplicates == 0 {
		t.Errorf("exit %d, %v: %+v\n%s", c.code, err, r, c.stderr)
	}
}

func TestALiveStormThatCannotBeMeantExitsWith2(t *testing.T) {
	for args, want := range map[string]string{
		"-minutes 0":                             "-minutes takes a whole number or a fraction",
		"-minutes NaN":                           "-minutes takes",
		"-minutes soon":                          "-minutes takes",
		"-seed -1":                               "-seed takes",
		"-queue sqs":                             "-queue takes one of plain, river, asynq",
		"-queue asynq":                           "give its URL",
		"-ledger mysql://x":                      "begins neither with",
		"-ledger bogus":                          "-ledger takes the URL of a server, postgres://… or redis://…, or postgres or redis",
		"-queue river -queue-url redis":          "-queue-url takes the URL of a server",
		"-without -ledger redis:":                "there is no ledger",
		"now":                                    "there are only flags",
		"-ledger redis://127.0.0.1:1 -minutes 1": "cannot be used",
	} {
		if c := live(strings.Fields(args)...); c.code != exitUsage || !strings.Contains(c.stderr, want) || c.out != "" {
			t.Errorf("%s: exit %d: %s%s", args, c.code, c.stderr, c.out)
		}
	}
	if c := live("-h"); c.code != exitOK || !strings.Contains(c.out, "-minutes N") || !strings.Contains(c.out, "Examples:") {
		t.Errorf("-h: exit %d: %s", c.code, c.out)
	}
}

// A URL may hold a password.
func TestAURLThatCannotBeMeantIsNotShown(t *testing.T) {
	for _, args := range [][]string{{"-ledger", "mysql://me:secret@x"}, {"-queue", "river", "-queue-url", "redis://me:secret@x"}} {
		if c := live(args...); c.code != exitUsage || strings.Contains(c.stderr+c.out, "secret") {
			t.Errorf("%q: exit %d: %s%s", args, c.code, c.stderr, c.out)
		}
	}
}

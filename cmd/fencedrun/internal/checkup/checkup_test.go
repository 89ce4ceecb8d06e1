package checkup

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s is not what it was (%v); -rewrite, and read the diff:\n%s", path, err, got)
	}
}

// found returns what a check found, as "level: what" lines.
func found(findings []Finding, check string) string {
	var b strings.Builder
	for _, f := range findings {
		if f.Check == check {
			b.WriteString(string(f.Level) + ": " + f.What + "\n")
		}
	}
	return b.String()
}

// wants checks that a check found each of the words, and nothing if there are none.
func wants(t *testing.T, findings []Finding, check string, words ...string) {
	t.Helper()
	got := found(findings, check)
	if len(words) == 0 && got != "" {
		t.Errorf("%s found\n%s", check, got)
	}
	for _, word := range words {
		if !strings.Contains(got, word) {
			t.Errorf("%s does not say %q, but\n%s", check, word, got)
		}
	}
}

// complete checks what every finding must have.
func complete(t *testing.T, findings []Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Check == "" || f.What == "" || f.Level.rank() < 0 || f.Level == OK && (f.Why != "" || f.Do != "") || f.Level == Problem && f.Why+f.Do == "" {
			t.Errorf("incomplete: %+v", f)
		}
	}
}

// fake is what a ledger keeps.
type fake struct {
	effects []runs.UnresolvedEffect
	open    []runs.OpenMessage
	err     error
}

func (f *fake) Unresolved(context.Context, time.Duration, int) ([]runs.UnresolvedEffect, error) {
	return f.effects, f.err
}

func (f *fake) Open(_ context.Context, older time.Duration, _ int) ([]runs.OpenMessage, error) {
	if older != forgotten {
		return nil, errors.New("asked for others")
	}
	return f.open, f.err
}

func effect(state runs.State, old time.Duration) runs.UnresolvedEffect {
	return runs.UnresolvedEffect{Age: old, Effect: &runs.EffectRecord{Calls: []fence.Call{{State: state}}}}
}

func TestForgottenRecordsAreFound(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		kept             fake
		unresolved, open string
	}{
		{fake{}, "ok: no effect", "ok: no message has been waiting for longer than 10 minutes"},
		{fake{effects: []runs.UnresolvedEffect{effect(runs.Pending, time.Hour)}}, "ok: no effect", "ok"},
		{
			fake{effects: []runs.UnresolvedEffect{effect(runs.Ambiguous, time.Hour), effect(runs.Pending, 0), effect(runs.Ambiguous, 3*time.Hour)}},
			"warning: the outcome of 2 effects is unknown, of the oldest for 3 hours", "ok",
		},
		{fake{effects: []runs.UnresolvedEffect{effect(runs.Ambiguous, 2*day)}}, "problem: the outcome of 1 effect is unknown, of the oldest for 2 days", "ok"},
		{fake{open: []runs.OpenMessage{{Age: time.Hour}, {Age: 2 * time.Hour}}}, "ok", "warning: 2 messages unanswered, the oldest for 2 hours"},
		{fake{open: make([]runs.OpenMessage, countAtMost)}, "ok", "warning: at least 1000 messages unanswered"},
		{fake{open: []runs.OpenMessage{{Age: 16 * day}}}, "ok", "problem: 1 message unanswered, the oldest for 16 days"},
		{fake{err: errors.New("away")}, "warning: could not look at unresolved effects", "warning: could not look at open messages"},
	} {
		l := &list{}
		l.records(t.Context(), &Target{Records: &c.kept, Retention: 30 * day})
		wants(t, l.findings, "unresolved", c.unresolved)
		wants(t, l.findings, "open_messages", c.open)
		complete(t, l.findings)
	}
}

func TestARetentionBelowTheRetriesIsAProblem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                   "ok: records are kept for 30 days",
		21 * 24 * time.Hour: "ok: records are kept for 21 days",
		20 * 24 * time.Hour: "problem: records are kept for 20 days, and the queues retry for about 21 days",
		12 * time.Hour:      "problem: records are kept for 12 hours",
	} {
		wants(t, Check(t.Context(), Target{Retention: d}).Findings, "retention", want)
	}
}

func TestALedgerThatCannotBeOpenedIsAProblem(t *testing.T) {
	r := Check(t.Context(), Target{Kind: SQLite, SQLite: filepath.Join(t.TempDir(), "none.db"), OpenError: errors.New("no way in")})
	wants(t, r.Findings, "open", "problem: the ledger cannot be opened: no way in")
	wants(t, r.Findings, "file", "problem: there is no file")
	wants(t, r.Findings, "unresolved")
	if r.Worst() != Problem || r.Findings[0].Level != Problem {
		t.Errorf("%+v", r)
	}
	wants(t, Check(t.Context(), Target{Kind: "tape"}).Findings, "target", `problem: there is nothing to look at: the ledger is of kind "tape"`)
}

func TestAClockIsJudgedWithinWhatTheQuestionTook(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		answered, said time.Duration
		want           string
	}{
		{0, 0, "ok"},
		{time.Second, 5 * time.Second, "ok"},
		{10 * time.Second, 14 * time.Second, "ok"}, // a slow answer proves nothing
		{0, 6 * time.Second, "warning: the clock of the server and the one of this machine differ by 6s"},
		{0, -6 * time.Second, "warning"},
		{0, -11 * time.Minute, "problem: the clock of the server and the one of this machine differ by 11m0s"},
	} {
		l := &list{}
		l.skew("clock", "the server", at, at.Add(c.answered), at.Add(c.said))
		wants(t, l.findings, "clock", c.want)
	}
}

func report() Report {
	return Report{Ledger: Redis, Findings: []Finding{
		{Problem, "eviction", "maxmemory-policy is allkeys-lru", "With its memory full the server deletes claims, and their effects are done again.", "Set it to noeviction: CONFIG SET maxmemory-policy noeviction, and in redis.conf."},
		{Level: Warning, Check: "replicas", What: "there are 2 replicas, and replication is asynchronous\x1b[2J", Why: "A failover loses the last moments."},
		{Level: OK, Check: "version", What: "the server is Redis 7.0.15"},
		{Level: OK, Check: "clock", What: "the clock of the server agrees with the one of this machine"},
	}}
}

func TestAReportIsWrittenForPeopleAndPrograms(t *testing.T) {
	var b strings.Builder
	if err := report().WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", b.String())
	for line := range strings.Lines(b.String()) {
		if utf8.RuneCountInString(line) > width+1 {
			t.Errorf("a long line: %s", line)
		}
	}
	var colored strings.Builder
	if err := report().WriteText(&colored, true); err != nil {
		t.Fatal(err)
	}
	if bare := strings.NewReplacer(colors[OK], "", colors[Warning], "", colors[Problem], "", plain, "").Replace(colored.String()); bare != b.String() || !strings.Contains(colored.String(), colors[Problem]) {
		t.Errorf("colored: %q", colored.String())
	}
	text, err := json.Marshal(report(), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", string(text)+"\n")
}

func TestTheWorstLevelCounts(t *testing.T) {
	r := report()
	for i, want := range []Level{Problem, Warning, OK, OK, OK} {
		if got := (Report{Findings: r.Findings[i:]}).Worst(); got != want {
			t.Errorf("from %d on: %s", i, got)
		}
	}
}

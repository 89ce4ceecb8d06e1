//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/internal/race"
)

// TestTheOnCallGuideShowsWhatTheCommandsPrint runs the commands of docs/guides/on-call.md, one after the
// other on one ledger, and compares what they print with the page. What happens between them is in
// comments of the page: <!-- fill STORY CONVERSATION -->. Times are masked: the page has a night's.
func TestTheOnCallGuideShowsWhatTheCommandsPrint(t *testing.T) {
	race.Skip(t, "hundreds of processes")
	page, err := os.ReadFile("../../docs/guides/on-call.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FENCEDRUN_LEDGER", "sqlite:"+t.TempDir()+"/ledger.db")
	shown := 0
	for _, m := range step.FindAllStringSubmatch(string(page), -1) {
		if story := m[1]; story != "" {
			_, _ = inShell(t, "fill "+story)
			continue
		}
		exit := 0
		for _, part := range strings.Split("\n"+m[2], "\n$ ")[1:] {
			shown++
			command, want, _ := strings.Cut(part, "\n")
			for strings.HasSuffix(command, `\`) {
				more, rest, _ := strings.Cut(want, "\n")
				command, want = command+"\n"+more, rest
			}
			got := fmt.Sprintln(exit)
			if command != "echo $?" {
				got, exit = inShell(t, command)
			}
			if masked(got) != masked(want) {
				t.Errorf("the page shows other than what %q prints:\n%s", command, got)
			}
		}
	}
	if shown < 10 {
		t.Errorf("only %d commands were found", shown)
	}
}

var (
	step  = regexp.MustCompile("(?s)<!-- fill (.*?) -->|```console\n(.*?)```")
	times = []*regexp.Regexp{
		regexp.MustCompile(`\d{4}-\d\d-\d\d`),
		regexp.MustCompile(`\d\d:\d\d:\d\dZ?`),
		regexp.MustCompile(`\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b`),
		regexp.MustCompile(`\b\d+(ms|s|m|h|d)(\d+(s|m|h))? ago`),
		regexp.MustCompile(`\b\d{13}\b`), // numbers of the ledger begin at its clock
	}
)

// masked is text without its times, and without the spaces that depend on how long they are.
func masked(text string) string {
	for _, re := range times {
		text = re.ReplaceAllString(text, "TIME")
	}
	return strings.Join(strings.Fields(text), " ")
}

// inShell returns what a command prints, and what it exits with.
func inShell(t *testing.T, command string) (string, int) {
	t.Helper()
	if strings.HasPrefix(command, "sweep ") {
		command = "fill sweep" // a program of the service's own
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

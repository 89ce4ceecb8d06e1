package shell_test

import (
	"encoding/csv"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
)

var names = []string{
	"thread-7", "it's", "a b", "$HOME `x` \"y\" \\", "tab\there", "\x1b[31m", "größer", "nul-less \xff bytes", "a;b", "-x", "--why", "*", "a,b", `"`, "#1", "~",
}

// pasted is what bash makes of a command's words.
func pasted(t *testing.T, command string) []string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	out, err := exec.CommandContext(t.Context(), bash, "-c", `printf '%s\0' `+command).Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestNamesCanBePasted(t *testing.T) {
	for _, name := range append(slices.Clone(names), "") {
		word := shell.Word(name)
		if got := pasted(t, word); !slices.Equal(got, []string{name}) {
			t.Errorf("%q is written %s, which a shell reads as %q", name, word, got)
		}
		if strings.ContainsAny(word, "\x1b\n") {
			t.Errorf("%q is written %q", name, word)
		}
	}
}

func TestCommandsCanBePasted(t *testing.T) {
	for _, name := range names {
		command := shell.Command("dismiss", []string{"thread 7", name}, "--why spam", "--answers "+shell.Item(name))
		words := pasted(t, command)
		flags := (&cobra.Command{Use: "dismiss"}).Flags()
		why, answers := flags.String("why", "", ""), flags.StringSlice("answers", nil, "")
		if err := flags.Parse(words[1:]); err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		if got := flags.Args(); !slices.Equal(got, []string{"thread 7", name}) || *why != "spam" || !slices.Equal(*answers, []string{name}) {
			t.Errorf("%s is read as %q, why %q, answers %q", command, got, *why, *answers)
		}
	}
	if got, want := shell.Command("why", []string{"thread-7"}, "--json"), "why thread-7 --json"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAnItemIsOneField(t *testing.T) {
	got, err := csv.NewReader(strings.NewReader(pasted(t, shell.Item(`say "a,b"`))[0])).Read()
	if err != nil || !slices.Equal(got, []string{`say "a,b"`}) {
		t.Errorf("%q, %v", got, err)
	}
}

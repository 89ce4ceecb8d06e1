package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// What a command exits with.
const (
	exitOK     = 0
	exitFound  = 1 // a list is not empty, or what was asked for was refused: the text says why
	exitCannot = 2 // the command could not run: a wrong command line, a ledger out of reach
)

// failure is an error that says what the process exits with. One without a text was told already.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// found ends a command whose list is not empty, or whose refusal was printed.
var errFound = &failure{code: exitFound}

// refusef ends a command that did nothing, for a reason that a person can do something about.
func refusef(format string, args ...any) error {
	return &failure{code: exitFound, text: fmt.Sprintf(format, args...)}
}

// usageError is a command line that cannot be meant.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// app is one call of the program.
type app struct {
	stdout, stderr io.Writer
	place          place
	json           bool
}

// The groups of commands in the program's help.
const (
	groupUnknown = "unknown"
	groupLook    = "look"
	groupChange  = "change"
	groupLedger  = "ledger"
	groupFaults  = "faults"
)

const rootLong = `Shows and decides what the ledger of your workers does not know by itself, and keeps it in order.

At 3 a.m.: "fencedrun audit" lists the effects whose outcome is unknown, "fencedrun why
CONVERSATION" tells what went on, and "fencedrun resolve" takes your verdict. Each list ends with
the next command to type.

The ledger is where --ledger or FENCEDRUN_LEDGER says. A service that sets Config.Namespace, or
a schema or prefix of its own, needs the same here: else the ledger looks empty.`

const rootExample = `  export FENCEDRUN_LEDGER=postgres://bot@db/support
  fencedrun audit
  fencedrun why thread-7
  fencedrun resolve 8k2jq0s1 happened --note "it is in the bank's books" --ref re_77`

// New returns the program with the operators' commands. Others may be added to the group "faults".
func New(stdout, stderr io.Writer) *cobra.Command {
	a := &app{stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:           "fencedrun <command> [flags]",
		Short:         "what the ledger knows, what it does not, and what you decide",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations: map[string]string{exitCodes: `  0  it did what was asked for, or there was nothing to list
  1  a list is not empty, or it was refused: the text says why and what to do
  2  it could not run: a wrong command line, a ledger that is out of reach`},
		DisableAutoGenTag: true,
		Version:           version(),
		// Flags without a command are a mistake: a scheduler whose variable was empty must not read
		// that all is well.
		RunE: func(*cobra.Command, []string) error { return usagef("which command? fencedrun -h lists them") },
	}
	a.place.flags(root)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON instead of text")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate("{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}\n\n{{end}}{{.UsageString}}")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.AddGroup(
		&cobra.Group{ID: groupUnknown, Title: "What is not known, and what nobody answered"},
		&cobra.Group{ID: groupLook, Title: "What happened"},
		&cobra.Group{ID: groupChange, Title: "What a person decides"},
		&cobra.Group{ID: groupLedger, Title: "The ledger"},
		&cobra.Group{ID: groupFaults, Title: "The library under faults"},
	)
	for _, c := range []struct {
		group string
		make  func(*app) *cobra.Command
	}{
		{groupUnknown, newAudit},
		{groupUnknown, newResolve},
		{groupUnknown, newOpen},
		{groupLook, newWhy},
		{groupLook, newStatus},
		{groupLook, newHistory},
		{groupLook, newRuns},
		{groupLook, newKey},
		{groupChange, newDismiss},
		{groupChange, newCancel},
		{groupChange, newReport},
		{groupLedger, newDoctor},
		{groupLedger, newMigrate},
		{groupLedger, newPurge},
	} {
		command := c.make(a)
		command.GroupID = c.group
		root.AddCommand(command)
	}
	root.SetHelpCommandGroupID(groupLedger)
	root.SetCompletionCommandGroupID(groupLedger)
	return root
}

// Run executes root and returns what the process exits with.
func Run(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Short = "write the script that completes commands in your shell"
			// What a shell reads in must not be this command's help.
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(*cobra.Command, []string) error { return usagef("for which shell? bash, zsh, fish or powershell") }
		}
	}
	if len(args) == 0 {
		fmt.Fprint(root.ErrOrStderr(), root.UsageString())
		return exitCannot
	}
	command, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	name := command.CommandPath()
	if word := args[0]; command == root && len(word) > 2 && word[0] == '-' && word[1] != '-' {
		err = flagError(fmt.Errorf("unknown shorthand flag: in %s", word))
	}
	if f, ok := errors.AsType[*failure](err); ok {
		if f.text != "" {
			fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", name, f.text)
		}
		return f.code
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", name, strings.TrimPrefix(strings.TrimSpace(err.Error()), "fencedrun: "))
	if _, ok := errors.AsType[*usageError](err); ok || command == root {
		fmt.Fprintf(root.ErrOrStderr(), "%s --help says more.\n", name)
	}
	return exitCannot
}

// Exit makes a command's error of another program part's exit code; nil for 0.
func Exit(code int) error {
	if code == exitOK {
		return nil
	}
	return &failure{code: code}
}

// GroupFaults is the group of the commands that show the library under faults.
const GroupFaults = groupFaults

// flagError says what a wrong flag should have been.
func flagError(err error) error {
	text := err.Error()
	if _, in, ok := strings.Cut(text, "unknown shorthand flag: "); ok {
		if _, word, ok := strings.Cut(" "+in, " in -"); ok && len(word) > 1 {
			text = fmt.Sprintf("-%s: flags have two dashes: --%s; for a name that begins with a dash write -- before it, behind all flags", word, word)
		}
	}
	return &usageError{text}
}

// interruptible returns a ctx that ends on Ctrl-C.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// arguments says which arguments a command takes: each has a name, and the last may be repeated
// when it ends in "…".
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		for i, name := range names {
			if i >= len(args) {
				return usagef("%s is missing", strings.TrimSuffix(name, "…"))
			}
			if args[i] == "" {
				return usagef("%s is empty", strings.TrimSuffix(name, "…"))
			}
		}
		if many := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "…"); !many && len(args) > len(names) {
			return usagef("unexpected argument %q: it takes %s", args[len(names)], takes(names))
		}
		return nil
	}
}

func takes(names []string) string {
	if len(names) == 0 {
		return "flags only"
	}
	return strings.Join(names, " ") + " and flags"
}

// exitCodes is the annotation of a command that holds them.
const exitCodes = "exit codes"

// usageTemplate is what stands under a command's long text.
const usageTemplate = `usage: {{.UseLine}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}
{{- if .HasAvailableSubCommands}}{{$all := .Commands}}{{range $group := .Groups}}

{{.Title}}:{{range $all}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if not .Groups}}

Commands:{{range $all}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}
{{- with index .Annotations "exit codes"}}

Exit codes:
{{.}}{{end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 98 | trimTrailingWhitespaces}}{{end}}
{{- if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsagesWrapped 98 | trimTrailingWhitespaces}}{{end}}
{{- if .HasAvailableSubCommands}}

"{{.CommandPath}} <command> --help" says more about each.{{end}}
`

// version is the module's, as the toolchain knows it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

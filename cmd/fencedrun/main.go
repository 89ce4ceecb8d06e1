// Command fencedrun shows and decides what a ledger does not know by itself, keeps it in order,
// and shows what the library promises, under faults.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/chaos/command"
	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/operator"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	root := operator.New(stdout, stderr)
	root.AddCommand(
		passed("demo", "play conversations under faults, with the library and without it", command.Demo, stdout, stderr),
		passed("chaos", `look for a world that breaks a promise; "chaos live" does it for real`, command.Chaos, stdout, stderr),
	)
	return operator.Run(root, args)
}

// passed makes a command that parses its own flags and chooses its own exit codes.
func passed(name, short string, run func([]string, io.Writer, io.Writer) int, stdout, stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, GroupID: operator.GroupFaults, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return operator.Exit(run(args, stdout, stderr)) },
	}
}

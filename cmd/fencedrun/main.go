// Command fencedrun shows what the library promises, under faults, and makes the tables of ledgers.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fencedrun/fencedrun/chaos/command"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `usage: fencedrun <command> [flags]

  demo      play conversations under faults, with the library and without it
  chaos     search for a world in which a promise is broken; "chaos live" does it with real
            processes, queues and servers
  migrate   make the tables of a ledger on Postgres, or print the SQL for it

fencedrun <command> -h says more about each.
`

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch args[0] {
	case "demo":
		return command.Demo(args[1:], stdout, stderr)
	case "chaos":
		return command.Chaos(args[1:], stdout, stderr)
	case "migrate":
		return migrate(args[1:], stdout, stderr)
	case "-h", "-help", "--help", "help":
		fmt.Fprint(stdout, usage)
		return 0
	}
	fmt.Fprintf(stderr, "fencedrun: no command is called %q\n\n%s", args[0], usage)
	return 2
}

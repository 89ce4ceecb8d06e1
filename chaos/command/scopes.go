package command

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
)

// scopesHelp says what -exhaustive plays, and what it leaves out.
func scopesHelp() string {
	var b strings.Builder
	b.WriteString("\nWhat -exhaustive plays to the end:\n")
	for _, name := range sim.ScopeNames() {
		fmt.Fprintf(&b, "  %-20s %s\n", name, sim.ScopeDoes(name))
	}
	b.WriteString("\n" + sim.ScopeNotes)
	return b.String()
}

// tuned makes the collector rarer: a world's memory is small and short-lived, and with the
// default a quarter of the time would go to looking after it. It returns what undoes it.
func tuned() func() {
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}

// Package command holds the commands `fencedrun demo` and `fencedrun chaos`: they play
// conversations with the simulator and show what became of them.
package command

import "runtime/debug"

// collectLess lets garbage pile up while worlds are played, a fifth faster: what is alive at a
// time is a few megabytes. It returns what undoes it.
func collectLess() (undo func()) {
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}

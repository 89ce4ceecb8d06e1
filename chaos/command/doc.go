// Package command holds the commands `fencedrun demo` and `fencedrun chaos`: they play
// conversations with the simulator and show what became of them.
package command

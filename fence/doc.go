// Package fence holds the rules of fenced runs as a pure core: what a run may do to a
// conversation, and when.
//
// Every transition is a function of a [View] (what the ledger remembers of one
// conversation, with the ledger's own time) and a request. It returns a verdict and a
// [Change]: the rows to write, provided that the conversation is still the one that was
// decided on. The package does no I/O, reads no clock, draws no random number and starts
// no goroutine, so that the same code decides in production, in the simulator, and in the
// text scenarios under testdata.
//
// One file holds one transition; rule numbers such as S5.3 are those of docs/semantics.md.
package fence

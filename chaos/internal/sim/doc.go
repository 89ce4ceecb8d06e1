// Package sim executes the library on simulated time, one step at a time.
//
// A [World] is one conversation: customers who write, a queue that delivers and redelivers,
// worker processes with a keeper each, one ledger, one provider, and faults. The library's own
// code runs unchanged; only the clock, the queue and the provider are models. Every
// simulated goroutine is a coroutine, exactly one runs, and whatever could go one way or the
// other is asked of one stream of choices. So an execution is a list of small integers: it can
// be drawn from a seed, replayed, enumerated and shrunk.
//
// What counts as a duplicate is decided by the provider's own record, never by the ledger.
package sim

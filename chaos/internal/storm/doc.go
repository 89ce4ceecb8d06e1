// Package storm runs the library on real processes, servers and queues and breaks everything at
// once, for minutes: workers are killed and frozen, their connections to the ledger are cut, jobs
// are delivered while they are at work, servers drop their clients; servers that the storm has started
// itself stand still, are killed and start again. Then it asks the provider what
// was done twice, and the ledger what became of the rest.
//
// The program that calls [Run] is the coordinator. It starts itself again for each worker and for
// the provider, which are told what they are in an environment variable: so every program, and
// every test binary, that calls Run calls [Child] first.
//
// Whether something is a duplicate is decided by the provider's log alone. The ledger is asked only
// where a message has no answer, and then it must say so: its answer is unknown, or it is open.
package storm

// Package runstest delivers jobs to a handler in a test: once, again, in the middle of
// another, with a crash at any point; and shows the verdict that the queue would get.
//
// Nothing here is concurrent and nothing waits for real time. A [Keeper] has a ledger in
// memory and a clock of its own, which stands still until the test moves it with
// [Keeper.Advance], or the library waits for something. Every delivery runs on a worker
// process of its own: a second delivery while the first lives, or a newer message, is simply
// delivered from inside the first one's handler, from a stub that it calls, or from a hook set
// with [Keeper.When].
//
//	k := runstest.NewKeeper(t, nil)
//	k.When("caught_up", func(runs.Event) { k.Deliver(newer, handler) }) // arrives while the first one thinks
//	d := k.Deliver(older, handler)
//	if d.Action != runs.ActionComeBack { … }
package runstest

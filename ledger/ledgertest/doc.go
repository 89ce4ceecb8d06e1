// Package ledgertest is the contract of ledger.Store as tests. Whatever passes [Run] may be handed
// to runs.New; what does not is not a store, however well it works most of the time.
//
//	func TestContract(t *testing.T) {
//		ledgertest.Run(t, func(t *testing.T) ledger.Store { return mystore.New(...) })
//	}
//
// The first part, under "store", takes the sentences of the interface's comments one by one. The
// second, under "ledger", runs the library's own engine and rules over the store: lost answers,
// racing workers, skewed clocks, long histories.
//
// [Counting], [Faulty] and [Crashable] wrap a store to count its calls, to lose its answers, and to
// lose what it had not flushed.
package ledgertest

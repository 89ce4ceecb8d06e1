// Package ledger remembers what package fence decides: it loads a bounded view of a
// conversation, has the rules decide on it, and writes the change by compare-and-swap.
//
// A [Store] is the small interface behind it: rows in, rows out. It never sees a rule, so no
// store can get one wrong. Users construct a store (memledger, sqliteledger, …) and hand it to
// runs.New; they call nothing else here.
package ledger

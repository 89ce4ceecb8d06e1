// Package race tells tests whether they run under the race detector. It makes what computes about ten
// times slower: databases that are compiled into the program, rules and worlds that are played by the
// thousand. Where only one goroutine runs at a time it finds nothing for that.
package race

// Skip leaves a test out under the race detector. make test plays what calls it a second time, without:
// the packages are listed in the Makefile.
func Skip(t skipper, why string) {
	t.Helper()
	if Enabled {
		t.Skipf("%s: make test plays it without the race detector", why)
	}
}

// skipper is a *testing.T. Package testing is not for what programs are made of, and ledger/ledgertest
// is made of this.
type skipper interface {
	Helper()
	Skipf(format string, args ...any)
}

package riverruns

import "testing"

// OnUnprovenRiver makes the test look as if it had been built with another
// version of River.
func OnUnprovenRiver(t *testing.T) {
	t.Helper()
	before := proven
	proven = func() bool { return false }
	t.Cleanup(func() { proven = before })
}

//go:build race

package riverruns_test

import "testing"

// hoursUnderRace skips a test that plays hours of River's own polling: under the race detector ten
// times as slow, and make test plays it again without.
func hoursUnderRace(t *testing.T) {
	t.Helper()
	t.Skip("plays hours of River's polling: make test plays it without the race detector")
}

//go:build race

package sim

import "testing"

// underRace: the race detector costs a factor of ten, and only one simulated task runs at a
// time. What needs many worlds plays a sample of them, or is left out.
const underRace = true

// notUnderRace skips a test that needs many worlds.
func notUnderRace(t *testing.T) {
	t.Helper()
	t.Skip("thousands of worlds, in which one goroutine runs at a time: make test plays them without the race detector")
}

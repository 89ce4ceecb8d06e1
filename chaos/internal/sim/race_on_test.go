//go:build race

package sim

// underRace: the race detector costs a factor of ten, and only one simulated task runs at a
// time. What needs many worlds plays a sample of them.
const underRace = true

//go:build race

package fence_test

// underRace: the race detector costs a factor of ten, and fence starts no goroutine.
const underRace = true

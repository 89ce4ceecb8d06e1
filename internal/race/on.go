//go:build race

package race

// Enabled says that this program was built with the race detector.
const Enabled = true

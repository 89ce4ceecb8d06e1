//go:build race

package redisledger_test

// The race detector makes a database that is compiled into the program ten times slower.
const raceDetector = true

//go:build !race

package sqliteledger_test

const raceDetector = false

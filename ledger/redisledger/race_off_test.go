//go:build !race

package redisledger_test

const raceDetector = false

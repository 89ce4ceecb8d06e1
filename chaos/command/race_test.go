//go:build race

package command

const race = true

// Package cases replays, as tests, how duplicates were really made in other people's systems.
package cases

package sim

import (
	"runtime/debug"
	"testing"
)

// BenchmarkConversations reports conversations per second on one core, with faults on: in a
// campaign of random worlds, and in the demonstration's.
func BenchmarkConversations(b *testing.B) {
	b.Run("campaign", func(b *testing.B) {
		benchmarkWorlds(b, 700_000, Campaign{}.Vary)
	})
	b.Run("demo", func(b *testing.B) {
		benchmarkWorlds(b, 7_000_021, func(uint64) Config { return Config{Rate: 60, Provider: "naive"} })
	})
	b.Run("demo-without", func(b *testing.B) {
		benchmarkWorlds(b, 7_000_021, func(uint64) Config { return Config{Rate: 60, Provider: "naive", Without: true} })
	})
}

func benchmarkWorlds(b *testing.B, from uint64, cfg func(seed uint64) Config) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the command does
	e := &Engine{}
	defer e.Close()
	b.ReportAllocs()
	steps, worlds := 0, 0
	for b.Loop() {
		seed := from + uint64(worlds)
		worlds++
		steps += e.Seed(cfg(seed), seed, false).Tally.Steps
	}
	b.ReportMetric(float64(worlds)/b.Elapsed().Seconds(), "conversations/s")
	b.ReportMetric(float64(steps)/float64(worlds), "steps/conversation")
}

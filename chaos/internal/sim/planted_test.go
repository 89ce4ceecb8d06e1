package sim

import (
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// planted are rules of different kinds.
var planted = []sabotage.Name{
	sabotage.AmbiguousRetried, sabotage.NoConversationCheck, sabotage.TimeoutMeansFailed, sabotage.ClaimNotDurable,
	sabotage.RefusalCatchesUp, sabotage.StaleDeliveryWrites, sabotage.OwnAnswerSupersedes,
}

// A violation becomes a story of at most twelve events, in so few worlds that nobody waits:
// worlds are counted here, BenchmarkShrink has the time.
func TestAPlantedViolationIsShortAfterFewWorlds(t *testing.T) {
	const worlds = 2500
	e := &Engine{}
	defer e.Close()
	far := time.Now().Add(time.Hour)
	for _, name := range planted[:1+sample(uint64(len(planted)-1))] {
		c := e.Noticed(name, 2000)
		if c.Seed == 0 {
			t.Errorf("%s is not noticed", name)
			continue
		}
		cfg := Focused(name).Vary(c.Seed)
		short, n := e.shrink(cfg, c.Result, far, worlds)
		if short.Kind != c.Kind || short.Events() > 12 {
			t.Errorf("%s: %q, and %d events are left of %d after %d worlds", name, short.Kind, short.Events(), c.Events(), n)
		}
		if again := e.Replay(cfg, short.Choices, true); again.Kind != c.Kind || again.Hash != short.Hash {
			t.Errorf("%s: played again the short world is another one: %q", name, again.Kind)
		}
		t.Logf("%-24s %2d events of %3d, %4d worlds", name, short.Events(), c.Events(), n)
	}
}

func BenchmarkShrink(b *testing.B) {
	e := &Engine{}
	defer e.Close()
	for _, name := range planted {
		c := e.Noticed(name, 2000)
		cfg := Focused(name).Vary(c.Seed)
		b.Run(name.String(), func(b *testing.B) {
			events, worlds := 0, 0
			for b.Loop() {
				short, n := e.shrink(cfg, c.Result, time.Now().Add(time.Hour), 6000)
				events, worlds = short.Events(), n
			}
			b.ReportMetric(float64(events), "events")
			b.ReportMetric(float64(worlds), "worlds")
		})
	}
}

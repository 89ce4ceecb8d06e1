package sim

import (
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// What is planted must come out as a story of at most a dozen events, whichever rule it was.
func TestWhateverIsPlantedBecomesADozenEvents(t *testing.T) {
	race.Skip(t, "thousands of worlds, in which one goroutine runs at a time")
	e := &Engine{}
	defer e.Close()
	seeds, least, shrunk := 120, 20, 0
	if testing.Short() {
		seeds, least = 10, 12
	}
	for _, name := range sabotage.All() {
		if OutOfReach[name.String()] != "" {
			continue
		}
		c := e.Noticed(name, seeds)
		if c.Seed == 0 {
			continue
		}
		shrunk++
		cfg := Focused(name).Vary(c.Seed)
		start := time.Now()
		short := e.Shrink(cfg, c.Result, time.Minute)
		again := e.Replay(cfg, short.Choices, true)
		if again.Kind != c.Kind || again.Violation == "" {
			t.Errorf("%s: %q became %q", name, c.Kind, again.Kind)
		}
		if n := short.Events(); n > 12 {
			t.Errorf("%s: %d events are left of seed %d", name, n, c.Seed)
		}
		t.Logf("%-26s seed %4d  %2d events  %2d lines  %v", name, c.Seed, short.Events(), len(again.Lines()), time.Since(start).Round(time.Millisecond))
	}
	if shrunk < least {
		t.Errorf("only %d sabotages were noticed in %d worlds", shrunk, seeds)
	}
}

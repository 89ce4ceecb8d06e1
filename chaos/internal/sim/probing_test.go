package sim

import (
	"testing"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// A provider that can be asked settles what would otherwise wait for a person, and nothing is
// done twice; also not by one that is asked too early, whose "not found" is no answer.
func TestProvidersThatCanBeAsked(t *testing.T) {
	race.Skip(t, "thousands of worlds, in which one goroutine runs at a time")
	parked := map[string]int{}
	unknown := map[string]int{}
	for _, provider := range []string{"naive", lasting, early} {
		report := Campaign{Config: Config{Provider: provider}, From: 1, Seeds: 1000, Workers: 2}.Run()
		for _, v := range report.Violations {
			t.Errorf("%s: seed %d: %s: %s", provider, v.Seed, v.Kind, v.Violation)
		}
		parked[provider], unknown[provider] = report.Tally.Parked, report.Coverage.Events["probed"]
		t.Logf("%s: %d messages, %d answers, %d unanswered, %d parked, %d falsely; probes that could not say: %d, events resolved: %d",
			provider, report.Tally.Messages, report.Tally.Answers, report.Tally.Unanswered, report.Tally.Parked, report.Tally.FalselyParked,
			unknown[provider], report.Coverage.Events["resolved"])
	}
	if 2*parked[lasting] > parked["naive"] || parked[lasting] > parked[early] {
		t.Errorf("asking saves nobody: parked %v", parked)
	}
	if unknown[early] == 0 {
		t.Error("nobody was asked too early")
	}
}

// Each rule about probes is missed when it is off.
func TestProbesAreMissedWithoutTheirRules(t *testing.T) {
	race.Skip(t, "thousands of worlds, in which one goroutine runs at a time")
	e := &Engine{}
	defer e.Close()
	for _, name := range []sabotage.Name{
		sabotage.ProbesEarly, sabotage.NotFoundBelieved, sabotage.ProbesCrowd, sabotage.LateProbes, sabotage.OldProbeCounts,
	} {
		worlds := Focused(name)
		worlds.Config.Off = sabotage.Set{}
		for seed := uint64(1); seed <= 500; seed++ {
			if r := e.Seed(worlds.Vary(seed), seed, false); r.Violation != "" {
				t.Fatalf("%s, which is on: seed %d: %s: %s", name, seed, r.Kind, r.Violation)
			}
		}
		c := e.Noticed(name, 60000)
		if c.Violation == "" {
			t.Errorf("%s: not noticed in %d worlds", name, c.Seeds)
			continue
		}
		t.Logf("%s: seed %d: %s: %s", name, c.Seed, c.Kind, c.Violation)
	}
}

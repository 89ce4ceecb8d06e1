package sim

import "testing"

// The counts are pinned: another count means that the rules, or what the worlds can do, have
// changed. FENCEDRUN_EXHAUST=1 plays the larger scopes, too.
func TestExhaustiveScopes(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	small := Config{
		Handler: "all", Provider: "naive", Queue: "river", Order: "seq", Mode: "supersede", Tag: "none", Messages: 1, Budget: 1,
		Attempts: 3, Faults: smallFaults,
	}
	out := e.Exhaust(small, 0)
	if out.Found != nil {
		t.Errorf("%s: %s\n%v", out.Found.Kind, out.Found.Violation, out.Found.Choices)
	}
	if !out.Complete || out.States < 100 {
		t.Errorf("%d states, %d worlds, complete %v", out.States, out.Worlds, out.Complete)
	}
	t.Logf("%d states, %d worlds", out.States, out.Worlds)
	again := e.Exhaust(small, 0)
	if again.States != out.States || again.Worlds != out.Worlds {
		t.Errorf("twice the same search: %d and %d states", out.States, again.States)
	}
	if env("FENCEDRUN_EXHAUST", 0) == 0 {
		return
	}
	for _, name := range ScopeNames() {
		cfg, err := Scope(name)
		if err != nil {
			t.Fatal(err)
		}
		out := e.Exhaust(cfg, 0)
		t.Logf("%s: %d states, %d worlds", name, out.States, out.Worlds)
		if out.Found != nil {
			t.Errorf("%s: %s: %s\n%v", name, out.Found.Kind, out.Found.Violation, out.Found.Choices)
		}
	}
}

package sim

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// traces plays worlds of every kind and lists their hashes.
func traces() string {
	e := &Engine{}
	defer e.Close()
	var b strings.Builder
	for seed := uint64(1); seed <= 60; seed++ {
		cfg := Campaign{}.Vary(seed)
		with := e.Seed(cfg, seed, seed%2 == 0)
		cfg.Without = true
		fmt.Fprintf(&b, "%d %s %s\n", seed, hex(with.Hash), hex(e.Seed(cfg, seed, seed%2 == 1).Hash))
	}
	for i := range Handlers {
		cfg := Config{Rate: 30, Handler: Handlers[i].Name}
		with := e.Seed(cfg, uint64(i+1), false)
		cfg.Without = true
		fmt.Fprintf(&b, "%s %s %s\n", Handlers[i].Name, hex(with.Hash), hex(e.Seed(cfg, uint64(i+1), false).Hash))
	}
	for _, f := range everyFault() {
		cfg := Config{Rate: 18, Budget: 3, Faults: Faults(f)}
		fmt.Fprintf(&b, "%s %s\n", f, hex(e.Seed(cfg, 7, false).Hash))
	}
	return b.String()
}

// A seed is the same world with one processor and with two, with the race detector and
// without, on every machine: testdata/traces.golden has the hashes of their traces.
func TestASeedIsTheSameWorldOnEveryMachine(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one := traces()
	golden(t, "traces.golden", one)
	runtime.GOMAXPROCS(2)
	// Two at a time: neither may disturb the other.
	other := make(chan string)
	go func() { other <- traces() }()
	if two := traces(); two != one {
		t.Errorf("GOMAXPROCS 1 and 2 differ:\n%s", difference(one, two))
	}
	if two := <-other; two != one {
		t.Errorf("beside another engine the same seeds are other worlds:\n%s", difference(one, two))
	}
}

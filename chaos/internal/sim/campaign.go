package sim

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Campaign executes many seeds.
type Campaign struct {
	Config  Config
	From    uint64
	Seeds   int
	Workers int
	// For ends it before all seeds are played; 0: never. Then how many were played depends on
	// the machine, and what became of each does not.
	For time.Duration
	// Progress is told, now and then, how many seeds are done.
	Progress func(done int)
}

// Report is what a campaign found.
type Report struct {
	Seeds      int
	Violations []Found // the first of each kind and handler
	Tally      Tally
	Coverage   Coverage
	Elapsed    time.Duration
}

// Found is one kind of violation.
type Found struct {
	Seed  uint64
	Times int
	Result
}

// Run executes the campaign. Every third seed uses priorities (PCT) and every fifth strikes
// more often.
func (c Campaign) Run() Report {
	start := time.Now()
	workers := max(c.Workers, 1)
	const block = 50
	var mu sync.Mutex
	next, done := 0, 0
	report := Report{}
	found := map[string]*Found{}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			e := &Engine{}
			defer e.Close()
			for {
				mu.Lock()
				from := next
				next += block
				mu.Unlock()
				if from >= c.Seeds || c.For > 0 && time.Since(start) > c.For {
					break
				}
				for i := from; i < min(from+block, c.Seeds); i++ {
					seed := c.From + uint64(i)
					r := e.Seed(c.Vary(seed), seed, false)
					mu.Lock()
					report.Tally.Add(r.Tally)
					if r.Violation != "" {
						k := r.Kind + "\x00" + r.Config.Handler
						if found[k] == nil {
							found[k] = &Found{Seed: seed, Result: r}
						}
						found[k].Times++
						if seed < found[k].Seed {
							found[k].Seed, found[k].Result = seed, r
						}
					}
					mu.Unlock()
				}
				mu.Lock()
				done += block
				if c.Progress != nil {
					c.Progress(min(done, c.Seeds))
				}
				mu.Unlock()
			}
			mu.Lock()
			report.Coverage.Add(&e.Cov)
			mu.Unlock()
		})
	}
	group.Wait()
	report.Seeds = min(done, c.Seeds)
	for _, k := range slices.Sorted(maps.Keys(found)) {
		report.Violations = append(report.Violations, *found[k])
	}
	sort.SliceStable(report.Violations, func(i, j int) bool { return report.Violations[i].Seed < report.Violations[j].Seed })
	report.Elapsed = time.Since(start)
	return report
}

// Vary returns the configuration of a seed.
func (c Campaign) Vary(seed uint64) Config {
	cfg := c.Config
	if cfg.Rate == 0 {
		cfg.Rate = 60
		if seed%5 == 4 {
			cfg.Rate = 35
		}
		cfg.PCT = seed%3 == 2
	}
	return cfg
}

// Add adds the counts of another world.
func (t *Tally) Add(o Tally) {
	t.Messages += o.Messages
	t.Answers += o.Answers
	t.Duplicates += o.Duplicates
	t.Unanswered += o.Unanswered
	t.Parked += o.Parked
	t.FalselyParked += o.FalselyParked
	t.Needless += o.Needless
	t.Thoughts += o.Thoughts
	t.Steps += o.Steps
	t.Lost += o.Lost
}

// Add adds what another engine has seen.
func (c *Coverage) Add(o *Coverage) {
	for f := range o.Struck {
		for k := range o.Struck[f] {
			c.Struck[f][k] += o.Struck[f][k]
		}
	}
	c.Events = sum(c.Events, o.Events)
	c.Reasons = sum(c.Reasons, o.Reasons)
	c.Actions = sum(c.Actions, o.Actions)
	c.Edges = sum(c.Edges, o.Edges)
}

func sum[K comparable](a, b map[K]int) map[K]int {
	if a == nil {
		a = make(map[K]int, len(b))
	}
	for k, n := range b {
		a[k] += n
	}
	return a
}

// Gaps lists what a campaign has never seen: faults at their kinds of yield, outcomes,
// refusals, verdicts, events, and edges of docs/states.md.
func (c *Coverage) Gaps() []string {
	var gaps []string
	for k, list := range faultsAt {
		for _, f := range list {
			if c.Struck[f][k] == 0 {
				gaps = append(gaps, fmt.Sprintf("%s at a %s", f, kindNames[k]))
			}
		}
	}
	for _, f := range happening {
		if c.Struck[f][kinds] == 0 {
			gaps = append(gaps, f.String())
		}
	}
	return append(gaps, c.missing()...)
}

// Caught says how a rule that is switched off was noticed.
type Caught struct {
	Name  sabotage.Name
	Seed  uint64 // of the first world that noticed; 0: none did
	Seeds int    // how many were tried
	Result
}

// Noticed tries seeds until a world notices that a rule is switched off.
func (e *Engine) Noticed(name sabotage.Name, seeds int) Caught {
	c := Focused(name)
	for seed := 1; seed <= seeds; seed++ {
		r := e.Seed(c.Vary(uint64(seed)), uint64(seed), false)
		if r.Violation != "" {
			return Caught{Name: name, Seed: uint64(seed), Seeds: seed, Result: r}
		}
	}
	return Caught{Name: name, Seeds: seeds}
}

// focus says in which worlds a rule matters that random ones seldom need.
var focus = map[string]Config{
	"unresolved-ignored":     {Handler: "all-silent", Faults: Faults(LateSend, TimeoutBefore, CrashLate), Rate: 12, Provider: "naive"},
	"unresolved-by-seq-only": {Handler: "all-silent", Faults: Faults(LateSend, TimeoutBefore, CrashLate), Rate: 12, Provider: "naive"},
	"late-overwrites":        {Faults: Faults(PauseDeadline, PauseAfter, CrashAfter, NotApplied, Duplicate, JobTimeout), Rate: 25, Provider: "honours"},
	"settled-twice":          {Handler: "elsewhere", Faults: Faults(LostAck, WrittenTwice), Rate: 30},
	"no-watchdog":            {Mode: "exclusive", Faults: Faults(Cut, Outage, PauseLease, StoreError), Rate: 25},
	"used-lease-forgiven":    {Mode: "exclusive", Faults: Faults(Cut, PauseLease), Rate: 12, Budget: 4, Messages: 2},
	"taken-forgotten": {Handler: "all", Order: "peers", Mode: "supersede", Tag: "none", Messages: 1, Budget: 5, Rate: 18,
		Faults: Faults(Twin, EffectSlow, Grumpy, PauseShort, PauseLease)},
	"not-started-counts":   {Handler: "own", Tag: "none", Messages: 1, Budget: 5, Rate: 14, Attempts: 9, Faults: Faults(PauseAfter)},
	"edit-is-handled":      {Handler: "replay-only", Budget: 4, Rate: 20, Faults: Faults(EditedJob, Duplicate, Outage, StoreError, CrashAfter, JobTimeout)},
	"one-key-is-two-deeds": {Faults: Faults(PauseDeadline, PauseAfter, Duplicate, Twin, JobTimeout), Rate: 25, Provider: "honours"},
	"late-begin-releases":  {Mode: "exclusive", Faults: Faults(Duplicate, Twin, CrashAfter, PauseLease), Rate: 20, Budget: 4},
	"probes-early":         {Provider: lasting, Rate: 20, Faults: Faults(LateSend, TimeoutBefore, TimeoutAfter, CrashLate)},
	"not-found-believed":   {Provider: early, Rate: 20, Faults: Faults(LateSend, TimeoutBefore, CrashLate)},
	"probes-crowd":         {Provider: lasting, Rate: 20, Faults: Faults(TimeoutAfter, TimeoutBefore, CrashAfter, PauseShort, PauseLease)},
	"late-probes":          {Provider: lasting, Rate: 8, Budget: 5, Messages: 1, Faults: Faults(TimeoutAfter, TimeoutBefore, PauseAfter)},
	"old-probe-counts":     {Provider: lasting, Rate: 8, Budget: 5, Messages: 1, Faults: Faults(TimeoutAfter, TimeoutBefore, PauseDeadline)},
	"refused-for-ever":     {Handler: "read-each", Rate: 30, Messages: 3, Budget: 5, Provider: "naive"},
}

// Focused returns the campaign that is to notice that a rule is switched off.
func Focused(name sabotage.Name) Campaign {
	cfg := focus[name.String()]
	cfg.Off = sabotage.Of(name)
	return Campaign{Config: cfg}
}

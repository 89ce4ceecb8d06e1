package sim

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// The self-test asks who notices that a rule is switched off: which way of choosing worlds,
// which fault when it is the only one, and which kind of handler. A cell of its table holds
// the first world that noticed, so that the table can be checked by playing these worlds only.

// Drivers are the columns of the self-test's table.
const (
	driverCalm       = "calm"       // random worlds without faults
	driverRandom     = "random"     // random worlds
	driverPCT        = "pct"        // random priorities
	driverFocused    = "focused"    // random worlds of the kind in which the rule matters
	driverExhaustive = "exhaustive" // every order of steps and every fault of a small world
	driverFault      = "fault"      // random worlds with one kind of fault
	driverHandler    = "handler"    // random worlds with one kind of handler
)

// Cell is one way in which a rule that is switched off was noticed.
type Cell struct {
	Name    sabotage.Name
	Driver  string
	What    string // the scope, the fault or the handler; "-" for other drivers
	Seed    uint64 // of the world that noticed
	Choices []int  // of that world, when it was found exhaustively
	Kind    string // of the violation
}

// Selftest is the table of the self-test.
type Selftest struct{ Cells []Cell }

// Effort bounds a self-test: how many worlds each cell may cost.
type Effort struct {
	Broad      int // for calm, random, PCT and focused worlds; 80 times that for what nobody notices
	Narrow     int // for each fault and each handler
	Exhaustive int // for each scope
}

// cellConfig returns the worlds of a driver.
func cellConfig(name sabotage.Name, driver, what string, seed uint64) (Config, error) {
	cfg := Config{Rate: 60}
	switch driver {
	case driverCalm:
		cfg.Budget = -1
	case driverRandom:
	case driverPCT:
		cfg.PCT = true
	case driverFocused:
		return Focused(name).Vary(seed), nil
	case driverExhaustive:
		scope, err := Scope(what)
		if err != nil {
			return cfg, err
		}
		cfg = scope
		cfg.Frozen = true
	case driverFault:
		f, err := ParseFault(what)
		if err != nil {
			return cfg, err
		}
		cfg.Rate, cfg.Budget, cfg.Faults = 18, 3, Faults(f)
	case driverHandler:
		cfg.Rate, cfg.Handler = 40, what
	default:
		return cfg, fmt.Errorf("sim: no driver is called %q", driver)
	}
	cfg.Off = sabotage.Of(name)
	return cfg, nil
}

// Play plays the world of a cell again.
func (e *Engine) Play(c Cell) (Result, error) {
	cfg, err := cellConfig(c.Name, c.Driver, c.What, c.Seed)
	if err != nil {
		return Result{}, err
	}
	if c.Driver == driverExhaustive {
		return e.Replay(cfg, c.Choices, false), nil
	}
	return e.Seed(cfg, c.Seed, false), nil
}

// Selftest switches every rule off in turn and asks every driver. An error is a world that
// breaks a promise with no rule switched off, or is a mistake in the table of drivers.
func (e *Engine) Selftest(effort Effort, progress func(done string)) (Selftest, error) {
	s := &search{e: e, caught: map[string]bool{}}
	for _, d := range []string{driverCalm, driverRandom, driverPCT} {
		s.random(d, "-", sabotage.All(), effort.Broad)
		progress(d)
	}
	for i := range Handlers {
		s.random(driverHandler, Handlers[i].Name, sabotage.All(), effort.Narrow)
		progress(driverHandler + " " + Handlers[i].Name)
	}
	need := s.needFaults(40*effort.Narrow, effort.Narrow)
	for _, f := range everyFault() {
		s.random(driverFault, f.String(), need, effort.Narrow)
		progress(driverFault + " " + f.String())
	}
	for _, name := range sabotage.All() {
		if _, ok := focus[name.String()]; ok {
			s.focused(name, effort.Broad)
		}
	}
	progress(driverFocused)
	for _, scope := range ScopeNames() {
		s.exhaustive(scope, effort.Exhaustive)
		progress(driverExhaustive + " " + scope)
	}
	// What nobody has noticed yet is looked for longer.
	for _, name := range (Selftest{Cells: s.cells}).Survivors() {
		s.focused(name, 80*effort.Broad)
		progress(driverFocused + " " + name.String())
	}
	slices.SortStableFunc(s.cells, func(a, b Cell) int { return order(a.Name) - order(b.Name) })
	return Selftest{Cells: s.cells}, s.err
}

// needFaults are the rules whose absence is not noticed when nothing goes wrong: by any kind of
// handler, in so many worlds of all and of each. What a fault alone notices of the others proves
// nothing of the fault.
func (s *search) needFaults(all, each int) []sabotage.Name {
	calm := &search{e: s.e, caught: map[string]bool{}}
	calm.random(driverCalm, "-", sabotage.All(), all)
	for i := range Handlers {
		calm.handler = Handlers[i].Name
		calm.random(driverCalm, "-", sabotage.All(), each)
	}
	if calm.err != nil {
		s.err = calm.err
	}
	return slices.DeleteFunc(sabotage.All(), func(n sabotage.Name) bool { return calm.caught[driverCalm+n.String()] })
}

func order(n sabotage.Name) int { return slices.Index(sabotage.All(), n) }

// search fills a table.
type search struct {
	e       *Engine
	handler string // of all worlds; "" any
	cells   []Cell
	caught  map[string]bool
	err     error
}

func (s *search) add(c Cell) {
	s.cells = append(s.cells, c)
	s.caught[c.Driver+c.Name.String()] = true
}

// random plays seeds with all rules on, and again with each rule off that was asked for: one
// that nobody asked for makes no difference.
func (s *search) random(driver, what string, names []sabotage.Name, seeds int) {
	left := slices.Clone(names)
	for seed := uint64(1); seed <= uint64(seeds) && len(left) > 0 && s.err == nil; seed++ {
		cfg, err := cellConfig(left[0], driver, what, seed)
		if err != nil {
			s.err = err
			return
		}
		if s.handler != "" {
			cfg.Handler = s.handler
		}
		var asked sabotage.Asked
		cfg.Off = asked.Set()
		if r := s.e.Seed(cfg, seed, false); r.Violation != "" {
			s.err = fmt.Errorf("sim: %s %s, seed %d, every rule on: %s: %s", driver, what, seed, r.Kind, r.Violation)
			return
		}
		left = slices.DeleteFunc(left, func(name sabotage.Name) bool {
			if !asked.Has(name) {
				return false
			}
			cfg.Off = sabotage.Of(name)
			r := s.e.Seed(cfg, seed, false)
			noticed := noticedBy(driver, r)
			if noticed {
				s.add(Cell{Name: name, Driver: driver, What: what, Seed: seed, Kind: word(r.Kind)})
			}
			return noticed
		})
	}
}

// noticedBy reports whether a world noticed: one with a fault only counts if the fault struck.
func noticedBy(driver string, r Result) bool {
	return r.Violation != "" && (driver != driverFault || r.Tally.Struck > 0)
}

func (s *search) focused(name sabotage.Name, seeds int) {
	if c := s.e.Noticed(name, seeds); c.Seed != 0 {
		s.add(Cell{Name: name, Driver: driverFocused, What: "-", Seed: c.Seed, Kind: word(c.Kind)})
	}
}

// exhaustive searches a scope with all rules on, and again with each rule off that was asked
// for. An error is a world that breaks a promise with no rule switched off.
func (s *search) exhaustive(scope string, worlds int) {
	cfg, err := cellConfig(sabotage.All()[0], driverExhaustive, scope, 0)
	if err != nil {
		s.err = err
		return
	}
	var asked sabotage.Asked
	cfg.Off = asked.Set()
	if out := s.e.Exhaust(cfg, worlds); out.Found != nil {
		s.err = fmt.Errorf("sim: exhaustive %s, every rule on: %s: %s", scope, out.Found.Kind, out.Found.Violation)
		return
	}
	for _, name := range sabotage.All() {
		if !asked.Has(name) {
			continue
		}
		cfg.Off = sabotage.Of(name)
		if out := s.e.Exhaust(cfg, worlds); out.Found != nil {
			s.add(Cell{Name: name, Driver: driverExhaustive, What: scope, Choices: trimmed(out.Found.Choices), Kind: word(out.Found.Kind)})
		}
	}
}

// Survivors are the rules whose absence nothing noticed, without those that are out of reach.
func (s Selftest) Survivors() []sabotage.Name {
	return slices.DeleteFunc(sabotage.All(), func(n sabotage.Name) bool {
		return OutOfReach[n.String()] != "" || slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Name == n })
	})
}

// of returns what a rule's cells of one driver say.
func (s Selftest) of(name sabotage.Name, driver string) []string {
	var list []string
	for _, c := range s.Cells {
		if c.Name == name && c.Driver == driver {
			list = append(list, c.What)
		}
	}
	return list
}

// Table writes who notices what, one rule a paragraph. The same cells give the same bytes.
func (s Selftest) Table(w io.Writer) error {
	var b strings.Builder
	for _, name := range sabotage.All() {
		fmt.Fprintf(&b, "%-6s %s: %s\n", name.Rule(), name, name.Does())
		var random []string
		for _, d := range []string{driverCalm, driverRandom, driverPCT, driverFocused} {
			if len(s.of(name, d)) > 0 {
				random = append(random, d)
			}
		}
		some := false
		for _, line := range []struct {
			title string
			list  []string
			of    int
		}{
			{"worlds", random, 0},
			{"exhaustive", s.of(name, driverExhaustive), 0},
			{"fault alone", s.of(name, driverFault), 0},
			{"handlers", s.of(name, driverHandler), len(Handlers)},
		} {
			if len(line.list) == 0 {
				continue
			}
			some = true
			text := strings.Join(line.list, " ")
			if len(line.list) == line.of {
				text = "all"
			}
			fmt.Fprintf(&b, "       %-12s %s\n", line.title, text)
		}
		switch reason := OutOfReach[name.String()]; {
		case reason != "":
			fmt.Fprintf(&b, "       %s\n", reason)
		case !some:
			b.WriteString("       NOT NOTICED\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String is the table's form for files: a line a cell.
func (s Selftest) String() string {
	var b strings.Builder
	for _, c := range s.Cells {
		at := strconv.FormatUint(c.Seed, 10)
		if c.Driver == driverExhaustive {
			at = strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Choices), " ", ","), "[]") + "."
		}
		fmt.Fprintf(&b, "%s %s %s %s %s %s\n", c.Name.Rule(), c.Name, c.Driver, c.What, at, c.Kind)
	}
	return b.String()
}

// word is a kind of violation as one word.
func word(kind string) string { return strings.ReplaceAll(kind, " ", "-") }

// ParseSelftest reads what String wrote.
func ParseSelftest(text string) (Selftest, error) {
	var s Selftest
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 6 {
			return s, fmt.Errorf("sim: self-test: %q is not a line of six words", line)
		}
		name, err := sabotage.Parse(fields[1])
		if err != nil {
			return s, fmt.Errorf("sim: self-test: %w", err)
		}
		c := Cell{Name: name, Driver: fields[2], What: fields[3], Kind: fields[5]}
		if list, ok := strings.CutSuffix(fields[4], "."); ok {
			for n := range strings.SplitSeq(list, ",") {
				if n == "" {
					continue
				}
				v, err := strconv.Atoi(n)
				if err != nil {
					return s, fmt.Errorf("sim: self-test: choices of %s: %w", name, err)
				}
				c.Choices = append(c.Choices, v)
			}
		} else if c.Seed, err = strconv.ParseUint(fields[4], 10, 64); err != nil {
			return s, fmt.Errorf("sim: self-test: seed of %s: %w", name, err)
		}
		s.Cells = append(s.Cells, c)
	}
	return s, nil
}

package sim

import _ "embed" // the pinned table

//go:embed testdata/selftest.golden
var knownCells string

// Known returns the table that was last found by a self-test of full effort.
func Known() (Selftest, error) { return ParseSelftest(knownCells) }

// Verified is what became of a table whose worlds were played again.
type Verified struct {
	// Selftest holds the cells that still notice, with the worlds that do.
	Selftest
	Stale int    // of them, how many needed another world, because the code has changed
	Other []Cell // … and which world notices something else than it did
	Lost  []Cell // those that notice no more
}

// Verify plays the world of every cell again. When it does not notice any more, others of its
// driver are tried: three times as many as it took to find the first, and some.
func (e *Engine) Verify(s Selftest) (Verified, error) {
	var v Verified
	for _, c := range s.Cells {
		r, err := e.Play(c)
		if err != nil {
			return v, err
		}
		if noticedBy(c.Driver, r) {
			if kind := word(r.Kind); kind != c.Kind {
				c.Kind = kind
				v.Other = append(v.Other, c)
			}
			v.Cells = append(v.Cells, c)
			continue
		}
		again, err := e.again(c)
		switch {
		case err != nil:
			return v, err
		case again.Kind == "":
			v.Lost = append(v.Lost, c)
		default:
			v.Stale++
			v.Cells = append(v.Cells, again)
		}
	}
	return v, nil
}

// again looks for another world that notices what a cell's world noticed; its Kind is "" when
// there is none.
func (e *Engine) again(c Cell) (Cell, error) {
	found := c
	found.Kind = ""
	for seed := uint64(1); seed <= 3*c.Seed+300; seed++ {
		cfg, err := cellConfig(c.Name, c.Driver, c.What, seed)
		if err != nil {
			return found, err
		}
		if c.Driver == driverExhaustive {
			if out := e.Exhaust(cfg, 3000); out.Found != nil {
				found.Choices, found.Kind = trimmed(out.Found.Choices), word(out.Found.Kind)
			}
			return found, nil
		}
		if r := e.Seed(cfg, seed, false); noticedBy(c.Driver, r) {
			found.Seed, found.Kind = seed, word(r.Kind)
			return found, nil
		}
	}
	return found, nil
}

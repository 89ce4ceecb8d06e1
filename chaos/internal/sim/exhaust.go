package sim

import (
	"slices"
	"sync"
)

// pruned is the kind of a world that was given up because its state had been seen.
const pruned = "pruned"

// seen gives a world up whose state was seen before, in an exhaustive search.
func (w *World) seen() bool {
	if w.prune == nil || w.calm || !w.prune(w) {
		return false
	}
	w.badKind, w.bad = pruned, "seen before"
	return true
}

// unseen returns the first event that nobody else can tell whether it comes now or later: a job
// is handed to a worker, or its outcome to the queue. If there is none it returns all.
func unseen(events []event) []event {
	for i, e := range events {
		if e.what == evDeliver && e.j.state == queued || e.what == evStep && (e.t.acks || e.t.beats) {
			return events[i : i+1]
		}
	}
	return events
}

// Exhausted is what an exhaustive search found.
type Exhausted struct {
	States, Worlds int
	Found          *Result // the first violation, nil if none
	Complete       bool
}

// exploration is an exhaustive search: ways that are still to be gone, and states that were seen.
type exploration struct {
	cfg  Config
	most int // worlds; 0: all
	// unpruned searches go every way to its end; backwards ones take the last choice first;
	// all goes on after a violation.
	unpruned, backwards, all bool
	ended                    func(w *World) // told of every world that was played to its end
	step                     func(w *World) // told before every step

	mu     sync.Mutex
	more   sync.Cond
	ways   [][]uint8
	atWork int
	states map[uint64]struct{}
	worlds int
	found  *Result
	cov    Coverage // of the other workers
}

// Exhaust executes every world of a configuration: every order of steps and every fault at
// every yield, within the configuration's budget. A state that was seen before is not
// explored again: what can happen next is a function of the state. maxWorlds bounds how many
// worlds are played, each up to where it is given up; 0 means all.
//
// Engine.Workers work at it together. One worker always does the same in the same order. With
// several, which violation is found first depends on who does what; the counts of a search that
// finds none do not.
func (e *Engine) Exhaust(cfg Config, maxWorlds int) Exhausted {
	s := &exploration{cfg: cfg, most: maxWorlds}
	return s.run(e)
}

func (s *exploration) run(e *Engine) Exhausted {
	s.cfg.Frozen, s.cfg.Rate = true, 0
	s.states = map[uint64]struct{}{}
	s.ways = [][]uint8{nil}
	s.more.L = &s.mu
	var group sync.WaitGroup
	for range e.Workers - 1 {
		group.Go(func() {
			other := &Engine{}
			defer other.Close()
			s.work(other)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cov.Add(&other.Cov)
		})
	}
	s.work(e)
	group.Wait()
	e.Cov.Add(&s.cov)
	return Exhausted{States: len(s.states), Worlds: s.worlds, Found: s.found, Complete: s.found == nil && len(s.ways) == 0}
}

// take returns the newest way; false when there is none and nobody will find more.
func (s *exploration) take() (way []uint8, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ways) == 0 && s.atWork > 0 && s.found == nil {
		s.more.Wait()
	}
	if len(s.ways) == 0 || s.found != nil || s.most > 0 && s.worlds >= s.most {
		return nil, false
	}
	last := len(s.ways) - 1
	way, s.ways = s.ways[last], s.ways[:last]
	s.atWork++
	s.worlds++
	return way, true
}

func (s *exploration) work(e *Engine) {
	for {
		way, ok := s.take()
		if !ok {
			return
		}
		d := &onward{exploration: s, path: way}
		w := newWorld(s.cfg, &choices{source: d, log: e.log[:0]}, &e.pool, &e.Cov, false)
		w.prune = d.known
		w.execute()
		if s.ended != nil && w.badKind != pruned {
			s.ended(w)
		}
		s.done(d, w)
		e.log = w.c.log
		w.close()
	}
}

func (s *exploration) done(d *onward, w *World) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ways = append(s.ways, d.others...)
	s.atWork--
	if w.bad != "" && w.badKind != pruned && s.found == nil && !s.all {
		s.found = &Result{Kind: w.badKind, Violation: w.bad, Choices: slices.Clone(w.c.log), Config: s.cfg, Tally: w.tally}
	}
	s.more.Broadcast()
}

// onward goes a way, and on from its end with the dull choice each time, and notes the other
// choices that there were.
type onward struct {
	*exploration
	path   []uint8
	at     int
	others [][]uint8
}

func (d *onward) choose(n int) int {
	if d.at == len(d.path) {
		for i := n - 1; i > 0; i-- {
			d.others = append(d.others, append(d.path[:d.at:d.at], uint8(i)))
		}
		d.path = append(d.path, 0)
	}
	v := int(d.path[d.at])
	d.at++
	switch {
	case v >= n:
		panic("sim: the same choices led to another question: something is not deterministic")
	case d.backwards:
		return n - 1 - v
	}
	return v
}

// known reports whether the world's state was seen on another way.
func (d *onward) known(w *World) bool {
	if d.step != nil {
		d.step(w)
	}
	if d.unpruned {
		return false
	}
	if d.at < len(d.path) {
		return false // still on the way that led here
	}
	h := w.state()
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.states[h]; ok {
		return true
	}
	d.states[h] = struct{}{}
	return false
}

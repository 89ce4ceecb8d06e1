package sim

import (
	"slices"
	"time"
)

// Shrink looks for a duller and shorter list of choices that ends in the same kind of
// violation. It plays at most some thousand worlds, and stops when the limit is over.
func (e *Engine) Shrink(cfg Config, found Result, limit time.Duration) Result {
	short, _ := e.shrink(cfg, found, time.Now().Add(limit), 3000)
	return short
}

// shrink also returns how many worlds it played, at most the given number.
func (e *Engine) shrink(cfg Config, found Result, until time.Time, worlds int) (Result, int) {
	s := shrinker{e: e, cfg: cfg, best: found, until: until, left: worlds}
	s.best.Choices = trimmed(found.Choices)
	for s.changed = true; s.changed && !s.over; {
		for s.changed && !s.over {
			s.changed = false
			s.tails()
			s.cuts()
			s.dulls()
			s.shifts()
			s.values()
		}
		s.settings()
	}
	s.best.Config.Steps = 0
	return s.best, min(worlds, worlds-s.left)
}

// Events counts the choices of a world that are not dull, beside those that say what it is
// made of: every fault, and every time that somebody was slow or that another one went first.
func (r *Result) Events() int { return loud(r.Choices[min(r.Setup, len(r.Choices)):]) }

type shrinker struct {
	e       *Engine
	cfg     Config
	best    Result
	until   time.Time
	left    int // worlds
	changed bool
	over    bool
}

// try plays a list of choices, and takes it up when it is simpler.
func (s *shrinker) try(list []int) bool {
	if s.left--; s.left < 0 || time.Now().After(s.until) {
		s.over = true
	}
	if s.over {
		return false
	}
	cfg := s.cfg
	if s.best.Kind != "runaway" && s.best.Events() <= dozen {
		cfg.Steps = s.best.weight() + 1 // a longer one cannot be simpler
	}
	r := s.e.Replay(cfg, list, false)
	if r.Kind != s.best.Kind {
		return false
	}
	r.Choices = trimmed(r.Choices)
	if !simpler(&r, &s.best) {
		return false
	}
	s.best, s.changed = r, true
	return true
}

// with returns the best choices with those from at on that are n replaced by others.
func (s *shrinker) with(at, n int, others ...int) []int {
	list := s.best.Choices
	return slices.Concat(list[:at], others, list[min(at+n, len(list)):])
}

// settings makes the world itself simpler: fewer messages, no skewed clocks, a plainer
// handler. What follows may then be asked otherwise, so some of it is left out, too.
func (s *shrinker) settings() {
	for at := 1; at < min(s.best.Setup, len(s.best.Choices)) && !s.over; at++ {
		for v := 0; at < len(s.best.Choices) && v < min(s.best.Choices[at], 4); v++ {
			if s.setting(at, v) {
				break
			}
		}
	}
}

// setting sets one choice of the world's making, and leaves out what then is not asked.
func (s *shrinker) setting(at, v int) bool {
	if s.try(s.with(at, 1, v)) {
		return true
	}
	plain := s.with(at, 1, v)
	for from := s.best.Setup; from < len(plain) && !s.over; from++ {
		for _, n := range [...]int{1, 3} {
			if s.try(slices.Concat(plain[:from], plain[min(from+n, len(plain)):])) {
				return true
			}
		}
	}
	return false
}

// tails makes everything dull from some point on.
func (s *shrinker) tails() {
	for size := len(s.best.Choices) / 2; size > 0 && !s.over; size /= 2 {
		for len(s.best.Choices) > size {
			if !s.try(s.best.Choices[:len(s.best.Choices)-size]) {
				break
			}
		}
	}
}

// cuts leaves blocks out, large ones first.
func (s *shrinker) cuts() {
	for size := len(s.best.Choices); size > 0 && !s.over; size /= 2 {
		for at := 0; at+size <= len(s.best.Choices) && !s.over; {
			if !s.try(s.with(at, size)) {
				at += size
			}
		}
	}
}

// dulls makes blocks dull.
func (s *shrinker) dulls() {
	for size := 16; size > 0 && !s.over; size /= 2 {
		for at := 0; at < len(s.best.Choices) && !s.over; at += size {
			n := min(size, len(s.best.Choices)-at)
			if loud(s.best.Choices[at:at+n]) > 0 {
				s.try(s.with(at, n, make([]int, n)...))
			}
		}
	}
}

// shifts makes single choices dull whose being so takes other questions away, or adds some.
func (s *shrinker) shifts() {
	for at := 0; at < len(s.best.Choices) && !s.over; at++ {
		if s.best.Choices[at] == 0 {
			continue
		}
		for _, n := range [...]int{2, 3, 4, 6, 8} {
			if at < len(s.best.Choices) && (s.try(s.with(at, n, 0)) || s.try(s.with(at, 1, make([]int, n)...))) {
				break
			}
		}
	}
	// A fault that strikes earlier, and two that change places with what is dull.
	for at := 1; at < len(s.best.Choices) && !s.over; at++ {
		if v := s.best.Choices[at]; v != 0 && s.best.Choices[at-1] == 0 {
			s.try(s.with(at-1, 2, v))
		}
	}
}

// values makes single choices smaller.
func (s *shrinker) values() {
	for at := 0; at < len(s.best.Choices) && !s.over; at++ {
		for v := 1; at < len(s.best.Choices) && v < min(s.best.Choices[at], 4); v++ {
			if s.try(s.with(at, 1, v)) {
				break
			}
		}
	}
}

const dozen = 12

// weight is how much there is to read.
func (r *Result) weight() int { return 6*r.Events() + r.Tally.Steps }

func trimmed(list []int) []int {
	for len(list) > 0 && list[len(list)-1] == 0 {
		list = list[:len(list)-1]
	}
	return list
}

// simpler: less to read; then a plainer world, a shorter list, smaller choices. Up to a dozen
// events, one more is worth some steps of routine less; above that, fewer events come first.
func simpler(a, b *Result) bool {
	x, y := a.Events(), b.Events()
	if x != y && max(x, y) > dozen {
		return x < y
	}
	if x, y = a.weight(), b.weight(); x != y {
		return x < y
	}
	if x, y := loud(a.Choices), loud(b.Choices); x != y {
		return x < y
	}
	if x, y := len(a.Choices), len(b.Choices); x != y {
		return x < y
	}
	return slices.Compare(a.Choices, b.Choices) < 0
}

func loud(list []int) int {
	n := 0
	for _, v := range list {
		if v != 0 {
			n++
		}
	}
	return n
}

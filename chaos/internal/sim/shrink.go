package sim

import "time"

// Shrink looks for a shorter and duller list of choices that ends in the same kind of
// violation, for at most the given time.
func (e *Engine) Shrink(cfg Config, found Result, limit time.Duration) Result {
	until := time.Now().Add(limit)
	best := found
	best.Choices = trimmed(found.Choices)
	try := func(list []int) bool {
		r := e.Replay(cfg, list, false)
		if r.Kind != found.Kind {
			return false
		}
		r.Choices = trimmed(r.Choices)
		if !simpler(r.Choices, best.Choices) {
			return false
		}
		best = r
		return true
	}
	for changed := true; changed; {
		changed = false
		// Cut blocks out, large ones first.
		for size := len(best.Choices); size > 0; size /= 2 {
			for at := 0; at+size <= len(best.Choices); {
				list := append(append([]int(nil), best.Choices[:at]...), best.Choices[at+size:]...)
				if try(list) {
					changed = true
				} else {
					at += size
				}
				if time.Now().After(until) {
					return best
				}
			}
		}
		// Make blocks dull, then single choices smaller.
		for size := 8; size > 0; size /= 2 {
			for at := 0; at < len(best.Choices); at += size {
				list := append([]int(nil), best.Choices...)
				dull := true
				for i := at; i < min(at+size, len(list)); i++ {
					dull = dull && list[i] == 0
					list[i] = 0
				}
				if !dull && try(list) {
					changed = true
				}
				if time.Now().After(until) {
					return best
				}
			}
		}
		for at := 0; at < len(best.Choices); at++ { //nolint:intrange // try shortens best.Choices
			for v := 1; at < len(best.Choices) && v < best.Choices[at] && v < 4; v++ {
				list := append([]int(nil), best.Choices...)
				list[at] = v
				if try(list) {
					changed = true
				}
			}
			if time.Now().After(until) {
				return best
			}
		}
	}
	return best
}

func trimmed(list []int) []int {
	for len(list) > 0 && list[len(list)-1] == 0 {
		list = list[:len(list)-1]
	}
	return list
}

// simpler: fewer choices that are not dull, then a shorter list, then smaller choices.
func simpler(a, b []int) bool {
	if x, y := loud(a), loud(b); x != y {
		return x < y
	}
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
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

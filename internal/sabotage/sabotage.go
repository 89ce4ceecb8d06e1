// Package sabotage names the rules of the library that its own tests can switch off, one by
// one, to show that something notices. A rule whose absence nothing can catch is not tested.
//
// A [Set] can only be built here, inside the module, and the zero Set switches nothing off.
package sabotage

import "fmt"

// Name is one rule that can be switched off.
type Name struct{ bit uint }

// Set is a set of switched-off rules. The zero Set is production.
type Set struct {
	bits  [2]uint64
	asked *Asked
}

// Asked notes which rules were asked about: a rule that was not made no difference, on or off.
type Asked struct{ bits [2]uint64 }

// Set returns a set that switches nothing off and notes in a what it is asked.
func (a *Asked) Set() Set { return Set{asked: a} }

// Has reports whether anybody asked for rule n.
func (a *Asked) Has(n Name) bool { return a.bits[n.bit/64]>>(n.bit%64)&1 == 1 }

// Of returns the set of the given names.
func Of(names ...Name) Set {
	var s Set
	for _, n := range names {
		s.bits[n.bit/64] |= 1 << (n.bit % 64)
	}
	return s
}

// Has reports whether rule n is switched off.
func (s Set) Has(n Name) bool {
	if s.asked != nil {
		s.asked.bits[n.bit/64] |= 1 << (n.bit % 64)
	}
	return s.bits[n.bit/64]>>(n.bit%64)&1 == 1
}

type entry struct {
	rule, word, does string
}

var entries []entry

func rule(rule, word, does string) Name {
	if len(entries) == 128 {
		panic("sabotage: a Set holds 128 names")
	}
	entries = append(entries, entry{rule, word, does})
	return Name{bit: uint(len(entries) - 1)}
}

// All returns every name in a fixed order.
func All() []Name {
	names := make([]Name, len(entries))
	for i := range entries {
		names[i] = Name{bit: uint(i)}
	}
	return names
}

// Parse returns the name written as word.
func Parse(word string) (Name, error) {
	for i, e := range entries {
		if e.word == word {
			return Name{bit: uint(i)}, nil
		}
	}
	return Name{}, fmt.Errorf("sabotage: no rule is called %q", word)
}

// String returns the word by which tests and scenarios name n.
func (n Name) String() string { return entries[n.bit].word }

// Rule returns the number of the rule in the semantics, such as "S5.3".
func (n Name) Rule() string { return entries[n.bit].rule }

// Does says what happens once the rule is off.
func (n Name) Does() string { return entries[n.bit].does }

package fence

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Rule S5.0: pending claims past their deadline become ambiguous, each with a new seq. Every
// transition starts with it.
var (
	expiredBecomesFailed = sabotage.ExpiredBecomesFailed
	neverLapses          = sabotage.NeverLapses
)

func (s *step) lapse() {
	past := func(u *Unresolved) bool { return u.State == Pending && s.now > u.Deadline }
	if !some(s.head.Unresolved, past) || s.isOff(neverLapses) {
		return
	}
	s.head.Unresolved = slices.Clone(s.head.Unresolved)
	var due []*Unresolved
	for i := range s.head.Unresolved {
		if u := &s.head.Unresolved[i]; past(u) {
			due = append(due, u)
		}
	}
	// Oldest deadline first, so that it does not matter when somebody notices.
	slices.SortStableFunc(due, func(a, b *Unresolved) int { return cmp.Compare(a.Deadline, b.Deadline) })
	for _, u := range due {
		u.State = Ambiguous
		u.Seq = s.seq()
		s.event(Event{
			Kind: EventLapsed, Run: u.Run, Delivery: u.Delivery.Number, Effect: u.Effect, Intent: u.Intent, Key: u.Key, Call: u.Call,
		})
	}
	if s.isOff(expiredBecomesFailed) {
		s.failLapsed()
	}
}

// lapsed returns e as the head knows it: its own row is written again only when something
// else happens to the effect.
func (s *step) lapsed(e *Effect) *Effect {
	i := s.unresolved(e.ID)
	for c := range e.Calls {
		call := &e.Calls[c]
		if call.State != Pending || s.now <= call.Deadline || s.isOff(neverLapses) {
			continue
		}
		copied := *e
		copied.Calls = slices.Clone(e.Calls)
		for d := range copied.Calls {
			if k := &copied.Calls[d]; k.State == Pending && s.now > k.Deadline {
				k.State = Ambiguous
				if s.isOff(expiredBecomesFailed) {
					k.State = Failed
				}
				if i >= 0 {
					k.Seq = s.head.Unresolved[i].Seq
				}
			}
		}
		return &copied
	}
	return e
}

func (s *step) failLapsed() {
	s.head.Unresolved = without(s.head.Unresolved, func(u *Unresolved) bool {
		return u.State == Ambiguous && s.now > u.Deadline
	})
}

// unresolved returns the index of effect id among the head's unresolved, or -1.
func (s *step) unresolved(id string) int {
	for i := range s.head.Unresolved {
		if s.head.Unresolved[i].Effect == id {
			return i
		}
	}
	return -1
}

// Lapsed returns the view with what is past its deadline shown as ambiguous, for readers that
// decide nothing. Its rows are the caller's own.
func (r Rules) Lapsed(v View) View {
	shown := v
	shown.Rows = maps.Clone(v.Rows)
	if v.Head == nil {
		return shown
	}
	s := r.start(new(step), v, Identity{})
	shown.Head = s.head
	for key, rec := range v.Rows {
		if e, ok := rec.(*Effect); ok && e != nil {
			shown.Rows[key] = s.lapsed(e)
		}
	}
	return shown
}

// LapsedEffect is Lapsed for one effect. The head may be missing from v.
func (r Rules) LapsedEffect(v View, e *Effect) *Effect {
	if v.Head == nil {
		v.Head = &Head{}
	}
	return r.start(new(step), v, Identity{}).lapsed(e)
}

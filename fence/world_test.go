package fence_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// world keeps conversations the way a ledger does: heads, rows, leases and the directory of
// runs, with a clock. It is the full state; every decision is made twice, on the full view and
// on the smallest one, and both must say the same.
type world struct {
	rules fence.Rules
	now   fence.Millis
	convs map[string]*conversation
	homes map[fence.RunKey]fence.Home
	drawn int // nonces and claim ids so far
	// careful finds a transition that changes the view it was given; quick decides on the
	// bounded view only.
	careful, quick bool
	// inPlace writes rows where they are, for histories of ten thousand.
	inPlace bool
	// loads counts the rows that the smallest view of the last decision held.
	loads int
	lost  map[string]bool // rows that were lost on purpose
}

type conversation struct {
	head   *fence.Head
	rows   map[string]fence.Record
	leases map[fence.LeaseID]fence.Millis
}

// start is the clock's first reading.
const start = 1000

func newWorld(rules fence.Rules) *world {
	return &world{
		rules: rules, now: start, convs: map[string]*conversation{}, homes: map[fence.RunKey]fence.Home{},
		lost: map[string]bool{},
	}
}

func (w *world) conv(name string) *conversation {
	c := w.convs[name]
	if c == nil {
		c = &conversation{rows: map[string]fence.Record{}, leases: map[fence.LeaseID]fence.Millis{}}
		w.convs[name] = c
	}
	return c
}

// draw returns what stands for a random string.
func (w *world) draw(kind string) string {
	w.drawn++
	return fmt.Sprintf("%s%d", kind, w.drawn)
}

func (w *world) identity(conv string) fence.Identity {
	return fence.Identity{Conversation: conv, Nonce: w.draw("epoch")}
}

// state is a conversation's full state, which later transitions leave alone: what they change,
// they replace.
func (w *world) state(conv string) fence.Conversation {
	c := w.conv(conv)
	return fence.Conversation{Head: c.head, Rows: c.rows, Leases: c.leases}
}

// decision is what came of one transition.
type decision struct {
	change fence.Change
	events []fence.Event
	broken error // an invariant, or a bounded view that decides otherwise
}

// decide runs one transition on both views, applies its change and checks what must hold.
func decide[V any](w *world, conv string, run fence.RunKey, transition func(fence.View) (V, fence.Change)) (V, decision) {
	c := w.conv(conv)
	var d decision
	before := w.state(conv)
	var kept []byte
	if w.careful {
		kept = dump(before)
	}
	v, change, err := w.bounded(c, run, func(view fence.View) (any, fence.Change) { return transition(view) })
	if err != nil {
		d.broken = err
		var none V
		return none, d
	}
	if !w.quick {
		full, fullChange, err := w.full(c, run, func(view fence.View) (any, fence.Change) { return transition(view) })
		d.broken = errors.Join(err, sameDecision(v, full, change, fullChange))
	}
	if w.careful && !bytes.Equal(dump(before), kept) {
		d.broken = errors.Join(d.broken, errors.New("a transition changed the view it was given"))
	}
	w.apply(conv, change)
	d.change, d.events = change, change.Events
	d.broken = errors.Join(d.broken, w.check(conv), fence.CheckStep(before, w.state(conv), w.now))
	return v.(V), d
}

// check holds the state against every invariant.
func (w *world) check(conv string) error {
	if len(w.lost) > 0 {
		return nil // until what was lost on purpose is there again
	}
	return fence.Check(w.conv(conv).head, w.conv(conv).rows, w.now)
}

// bounded decides on nothing but the head and what is asked for. A key that was not looked up
// is taken to be absent; when it is not, the change is refused and it is looked up.
func (w *world) bounded(c *conversation, run fence.RunKey, transition func(fence.View) (any, fence.Change)) (any, fence.Change, error) {
	view := w.view(c, run)
	for range 50 {
		w.loads = len(view.Rows) + len(view.Tail)
		v, change := transition(view)
		missing := change.Absent
		switch {
		case !change.Needs.Empty():
			w.fill(c, &view, change.Needs)
			continue
		case change.Writes():
			missing = slices.DeleteFunc(slices.Clone(missing), func(key string) bool { return c.rows[key] == nil })
		}
		if len(missing) == 0 {
			return v, change, nil
		}
		w.fill(c, &view, fence.Needs{Keys: missing})
	}
	return nil, fence.Change{}, errors.New("a transition never has enough to decide")
}

// full decides on everything there is.
func (w *world) full(c *conversation, run fence.RunKey, transition func(fence.View) (any, fence.Change)) (any, fence.Change, error) {
	view := w.view(c, run)
	maps.Copy(view.Rows, c.rows)
	w.fill(c, &view, fence.Needs{Tail: true, Open: true})
	for range 50 {
		v, change := transition(view)
		missing := slices.Concat(change.Needs.Keys, change.Absent)
		for _, key := range missing {
			if c.rows[key] != nil {
				return nil, change, fmt.Errorf("a transition asks for row %q, which its view has", key)
			}
		}
		if change.Needs.Tail || change.Needs.Open {
			return nil, change, errors.New("a transition asks for what its view has")
		}
		if len(missing) == 0 {
			return v, change, nil
		}
		w.fill(c, &view, fence.Needs{Keys: missing})
	}
	return nil, fence.Change{}, errors.New("a transition never has enough to decide")
}

func (w *world) view(c *conversation, run fence.RunKey) fence.View {
	view := fence.View{Now: w.now, Head: c.head, Rows: map[string]fence.Record{}, Leases: c.leases}
	if run != (fence.RunKey{}) {
		view.Home = w.homes[run]
		view.Home.Known = true
	}
	return view
}

func (w *world) fill(c *conversation, view *fence.View, n fence.Needs) {
	for _, key := range n.Keys {
		view.Rows[key] = c.rows[key]
	}
	if n.Tail {
		view.Tailed, view.Since, view.Tail = true, n.Since, nil
		for _, key := range sorted(c.rows) {
			if c.rows[key].Index().Landed > n.Since {
				view.Tail = append(view.Tail, c.rows[key])
			}
		}
	}
	if n.Open {
		view.Opened, view.Open, view.OpenCount = true, nil, 0
		for _, rec := range c.rows {
			if in, ok := rec.(*fence.Inbound); ok && in.Index().Open == fence.OpenInbound {
				view.Open = append(view.Open, in)
			}
		}
		slices.SortFunc(view.Open, func(a, b *fence.Inbound) int { return cmp.Compare(b.Seq, a.Seq) })
		view.OpenCount = len(view.Open)
		view.Open = view.Open[:min(len(view.Open), fence.MaxOpen)]
	}
}

// apply writes a change.
func (w *world) apply(conv string, change fence.Change) {
	if !change.Writes() {
		return
	}
	c := w.conv(conv)
	c.head = change.Head
	rows := c.rows
	if !w.inPlace {
		rows = maps.Clone(rows)
	}
	for _, rec := range change.Rows {
		rows[rec.RowKey()] = rec
		delete(w.lost, rec.RowKey())
	}
	for _, key := range change.Delete {
		delete(rows, key)
	}
	c.rows = rows
	leases := maps.Clone(c.leases)
	for _, lease := range change.Lease {
		if lease.For == 0 {
			delete(leases, lease.ID)
		} else {
			leases[lease.ID] = w.now + lease.For
		}
	}
	c.leases = leases
	if change.Home != nil {
		w.homes[change.Home.Run] = fence.Home{Found: true, Where: conv}
	}
	for _, run := range change.Forget {
		delete(w.homes, run)
	}
}

// sameDecision compares what the two views led to. What was looked up may differ, nothing else.
func sameDecision(v, full any, change, fullChange fence.Change) error {
	change.Absent, fullChange.Absent = nil, nil
	if !same(v, full) {
		return fmt.Errorf("the bounded view decides otherwise than the full one:\n%s\n%s", fence.Describe(v), fence.Describe(full))
	}
	if !same(change, fullChange) {
		return fmt.Errorf("the bounded view writes otherwise than the full one:\n%+v\n%+v", change, fullChange)
	}
	return nil
}

// same is DeepEqual, except that empty and nil are the same.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || bytes.Equal(dump(a), dump(b))
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

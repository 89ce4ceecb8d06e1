package sim

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// edge is an arrow of docs/states.md with one of its reasons.
type edge struct{ thing, from, to, why string }

func (e edge) String() string {
	return fmt.Sprintf("%s %s → %s (%s)", e.thing, e.from, e.to, e.why)
}

const born = "[*]"

// edges are those that a campaign must have seen.
var edges = []edge{
	{"effect", born, "pending", "claim"},
	{"effect", "pending", "committed", "settled"},
	{"effect", "pending", "committed", "echo"},
	{"effect", "pending", "failed", "settled"},
	{"effect", "pending", "ambiguous", "settled"},
	{"effect", "pending", "ambiguous", "deadline"},
	{"effect", "ambiguous", "committed", "echo"},
	{"effect", "ambiguous", "committed", "a person"},
	{"effect", "ambiguous", "committed", "late"},
	{"effect", "ambiguous", "failed", "a person"},
	{"effect", "ambiguous", "failed", "late"},
	{"effect", "failed", "pending", "claim"},
	{"effect", "failed", "committed", "late"},
	{"effect", "ambiguous", "pending", "claim"},
	{"effect", "committed", born, "retention"},
	{"effect", "failed", born, "retention"},
	{"run", born, "active", "first Begin"},
	{"run", born, "cancelled", "tombstone"},
	{"run", "active", "active", "next delivery"},
	{"run", "active", "active", "released"},
	{"run", "active", "active", "parked"},
	{"run", "active", "ended", "success"},
	{"run", "active", "ended", "discarded"},
	{"run", "active", "ended", "superseded"},
	{"run", "active", "cancelled", "cancel"},
	{"run", "ended", "active", "pressed again"},
	{"run", "ended", "active", "new generation"},
	{"run", "cancelled", "active", "new generation"},
	{"run", "ended", born, "retention"},
	{"run", "cancelled", born, "retention"},
}

// fates are what the conversations' effects and runs were when somebody last wrote.
type fates struct {
	effects map[string]fence.State
	runs    map[string]*fence.Run
}

// recordIn is where a row that a ledger has made holds its record: reading it there costs
// nothing, and asking the ledger costs a load for each write.
var recordIn = func() uintptr {
	f, ok := reflect.TypeFor[ledger.Row]().FieldByName("rec")
	if !ok || f.Type != reflect.TypeFor[fence.Record]() {
		panic("sim: ledger.Row no longer holds its record in a field called rec")
	}
	return f.Offset
}()

func recordOf(r *ledger.Row) fence.Record {
	return *(*fence.Record)(unsafe.Add(unsafe.Pointer(r), recordIn)) //nolint:gosec // recordIn has the field's type checked
}

// crossed notes the arrows that a write goes along.
func (w *World) crossed(store string, write *ledger.Write) {
	if w.cfg.Frozen || w.tally.Lost > 0 || w.cfg.User != nil {
		return
	}
	if w.fates.effects == nil {
		w.fates = fates{effects: map[string]fence.State{}, runs: map[string]*fence.Run{}}
	}
	head, _ := recordOf(&write.Head).(*fence.Head)
	if head == nil {
		return
	}
	now := fence.Millis(w.db.clock().UnixMilli())
	for i := range head.Unresolved {
		u := &head.Unresolved[i]
		if w.fates.effects[u.Effect] != u.State {
			w.effectCrossed(u.Effect, u.State, effectIn(write, u.Effect), now)
		}
	}
	for i := range write.Put {
		switch rec := recordOf(&write.Put[i]).(type) {
		case *fence.Effect:
			open := func(u fence.Unresolved) bool { return u.Effect == rec.ID }
			if !slices.ContainsFunc(head.Unresolved, open) {
				w.effectCrossed(rec.ID, rec.State(), rec, now)
			}
		case *fence.Run:
			w.runCrossed(store+rec.Key.ID, rec)
		}
	}
}

func effectIn(write *ledger.Write, id string) *fence.Effect {
	for i := range write.Put {
		if e, ok := recordOf(&write.Put[i]).(*fence.Effect); ok && e.ID == id {
			return e
		}
	}
	return nil
}

// effectCrossed: e is nil when only the head says what the effect is.
func (w *World) effectCrossed(id string, now fence.State, e *fence.Effect, at fence.Millis) {
	was := w.fates.effects[id]
	if was == now {
		return
	}
	w.fates.effects[id] = now
	from := string(was)
	if was == "" {
		from = born
	}
	var c *fence.Call
	if e != nil {
		c = e.Deciding()
	}
	late := c != nil && (c.ResolvedBy != "" && !c.Echo || c.Late)
	if was != fence.Pending && now == fence.Ambiguous {
		// It was decided on so long ago that its deadline had passed when it was written.
		w.cov.crossed(edge{"effect", from, string(fence.Pending), "claim"})
		from, was = string(fence.Pending), fence.Pending
	}
	if was == fence.Pending && now != fence.Ambiguous && late && at > c.Deadline {
		// Its deadline passed, and the same write says what became of it.
		w.cov.crossed(edge{"effect", from, string(fence.Ambiguous), "deadline"})
		from, was = string(fence.Ambiguous), fence.Ambiguous
	}
	why := "settled"
	switch {
	case now == fence.Pending:
		why = "claim"
	case now == fence.Ambiguous && (c == nil || c.Settled == 0):
		why = "deadline"
	case c != nil && c.Echo:
		why = "echo"
	case c != nil && c.ResolvedBy != "":
		why = "a person"
	case was != fence.Pending:
		why = "late"
	}
	w.cov.crossed(edge{"effect", from, string(now), why})
}

func (w *World) runCrossed(row string, r *fence.Run) {
	was := w.fates.runs[row]
	w.fates.runs[row] = r
	e := edge{thing: "run", from: born, to: string(r.State)}
	switch {
	case was != nil:
		e.from = string(was.State)
	case r.Generation > 1: // it was another's before, on another conversation
		e.from = string(fence.RunEnded)
	}
	switch {
	case e.from == born && r.State == fence.RunActive:
		e.why = "first Begin"
	case e.from == born:
		e.why = "tombstone"
	case r.State == fence.RunEnded:
		e.why = string(r.End)
	case r.State == fence.RunCancelled:
		e.why = "cancel"
	case was == nil || was.Generation != r.Generation:
		e.why = "new generation"
	case was.State != fence.RunActive:
		e.why = "pressed again"
	case was.Delivery != r.Delivery:
		e.why = "next delivery"
	case r.Parked != "" && was.Parked == "":
		e.why = "parked"
	case r.TouchedAt != was.TouchedAt:
		e.why = "released"
	}
	if e.why != "" && (e.from != e.to || r.State == fence.RunActive) {
		w.cov.crossed(e)
	}
}

func (c *Coverage) crossed(e edge) {
	if c.Edges == nil {
		c.Edges = map[edge]int{}
	}
	c.Edges[e]++
}

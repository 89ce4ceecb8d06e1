package fence

import (
	"slices"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Rules decides. Its fields are the settings that are the same for every decision of a
// process; the zero value of a field is not a default: see runs.Config for those.
type Rules struct {
	Lease     Millis // how long a delivery's lease runs (rule S9)
	Quiet     Millis // the quiet period after a claim's deadline (rule S8)
	Retention Millis // how long finished records are kept (rule S10.4)
	MaxCalls  int    // calls known not to have applied before exhausted (rule S5.6)

	off sabotage.Set
}

// Without returns the rules with some of them switched off. Outside this module nobody can
// make a sabotage.Set that is not empty.
func (r Rules) Without(off sabotage.Set) Rules {
	r.off = off
	return r
}

func (r Rules) isOff(n sabotage.Name) bool { return r.off.Has(n) }

// step is one decision in the making: it reads through the view, works on copies, and
// remembers what it assumed and what it lacks.
type step struct {
	Rules
	view View
	now  Millis
	head *Head
	rows []edit // in the order of their first change
	// The row key of the effect that was last looked for.
	effectID, effectRow string

	needs  Needs
	absent []string
	change Change
}

// edit is a row that the change writes, or deletes when rec is nil.
type edit struct {
	key string
	rec Record
}

// start copies the head, creates it when the conversation is unknown, and lets what is past
// its deadline lapse (rule S5.0). The step is the caller's, so that it can live on the stack.
func (r Rules) start(s *step, v View, id Identity) *step {
	s.Rules, s.view, s.now = r, v, v.Now
	if v.Head == nil {
		first := int64(v.Now)
		if s.isOff(sabotage.NumbersRestart) {
			first = 1
		}
		s.head = &Head{
			Namespace: id.Namespace, Conversation: id.Conversation, Epoch: id.Nonce, Seq: first, Fence: first,
		}
	} else {
		h := *v.Head // its lists are the view's: a step replaces them and never changes them
		s.head = &h
	}
	s.lapse()
	return s
}

// Identity is the conversation a request speaks of, and a fresh random nonce for its epoch
// in case the record must be created.
type Identity struct {
	Namespace    string
	Conversation string
	Nonce        string
}

// seq draws the next number of the conversation's logical counter (rule S3.1).
func (s *step) seq() int64 {
	s.head.Seq++
	return s.head.Seq
}

// look returns the record under key as this step sees it. An unknown key is taken to be
// absent; the change will insist on it.
func (s *step) look(key string) Record {
	if e := s.edited(key); e != nil {
		return e.rec
	}
	rec, known := s.view.Rows[key]
	if !known && s.view.Head != nil && !slices.Contains(s.absent, key) {
		s.absent = append(s.absent, key)
	}
	return rec
}

// must is look for a record that a decision cannot go without: an unknown key is asked for.
func (s *step) must(key string) (Record, bool) {
	if e := s.edited(key); e != nil {
		return e.rec, true
	}
	rec, known := s.view.Rows[key]
	if known || s.view.Head == nil {
		return rec, true
	}
	if !slices.Contains(s.needs.Keys, key) {
		s.needs.Keys = append(s.needs.Keys, key)
	}
	return nil, false
}

// edited returns what the change does to the row under key, nil if nothing.
func (s *step) edited(key string) *edit {
	for i := range s.rows {
		if e := &s.rows[i]; e.key == key {
			return e
		}
	}
	return nil
}

func (s *step) put(rec Record) { s.set(rec.RowKey(), rec) }

func (s *step) remove(rec Record) { s.set(rec.RowKey(), nil) }

func (s *step) set(key string, rec Record) {
	if e := s.edited(key); e != nil {
		e.rec = rec
		return
	}
	if s.rows == nil {
		s.rows = make([]edit, 0, 4)
	}
	s.rows = append(s.rows, edit{key, rec})
}

func (s *step) lookRun(k RunKey) *Run {
	run, _ := s.look(RunRow(k)).(*Run)
	return run
}

func (s *step) mustRun(k RunKey) (*Run, bool) {
	rec, ok := s.must(RunRow(k))
	run, _ := rec.(*Run)
	return run, ok
}

// rowOf is EffectRow, which a decision needs several times for the same effect.
func (s *step) rowOf(effect string) string {
	if s.effectID != effect || s.effectRow == "" {
		s.effectID, s.effectRow = effect, EffectRow(effect)
	}
	return s.effectRow
}

// lookEffect is look, except for an effect that the head lists as unresolved: that one has a row.
func (s *step) lookEffect(id string) (*Effect, bool) {
	if s.unresolved(id) >= 0 {
		return s.mustEffect(id)
	}
	e, _ := s.look(s.rowOf(id)).(*Effect)
	if e == nil {
		return nil, true
	}
	return s.lapsed(e), true
}

func (s *step) mustEffect(id string) (*Effect, bool) {
	rec, ok := s.must(s.rowOf(id))
	if !ok {
		return nil, false
	}
	e, _ := rec.(*Effect)
	if e == nil {
		return s.remembered(id), true
	}
	return s.lapsed(e), true
}

// remembered makes an effect from what the head keeps of it, for a row that was lost while its
// call was unresolved: a lost row is no right to call again. It returns nil for any other.
func (s *step) remembered(id string) *Effect {
	i := s.unresolved(id)
	if i < 0 {
		return nil
	}
	u := &s.head.Unresolved[i]
	return &Effect{
		ID: id, Intent: u.Intent, Key: u.Key, Distinct: u.Distinct, Retention: s.Retention,
		Calls: []Call{{
			Number: u.Call, Claim: u.Claim, Run: u.Run, Delivery: u.Delivery, State: u.State, Seq: u.Seq, At: u.Since,
			Deadline: u.Deadline, Summary: u.Summary, Named: u.Named, Answers: u.Answers, Again: u.Again,
		}},
	}
}

func (s *step) lookInbound(id string) *Inbound {
	in, _ := s.look(InboundRow(id)).(*Inbound)
	return in
}

func (s *step) mustInbound(id string) (*Inbound, bool) {
	rec, ok := s.must(InboundRow(id))
	in, _ := rec.(*Inbound)
	return in, ok
}

// mustAll reports whether one of the inbound rows still has to be looked up.
func (s *step) mustAll(ids []string) (missing bool) {
	for _, id := range ids {
		if _, ok := s.mustInbound(id); !ok {
			missing = true
		}
	}
	return missing
}

// editRun, editEffect and editInbound give a copy that the change will write.
func (s *step) editRun(r *Run) *Run {
	c := *r
	s.put(&c)
	return &c
}

func (s *step) editEffect(e *Effect) *Effect {
	c := *e
	c.row = s.rowOf(e.ID)
	c.Calls = slices.Clone(e.Calls)
	s.put(&c)
	return &c
}

func (s *step) editInbound(in *Inbound) *Inbound {
	c := *in
	c.Answered = slices.Clone(in.Answered)
	s.put(&c)
	return &c
}

// undo takes a row out of what the change writes.
func (s *step) undo(key string) {
	s.rows = slices.DeleteFunc(s.rows, func(e edit) bool { return e.key == key })
}

func (s *step) event(e Event) { s.change.Events = append(s.change.Events, e) }

// done returns the change that writes what was edited; none of it when something is lacking.
func (s *step) done() Change {
	if !s.needs.Empty() {
		return Change{Needs: s.needs}
	}
	c := s.change
	c.Absent = s.absent
	c.Head = s.head
	c.Rows = make([]Record, 0, len(s.rows))
	for _, e := range s.rows {
		if e.rec != nil {
			c.Rows = append(c.Rows, e.rec)
		} else {
			c.Delete = append(c.Delete, e.key)
		}
	}
	return c
}

// idle returns a change that writes nothing unless claims lapsed on the way: those are kept
// so that nobody has to find them again.
func (s *step) idle() Change {
	if s.changed() {
		return s.done()
	}
	if !s.needs.Empty() {
		return Change{Needs: s.needs}
	}
	return Change{Absent: s.absent, Events: s.change.Events}
}

func (s *step) changed() bool {
	if len(s.rows) > 0 || len(s.change.Lease) > 0 || s.change.Home != nil {
		return true
	}
	return s.view.Head != nil && s.head.Seq != s.view.Head.Seq
}

// decides returns the call that decides an effect's state (rule S2.3).
func (s *step) decides(e *Effect) *Call {
	if len(e.Calls) > 1 && s.isOff(sabotage.LastCallDecides) {
		return &e.Calls[len(e.Calls)-1]
	}
	return e.Deciding()
}

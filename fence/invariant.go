package fence

import (
	"errors"
	"fmt"
	"slices"
)

// Check returns what is wrong with the full state of a conversation at a time, nil if nothing
// is: everything that must be true after every transition, as the comments on the fields of
// the records say it. rows holds every row of the conversation by its key. It reads all of it
// and is for tests and audits, not for production's path.
func Check(head *Head, rows map[string]Record, now Millis) error {
	c := &checker{head: head, rows: rows, now: now}
	c.all()
	return errors.Join(c.wrong...)
}

// checker collects what is wrong.
type checker struct {
	head  *Head
	rows  map[string]Record
	keys  []string // of rows, sorted
	now   Millis
	wrong []error
}

func (c *checker) fail(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf("fence: "+format, args...))
}

func (c *checker) all() {
	if c.head == nil {
		if len(c.rows) > 0 {
			c.fail("a conversation without a head has %d rows", len(c.rows))
		}
		return
	}
	if c.head.Epoch == "" || c.head.Seq <= 0 || c.head.Fence <= 0 {
		c.fail("the head lacks its epoch or numbers")
	}
	calls := map[string]string{} // claim → effect
	fences := map[int64]string{}
	unresolved := 0
	c.rows = c.sound()
	for _, key := range c.keys {
		switch rec := c.rows[key].(type) {
		case *Run:
			c.run(rec)
		case *Effect:
			c.effect(rec, calls, fences)
			if rec.State() == Pending || rec.State() == Ambiguous {
				unresolved++
			}
		case *Inbound:
			c.inbound(rec)
		case *Report:
			if rec.Seq > c.head.Seq {
				c.fail("report %q has seq %d above the head's %d", rec.ID, rec.Seq, c.head.Seq)
			}
			c.closes(rec.Answers, Answer{ID: rec.ID, Report: true})
		case *Reference:
			if (rec.Effect == "") == (rec.Report == "") {
				c.fail("reference %q is not of one effect or one report", rec.Ref)
			}
		default:
			c.fail("row %q is a %T", key, rec)
		}
	}
	c.seats()
	c.listed(unresolved)
	c.landed()
	c.wrote()
}

// sound returns the rows that can be looked at any further.
func (c *checker) sound() map[string]Record {
	rows := make(map[string]Record, len(c.rows))
	for _, key := range sortedKeys(c.rows) {
		rec := c.rows[key]
		e, isEffect := rec.(*Effect)
		switch {
		case rec == nil || rec.RowKey() != key:
			c.fail("row %q holds another record", key)
		case isEffect && len(e.Calls) == 0:
			c.fail("effect %s has no call", effectName(e.Intent, e.Key))
		default:
			rows[key] = rec
			c.keys = append(c.keys, key)
		}
	}
	return rows
}

func (c *checker) run(r *Run) {
	name := r.Key.String()
	switch {
	case r.State != RunActive && r.State != RunEnded && r.State != RunCancelled:
		c.fail("run %s is in no state: %q", name, r.State)
	case (r.End != "") != (r.State == RunEnded):
		c.fail("run %s is %s with end %q", name, r.State, r.End)
	case r.State == RunActive && (r.Delivery.Number == 0 || r.Delivery.Nonce == "" || r.FirstSeq == 0):
		c.fail("run %s is active and was never begun", name)
	case r.State != RunActive && (r.Parked != "" || len(r.Waits) > 0):
		c.fail("run %s is %s and parked or waiting", name, r.State)
	}
	if r.Generation < 1 || r.Delivery.Number < 0 {
		c.fail("run %s has generation %d and delivery %d", name, r.Generation, r.Delivery.Number)
	}
	if r.FirstSeq > c.head.Seq {
		c.fail("run %s began at seq %d above the head's %d", name, r.FirstSeq, c.head.Seq)
	}
}

func (c *checker) effect(e *Effect, calls map[string]string, fences map[int64]string) {
	name := effectName(e.Intent, e.Key)
	pending, number := 0, 0
	for i := range e.Calls {
		call := &e.Calls[i]
		if call.Number <= number {
			c.fail("effect %s: call %d follows call %d", name, call.Number, number)
		}
		number = call.Number
		if other, ok := calls[call.Claim]; ok {
			c.fail("effects %s and %s share a claim", other, name)
		}
		calls[call.Claim] = name
		if !call.Vanished && call.Fence != 0 {
			if other, ok := fences[call.Fence]; ok {
				c.fail("effects %s and %s share fence number %d", other, name, call.Fence)
			}
			fences[call.Fence] = name
		}
		if call.Fence > c.head.Fence || call.Seq > c.head.Seq {
			c.fail("effect %s: call %d has fence %d, seq %d above the head's %d, %d", name, call.Number, call.Fence, call.Seq, c.head.Fence, c.head.Seq)
		}
		if call.State == Pending {
			pending++
		}
		c.call(name, call)
		if call.State == Committed {
			c.closes(call.Answers, Answer{ID: e.ID})
		}
		if run, _ := c.rows[RunRow(call.Run)].(*Run); call.State == Committed && run != nil && call.of(run) && !run.Wrote {
			c.fail("run %s has committed %s and is not said to have written", run.Key, name)
		}
	}
	if pending > 1 {
		c.fail("effect %s has %d pending calls", name, pending)
	}
	if e.Probing != (Probing{}) && e.State() != Ambiguous {
		c.fail("effect %s is %s and is being probed", name, e.State())
	}
	if want := stateOf(e); e.State() != want {
		c.fail("effect %s is %s, by rule S2.3 it is %s", name, e.State(), want)
	}
}

func (c *checker) call(name string, call *Call) {
	switch {
	case call.State != Pending && call.State != Committed && call.State != Failed && call.State != Ambiguous:
		c.fail("effect %s: call %d is in no state: %q", name, call.Number, call.State)
	case call.NotStarted && call.State != Failed, call.NoValue && call.State != Committed:
		c.fail("effect %s: call %d is %s with what belongs to another state", name, call.Number, call.State)
	case call.Settled == 0 && (call.State == Committed || call.State == Failed):
		c.fail("effect %s: call %d is %s and was never settled", name, call.Number, call.State)
	}
}

// stateOf is rule S2.3, said once more in other words.
func stateOf(e *Effect) State {
	seen := map[State]bool{}
	for i := range e.Calls {
		seen[e.Calls[i].State] = true
	}
	for _, s := range [...]State{Committed, Pending, Ambiguous} {
		if seen[s] {
			return s
		}
	}
	return Failed
}

// closes checks that what answers messages is named in their rows.
func (c *checker) closes(ids []string, by Answer) {
	for _, id := range ids {
		in, _ := c.rows[InboundRow(id)].(*Inbound)
		if in == nil || !in.answered(by) {
			c.fail("message %q does not know that %q answers it", id, by.ID)
		}
	}
}

func (c *checker) inbound(in *Inbound) {
	if in.Closed() != (in.ClosedAt > 0) {
		c.fail("message %q: closed %v, since %d", in.ID, in.Closed(), in.ClosedAt)
	}
	if !in.Registered && !in.Closed() {
		c.fail("message %q was named by nobody", in.ID)
	}
	// A row that is gone was purged; one that is younger than the closing, or was re-created, may
	// have been made anew since.
	for _, a := range in.Answered {
		if a.Report {
			rep, _ := c.rows[ReportRow(a.ID)].(*Report)
			if rep != nil && rep.At <= in.ClosedAt && !slices.Contains(rep.Answers, in.ID) {
				c.fail("message %q is answered by report %q, which does not say so", in.ID, a.ID)
			}
			continue
		}
		e, _ := c.rows[EffectRow(a.ID)].(*Effect)
		says := func(call Call) bool {
			return call.State == Committed && slices.Contains(call.Answers, in.ID) || call.Vanished
		}
		if e != nil && e.Calls[0].At <= in.ClosedAt && !slices.ContainsFunc(e.Calls, says) {
			c.fail("message %q is answered by %s, which has committed no such answer", in.ID, effectName(a.Intent, a.Key))
		}
	}
}

func (c *checker) seats() {
	seated := map[RunKey]bool{}
	for i := range c.head.Seats {
		seat := &c.head.Seats[i]
		run, _ := c.rows[RunRow(seat.Run)].(*Run)
		switch {
		case seated[seat.Run]:
			c.fail("run %s has two seats", seat.Run)
		case run == nil || run.State != RunActive:
			c.fail("run %s has a seat and is not active", seat.Run)
		case run.Delivery != seat.Delivery:
			c.fail("run %s: delivery %d has the seat of delivery %d", seat.Run, seat.Delivery.Number, run.Delivery.Number)
		case run.Order != seat.Order || run.Mode != seat.Mode:
			c.fail("run %s has a seat of another order or mode", seat.Run)
		}
		seated[seat.Run] = true
	}
}

// listed compares the head's unresolved effects with the rows; a lapse may be in the head only.
func (c *checker) listed(rows int) {
	found := map[string]bool{}
	for i := range c.head.Unresolved {
		u := &c.head.Unresolved[i]
		name := effectName(u.Intent, u.Key)
		if found[u.Effect] {
			c.fail("the head lists %s twice", name)
		}
		found[u.Effect] = true
		e, _ := c.rows[EffectRow(u.Effect)].(*Effect)
		if e == nil {
			c.fail("the head lists %s, which has no row", name)
			continue
		}
		call := e.Deciding()
		lapsed := call.State == Pending && u.State == Ambiguous && c.now > u.Deadline && u.Seq > call.Seq
		same := call.State == u.State && call.Seq == u.Seq
		switch {
		case !lapsed && !same, u.State != Pending && u.State != Ambiguous:
			c.fail("the head has %s as %s at seq %d, its row as %s at seq %d", name, u.State, u.Seq, call.State, call.Seq)
		case u.Claim != call.Claim || u.Call != call.Number || u.Run != call.Run || u.Delivery != call.Delivery ||
			u.Deadline != call.Deadline || u.Since != call.At || u.Named != call.Named || u.Again != call.Again ||
			!slices.Equal(u.Answers, call.Answers) || u.Distinct != e.Distinct:
			c.fail("the head lists %s by another call than its row", name)
		}
		if latest := e.openUntil(); max(u.Deadline, u.Latest) != latest || u.Latest == u.Deadline {
			c.fail("the head lists %s with the latest deadline %d, its row has %d", name, u.Latest, latest)
		}
		if u.Seq > c.head.Seq {
			c.fail("the head lists %s at seq %d above its own %d", name, u.Seq, c.head.Seq)
		}
		for k := range e.Calls {
			other := &e.Calls[k]
			owns := other.State == Ambiguous && other.Run != (RunKey{}) && other.Run != u.Run
			if owns && !slices.Contains(u.Owners, other.Run) {
				c.fail("the head does not list %s among the owners of %s", other.Run, name)
			}
		}
	}
	if rows != len(c.head.Unresolved) {
		c.fail("%d effects are unresolved, the head lists %d", rows, len(c.head.Unresolved))
	}
}

func (c *checker) landed() {
	h := c.head
	if len(h.Landed) > MaxLanded {
		c.fail("the head remembers %d landings", len(h.Landed))
	}
	last := h.Floor
	for _, l := range h.Landed {
		if l.Seq <= last || l.Seq > h.Seq {
			c.fail("the head's landing at seq %d follows seq %d", l.Seq, last)
		}
		last = l.Seq
		key := EffectRow(l.ID)
		if l.Report {
			key = ReportRow(l.ID)
		}
		rec, ok := c.rows[key]
		if !ok {
			c.fail("the head remembers the landing of %q, which has no row", l.ID)
		} else if got := landing(rec); got == nil || *got != *l {
			c.fail("the head remembers another landing of %q than its row says", l.ID)
		}
	}
	for _, key := range c.keys {
		rec := c.rows[key]
		l := landing(rec)
		if l != nil && rec.Index().Landed != l.Seq || l == nil && rec.Index().Landed != 0 {
			c.fail("row %q is indexed as landed at seq %d", key, rec.Index().Landed)
		}
		if l != nil && l.Seq > h.Floor && !slices.ContainsFunc(h.Landed, func(o *Landed) bool { return o.Seq == l.Seq }) {
			c.fail("the head does not remember the landing of %q at seq %d", key, l.Seq)
		}
	}
}

func (c *checker) wrote() {
	newest := map[string]int64{}
	for _, w := range c.head.Wrote {
		if _, ok := newest[w.Source]; ok || w.Source == "" {
			c.fail("the head names source %q of those that wrote twice, or no source", w.Source)
		}
		newest[w.Source] = w.Number
	}
	for _, key := range c.keys {
		run, ok := c.rows[key].(*Run)
		if !ok || !run.Finished() || !run.Wrote || run.Order.Source == "" || run.Index().Due <= c.now {
			continue
		}
		if number, ok := newest[run.Order.Source]; !ok || number < run.Order.Number {
			c.fail("run %s ended and wrote, and the head knows no such order", run.Key)
		}
	}
}

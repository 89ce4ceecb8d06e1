package fence_test

import (
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// oracle knows what the provider did and judges what was granted by the text of the rules,
// without the head, the seqs and the deliveries' memory that the fence decides by.
type oracle struct {
	s       *story
	tick    int // counts operations
	calls   []*made
	lied    map[string]bool // effects about which a person was mistaken
	landed  map[string]landing
	began   map[fence.RunKey]int      // when the generation of a run did
	gone    map[fence.DeliveryID]bool // leases of mode exclusive that were lost
	old     map[string]bool           // effects that were forgotten after their retention
	first   map[string]int            // when a call was first known to be what it is
	views   map[fence.DeliveryID]*view
	foreign map[string]fence.ReportRequest
	stampAt int
	replays map[string][]byte
}

// made is a call that was granted and started.
type made struct {
	q         fence.ClaimRequest
	effect    *fence.Effect
	at        fence.Millis
	applied   bool // what it did, whoever knows
	failed    bool // its claimer or a person said that it did not
	denied    bool // a person said so
	retired   bool // its record is gone with the retention
	reference string
}

type landing struct {
	at     int
	report bool
	intent string
	run    fence.RunKey
	by     fence.DeliveryID
	named  bool
}

// view is what a delivery has seen, by the text.
type view struct {
	seen, caught int
	replayed     map[string]int
}

func newOracle(s *story) *oracle {
	return &oracle{
		s: s, lied: map[string]bool{}, landed: map[string]landing{}, began: map[fence.RunKey]int{}, gone: map[fence.DeliveryID]bool{}, old: map[string]bool{}, first: map[string]int{},
		views: map[fence.DeliveryID]*view{}, foreign: map[string]fence.ReportRequest{}, replays: map[string][]byte{},
	}
}

func (o *oracle) call(c *choices) *made {
	if len(o.calls) == 0 {
		return nil
	}
	if c.chance(40) {
		return o.calls[c.next(len(o.calls))]
	}
	return o.calls[len(o.calls)-1]
}

// applied reports whether the provider did it.
func (o *oracle) applied(effect string) bool {
	return slices.ContainsFunc(o.calls, func(m *made) bool { return m.q.Effect == effect && m.applied && !m.retired })
}

func (o *oracle) effect(id string) *fence.Effect {
	e, _ := o.s.w.conv("c").rows[fence.EffectRow(id)].(*fence.Effect)
	return e
}

// known is an effect's state, a lapse included.
func (o *oracle) known(e *fence.Effect) (fence.State, *fence.Call) {
	call := e.Deciding()
	if call.State == fence.Pending && o.s.w.now > call.Deadline {
		return fence.Ambiguous, call
	}
	return call.State, call
}

func (o *oracle) effects(each func(*fence.Effect)) {
	rows := o.s.w.conv("c").rows
	for _, key := range sorted(rows) {
		if e, ok := rows[key].(*fence.Effect); ok {
			each(e)
		}
	}
}

// landings takes note of what became known in an operation.
func (o *oracle) landings(fenceDecision decision) error {
	o.tick++
	rows := o.s.w.conv("c").rows
	since := func(c *fence.Call, state fence.State) int {
		known := c.Claim + " " + string(state)
		if o.first[known] == 0 {
			o.first[known] = o.tick
		}
		return o.first[known]
	}
	o.effects(func(e *fence.Effect) {
		state, call := o.known(e)
		at := since(call, state)
		for i := range e.Calls {
			c := &e.Calls[i]
			if when := since(c, c.State); state == fence.Committed && c.State == fence.Committed && when > at {
				at, call = when, c // the last success counts
			}
		}
		if state != fence.Committed && state != fence.Ambiguous {
			delete(o.landed, e.ID)
			return
		}
		// An effect that is unknown again because a later call failed is no news: its earlier
		// call was unknown all along.
		o.landed[e.ID] = landing{at: at, intent: e.Intent, run: call.Run, by: call.Delivery, named: call.Named}
	})
	for _, key := range sorted(rows) {
		if rep, ok := rows[key].(*fence.Report); ok {
			id := "report " + rep.ID
			if _, known := o.landed[id]; !known && rep.Echo == "" {
				o.landed[id] = landing{at: o.tick, report: true, intent: rep.Intent, named: len(rep.Answers) > 0}
			} else if rep.Echo != "" {
				delete(o.landed, id)
			}
		}
	}
	for _, e := range fenceDecision.events {
		if e.Kind == fence.EventDuplicate && !o.mayHappenTwice(e.Effect) {
			return fmt.Errorf("%s happened twice", e.Effect)
		}
	}
	return nil
}

// mayHappenTwice: the provider honours the key, repeating does no harm, a person was mistaken,
// or the first time is longer ago than the retention.
func (o *oracle) mayHappenTwice(effect string) bool {
	return o.lied[effect] || o.old[effect] || slices.ContainsFunc(o.calls, func(m *made) bool {
		return m.q.Effect == effect && (m.q.KeyWindow > 0 || m.q.Repeatable)
	})
}

func (o *oracle) stamped() { o.stampAt = o.tick }

func (o *oracle) entered(q fence.BeginRequest, d *fence.Delivery) error {
	v := &view{seen: o.tick, replayed: map[string]int{}}
	if q.Reads == fence.FromPayload {
		v.seen = 0
		if q.AsOf > 0 {
			v.seen = o.stampAt
		}
	}
	o.views[d.ID] = v
	if run, _ := o.s.w.conv("c").rows[fence.RunRow(d.Run)].(*fence.Run); run != nil && run.FirstDelivery == d.ID.Number {
		o.began[d.Run] = o.tick
	}
	delete(o.gone, d.ID) // a Begin that is repeated is judged on the present state
	o.used(d)
	return o.mayHold(d, "")
}

// used notes which leases of mode exclusive had lapsed when another delivery took one: those
// are lost for good (rule S9.4).
func (o *oracle) used(by *fence.Delivery) {
	for _, all := range o.s.deliveries {
		for _, d := range all {
			id := fence.LeaseID{Run: fence.RunRow(d.Run), Nonce: d.ID.Nonce}
			if d.ID != by.ID && d.Mode == fence.Exclusive && o.s.w.conv("c").leases[id] <= o.s.w.now {
				o.gone[d.ID] = true
			}
		}
	}
}

// turnedAway is rule S4.6 the other way round: a job that is turned away for good has no
// message that is open and free.
func (o *oracle) turnedAway(q fence.BeginRequest, ref *fence.Refusal) error {
	if ref != nil && ref.Reason == fence.ReasonSuperseded && !ref.ComeBack && o.anyFree(q.Inbound, "") {
		return fmt.Errorf("%s is superseded for good, and a message of its job is open and free", q.Run)
	}
	return nil
}

// mayHold is rules S4.6 and S4.7 over all that is on record.
func (o *oracle) mayHold(d *fence.Delivery, except string) error {
	c := o.s.w.conv("c")
	if o.gone[d.ID] {
		return fmt.Errorf("%s goes on though its lease lapsed and was used", who(d))
	}
	alive := func(r *fence.Run) bool {
		return r.State == fence.RunActive && c.leases[fence.LeaseID{Run: r.RowKey(), Nonce: r.Delivery.Nonce}] > o.s.w.now
	}
	mine, _ := c.rows[fence.RunRow(d.Run)].(*fence.Run)
	if mine == nil || mine.State != fence.RunActive || mine.Delivery != d.ID {
		return fmt.Errorf("%s is not the current delivery of an active run", who(d))
	}
	for _, key := range sorted(c.rows) {
		other, ok := c.rows[key].(*fence.Run)
		if !ok || other.Key == d.Run {
			continue
		}
		if d.Mode == fence.Exclusive {
			if alive(other) && !alive(mine) {
				return fmt.Errorf("%s goes on beside %s, which holds the conversation", who(d), other.Key)
			}
			if alive(other) && except == "" && other.Mode == fence.Exclusive {
				return fmt.Errorf("%s was entered beside %s", who(d), other.Key)
			}
			continue
		}
		if !other.Order.Newer(mine.Order) {
			continue
		}
		if alive(other) {
			return fmt.Errorf("%s goes on though %s is newer and at work", who(d), other.Key)
		}
		if other.Finished() && o.owns(other) && !o.anyFree(d.Inbound, except) && !o.answersItself(d) {
			return fmt.Errorf("%s goes on though %s is newer, ended and wrote, and no message is open and free", who(d), other.Key)
		}
	}
	return nil
}

// owns: a pending, ambiguous or committed effect.
func (o *oracle) owns(r *fence.Run) (owns bool) {
	o.effects(func(e *fence.Effect) {
		for i := range e.Calls {
			call := &e.Calls[i]
			if call.Run == r.Key && call.Delivery.Number >= r.FirstDelivery && call.At >= r.BegunAt && call.State != fence.Failed && e.State() != fence.Failed {
				owns = true
			}
		}
	})
	return owns
}

// answersItself: a message of d's job is answered, or held, by an effect of d's own run.
func (o *oracle) answersItself(d *fence.Delivery) (own bool) {
	o.effects(func(e *fence.Effect) {
		for i := range e.Calls {
			call := &e.Calls[i]
			if call.Run == d.Run && call.State != fence.Failed && e.State() != fence.Failed {
				own = own || slices.ContainsFunc(d.Inbound, func(id string) bool { return slices.Contains(call.Answers, id) })
			}
		}
	})
	return own
}

func (o *oracle) anyFree(ids []string, except string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		in, _ := o.s.w.conv("c").rows[fence.InboundRow(id)].(*fence.Inbound)
		return in != nil && in.Registered && !in.Closed() && !o.taken(id, except)
	})
}

func (o *oracle) taken(id, except string) (taken bool) {
	o.effects(func(e *fence.Effect) {
		state, call := o.known(e)
		if e.ID != except && (state == fence.Pending || state == fence.Ambiguous) && slices.Contains(call.Answers, id) {
			taken = true
		}
	})
	return taken
}

func (o *oracle) settled(m *made, q fence.SettleRequest, v fence.SettleVerdict) error {
	m.denied = m.denied && !m.retired
	m.retired = m.retired && !v.Vanished
	if q.State == fence.Committed && (!v.Recorded || v.Effect.State() != fence.Committed) {
		return fmt.Errorf("a success is not on record: %s", fence.Describe(v))
	}
	if q.State == fence.Committed && m.denied && !v.Duplicate {
		return fmt.Errorf("a success after a person said no raises nothing: %s", fence.Describe(v))
	}
	m.denied = m.denied && q.State != fence.Committed
	return nil
}

func (o *oracle) caughtUp(d *fence.Delivery, v fence.CatchUpVerdict) error {
	if v.Refusal != nil {
		return nil
	}
	for _, id := range sorted(o.landed) {
		l := o.landed[id]
		if l.run == d.Run && l.by == d.ID {
			continue
		}
		told := slices.ContainsFunc(v.Happened, func(c fence.Conflict) bool { return c.ID == id || "report "+c.ID == id })
		if news := o.news(d, id, l); news && !told {
			return fmt.Errorf("catching up does not tell of %s", id)
		}
	}
	o.views[d.ID] = &view{seen: o.tick, caught: o.tick, replayed: map[string]int{}}
	return nil
}

// ended is rule S10.1. before is the run as it was, unfinished what Unfinished said.
func (o *oracle) ended(d *fence.Delivery, before *fence.Run, reason fence.EndReason, v fence.EndVerdict, unfinished *fence.Refusal) (wrong error) {
	if before != nil && before.Delivery != d.ID {
		if now := o.s.w.conv("c").rows[before.RowKey()]; now != fence.Record(before) {
			return fmt.Errorf("%s is not the current delivery, and its end changed something", who(d))
		}
	}
	if before == nil || before.State != fence.RunActive || before.Delivery != d.ID || reason != fence.EndSuccess {
		return nil
	}
	if !same(v.Refusal, unfinished) {
		return fmt.Errorf("the end says %s, unfinished %s", fence.Describe(v), fence.Describe(unfinished))
	}
	if v.Refusal != nil {
		return nil
	}
	o.effects(func(e *fence.Effect) {
		state, call := o.known(e)
		if state != fence.Pending && state != fence.Ambiguous {
			return
		}
		for i := range e.Calls {
			if c := &e.Calls[i]; c.Run == d.Run && (c.State == fence.Pending || c.State == fence.Ambiguous) {
				wrong = fmt.Errorf("%s ended and owns %s, which is %s", who(d), e.ID, state)
			}
		}
		for _, id := range d.Inbound {
			in, _ := o.s.w.conv("c").rows[fence.InboundRow(id)].(*fence.Inbound)
			if in != nil && !in.Closed() && slices.Contains(call.Answers, id) {
				wrong = fmt.Errorf("%s ended and its %s is taken by %s", who(d), id, e.ID)
			}
		}
	})
	return wrong
}

func (o *oracle) reported(q fence.ReportRequest, v fence.ReportVerdict) error {
	switch {
	case v.Known:
	case v.Echo == "":
		o.foreign[q.ID] = q
	default:
		for _, m := range o.calls {
			if m.q.Effect == v.Echo {
				m.denied = false // the echo raised the alarm
			}
		}
	}
	switch {
	case v.Known, v.Echo == "":
	case o.effect(v.Echo).State() != fence.Committed:
		return fmt.Errorf("%s was reported by its provider and is not committed", v.Echo)
	}
	return nil
}

func (o *oracle) resolved(q fence.ResolveRequest, v fence.ResolveVerdict) error {
	for _, m := range o.calls {
		if m.q.Effect != q.Effect || m.retired || v.Before == nil {
			continue
		}
		was := callOf(v.Before, m.q.Claim)
		open := was != nil && (was.State == fence.Pending || was.State == fence.Ambiguous)
		if open && o.s.w.now <= was.Deadline && !q.Force && v.Refused == "" && v.Before.State() != fence.Committed {
			return fmt.Errorf("%s is resolved before its deadline", q.Effect)
		}
		if v.Refused == "" && q.Happened {
			m.denied = false
		}
		if open && v.Refused == "" && !q.Happened && v.Before.State() != fence.Committed {
			m.failed, m.denied = true, true
		}
	}
	return nil
}

func callOf(e *fence.Effect, claim string) *fence.Call {
	for i := range e.Calls {
		if e.Calls[i].Claim == claim {
			return &e.Calls[i]
		}
	}
	return nil
}

// purged forgets with the ledger: what is past its retention is promised no more.
func (o *oracle) purged() {
	rows := o.s.w.conv("c").rows
	for _, m := range o.calls {
		if rows[fence.EffectRow(m.q.Effect)] == nil {
			m.retired = true
			delete(o.landed, m.q.Effect)
			o.old[m.q.Effect] = true
			delete(o.replays, m.q.Effect)
		}
	}
	for _, id := range sorted(o.foreign) {
		if rows[fence.ReportRow(id)] == nil {
			delete(o.foreign, id)
		}
	}
	for _, id := range sorted(o.landed) {
		if o.landed[id].report && rows["o/"+id[len("report "):]] == nil {
			delete(o.landed, id)
		}
	}
}

package fence_test

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// The rules that a call which starts must keep, by their text.

// granted judges a call that starts now.
func (o *oracle) granted(q fence.ClaimRequest, v fence.ClaimVerdict, applied bool) error {
	m := &made{q: q, effect: v.Effect, at: o.s.w.now, applied: applied}
	for _, err := range []error{o.onlyOne(q), o.current(q), o.unchanged(q), o.unanswered(q)} {
		if err != nil {
			return err
		}
	}
	o.calls = append(o.calls, m)
	return nil
}

// onlyOne is rule S11.1: every earlier call is known not to have applied, unless the provider
// honours the key or the effect is safe to repeat.
func (o *oracle) onlyOne(q fence.ClaimRequest) error {
	var first fence.Millis
	for _, m := range o.calls {
		if m.q.Effect != q.Effect || m.retired {
			continue
		}
		if first == 0 {
			first = m.at
		}
		again := q.Repeatable || q.KeyWindow > 0 && o.s.w.now <= first+q.KeyWindow
		if !m.failed && !again && !o.lied[q.Effect] {
			return fmt.Errorf("%s starts though its call %s is not known to have failed", q.Effect, m.q.Claim)
		}
		if m.effect.State() == fence.Committed {
			return fmt.Errorf("%s starts and is committed", q.Effect)
		}
	}
	return nil
}

func (o *oracle) current(q fence.ClaimRequest) error {
	if q.Delivery == nil {
		return nil
	}
	return o.mayHold(q.Delivery, q.Effect)
}

// unchanged is rule S5.3 by its text.
func (o *oracle) unchanged(q fence.ClaimRequest) (wrong error) {
	d := q.Delivery
	mine := func(run fence.RunKey, by fence.DeliveryID) bool { return d != nil && run == d.Run && by == d.ID }
	concerns := func(intent string) bool {
		return q.Policy != fence.SameIntent || intent == q.Intent || intent == ""
	}
	o.effects(func(e *fence.Effect) {
		state, call := o.known(e)
		if e.ID == q.Effect {
			return
		}
		same, both := e.Intent == q.Intent, call.Named && len(q.Answers) > 0
		unresolved := state == fence.Ambiguous || state == fence.Pending && !mine(call.Run, call.Delivery)
		if unresolved && same && !both && !q.Distinct && !q.AfterUnresolved {
			wrong = fmt.Errorf("%s starts though %s is %s", q.Effect, e.ID, state)
		}
		if state == fence.Pending && !mine(call.Run, call.Delivery) && q.Policy != fence.NoChange && concerns(e.Intent) && !(same && both) {
			wrong = fmt.Errorf("%s starts though %s is under way", q.Effect, e.ID)
		}
	})
	if d == nil || q.Policy == fence.NoChange || wrong != nil {
		return wrong
	}
	for _, id := range sorted(o.landed) {
		l := o.landed[id]
		both := l.named && len(q.Answers) > 0
		if id == q.Effect || mine(l.run, l.by) || !concerns(l.intent) {
			continue
		}
		if o.news(d, id, l) || o.earlier(d, l) && l.intent == q.Intent && !both && l.at > o.views[d.ID].caught && o.views[d.ID].replayed[id] != l.at {
			return fmt.Errorf("%s starts though %s landed and was not seen", q.Effect, id)
		}
	}
	return nil
}

func (o *oracle) news(d *fence.Delivery, id string, l landing) bool {
	v := o.views[d.ID]
	return l.at > v.seen && v.replayed[id] != l.at
}

func (o *oracle) earlier(d *fence.Delivery, l landing) bool {
	run, _ := o.s.w.conv("c").rows[fence.RunRow(d.Run)].(*fence.Run)
	return run != nil && l.run == d.Run && l.by != d.ID && l.by.Number < d.ID.Number && l.at > o.began[d.Run]
}

// covers lists the messages that a claim answers.
func covers(q fence.ClaimRequest) []string {
	if len(q.Answers) == 0 && q.Answering && q.KeyID != "" {
		return []string{q.KeyID}
	}
	return q.Answers
}

// unanswered is rule S5.4: no other effect of the intent answers one of its messages, be it
// pending, unknown or committed, and no report does.
func (o *oracle) unanswered(q fence.ClaimRequest) error {
	for _, id := range covers(q) {
		for _, m := range o.calls {
			if m.q.Effect != q.Effect && m.q.Intent == q.Intent && !m.failed && !m.retired && !o.lied[m.q.Effect] && slices.Contains(covers(m.q), id) {
				return fmt.Errorf("%s answers %s, which %s answers", q.Effect, id, m.q.Effect)
			}
		}
		for _, rep := range sorted(o.foreign) {
			if r := o.foreign[rep]; (r.Intent == q.Intent || r.Intent == "") && slices.Contains(r.Answers, id) {
				return fmt.Errorf("%s answers %s, which report %s answers", q.Effect, id, rep)
			}
		}
	}
	return nil
}

func (o *oracle) replayed(q fence.ClaimRequest, v fence.ClaimVerdict) error {
	if !o.applied(q.Effect) && !o.lied[q.Effect] {
		return fmt.Errorf("%s is replayed and never happened", q.Effect)
	}
	if first, ok := o.replays[q.Effect]; ok && !bytes.Equal(first, v.Replay.Result) && len(first) > 0 {
		return fmt.Errorf("%s is replayed with another result", q.Effect)
	}
	o.replays[q.Effect] = v.Replay.Result
	if q.Delivery != nil {
		o.views[q.Delivery.ID].replayed[q.Effect] = o.landed[q.Effect].at
	}
	return nil
}

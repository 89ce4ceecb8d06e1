package fence_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// choices is one stream of decisions. It drives everything that a random story does, so that
// the same bytes are the same story; 0 is the dull choice, and the end of the stream the end.
type choices struct {
	data []byte
	pos  int
}

func (c *choices) left() bool { return c.pos < len(c.data) }

func (c *choices) next(n int) int {
	if !c.left() {
		return 0
	}
	b := c.data[c.pos]
	c.pos++
	return int(b) % n
}

func (c *choices) chance(percent int) bool { return c.next(100) >= 100-percent }

// jobs are the runs of every story: three in order, a peer, and one that brings nothing.
var jobs = []struct {
	order  fence.Order
	brings []string
}{
	{fence.Order{Source: "msg", Number: 1}, []string{"m1"}},
	{fence.Order{Source: "msg", Number: 2}, []string{"m1", "m2"}},
	{fence.Order{Source: "msg", Number: 3}, []string{"m3"}},
	{fence.Order{Source: "river", Number: 1}, []string{"m2"}},
	{fence.Order{}, nil},
}

func jobKey(i int) fence.RunKey { return fence.RunKey{Queue: "q", ID: fmt.Sprint(i)} }

// wish is an effect that a story may ask for.
type wish struct {
	effect              string
	answers             []string
	params              string
	distinct, repeating bool
	window              fence.Millis
}

// wanted are the effects of every story.
var wanted = []wish{
	{effect: "reply:m1"},
	{effect: "reply:m1", answers: []string{"m1"}},
	{effect: "reply:m2", answers: []string{"m2"}},
	{effect: "reply:m2", answers: []string{"m1", "m2"}},
	{effect: "reply:a:1", answers: []string{"m1"}},
	{effect: "reply:b:1"},
	{effect: "reply:m3", answers: []string{"m3"}},
	{effect: "say:1"},
	{effect: "say:2"},
	{effect: "refund:A:1", distinct: true},
	{effect: "refund:A:2", distinct: true, params: `{"amount":2}`},
	{effect: "tag:v", repeating: true},
	{effect: "charge:1", window: 300_000, params: `{"amount":1}`},
}

// story plays random operations on one conversation and asks the oracle after each.
type story struct {
	w          *world
	c          *choices
	mode       int
	oracle     *oracle
	deliveries map[fence.RunKey][]*fence.Delivery
	stamp      int64
	questions  []question
	loud       bool // keep a log, for people
	log        []string
	events     map[fence.EventKind]int
	reasons    map[fence.Reason]int
}

func newStory(r fence.Rules, c *choices) *story {
	s := &story{
		w: newWorld(r), c: c, mode: c.next(3), deliveries: map[fence.RunKey][]*fence.Delivery{},
		events: map[fence.EventKind]int{}, reasons: map[fence.Reason]int{},
	}
	s.oracle = newOracle(s)
	return s
}

// play returns the first thing that is wrong.
func (s *story) play() error {
	for s.c.left() {
		if err := s.step(); err != nil {
			return fmt.Errorf("%w\nafter:\n%s", err, s.text())
		}
	}
	if err := s.finally(); err != nil {
		return fmt.Errorf("in the end: %w\nafter:\n%s", err, s.text())
	}
	return nil
}

func (s *story) text() (text string) {
	for _, line := range s.log {
		text += "  " + line + "\n"
	}
	return text
}

func (s *story) step() error {
	ops := [...]func() error{
		s.begin, s.claim, s.settle, s.advance, s.begin, s.claim, s.settle, s.catchUp, s.claim, s.settle,
		s.end, s.release, s.report, s.resolve, s.beat, s.renew, s.cancel, s.dismiss, s.stampIt, s.purge, s.progress, s.claim,
		s.asks,
	}
	return ops[s.c.next(len(ops))]()
}

func (s *story) note(format string, args ...any) {
	if s.loud {
		s.log = append(s.log, fmt.Sprintf(format, args...))
	}
}

// did takes note of an operation, and asks everybody whether it was right.
func did[V any](s *story, what string, v V, d decision) (V, error) {
	if s.loud {
		s.note("%6d %s: %s", s.w.now, what, said(v, s.w.now))
	}
	for _, e := range d.events {
		s.events[e.Kind]++
	}
	if d.broken != nil {
		return v, d.broken
	}
	return v, s.oracle.landings(d)
}

func said(v any, now fence.Millis) string {
	switch v.(type) {
	case bool, int64:
		return fmt.Sprint(v)
	}
	return fence.DescribeAt(v, now)
}

func do[V any](s *story, what string, run fence.RunKey, transition func(fence.View) (V, fence.Change)) (V, error) {
	v, d := decide(s.w, "c", run, transition)
	return did(s, what, v, d)
}

func (s *story) modeOf(i int) fence.Mode {
	if s.mode == 1 || s.mode == 2 && i%2 == 1 {
		return fence.Exclusive
	}
	return fence.Supersede
}

func (s *story) begin() error {
	i := s.c.next(len(jobs))
	job := jobs[i]
	q := fence.BeginRequest{
		Identity: s.w.identity("c"), Run: jobKey(i), Order: job.order, Inbound: job.brings, Digest: "p",
		Mode: s.modeOf(i), Reads: fence.AfterBegin,
	}
	if i == 3 {
		q.Reads, q.AsOf = fence.FromPayload, s.stamp
	}
	switch s.c.next(12) {
	case 10:
		q.Digest = "p2"
	case 11:
		if all := s.deliveries[q.Run]; len(all) > 0 {
			q.Nonce = all[len(all)-1].ID.Nonce
		}
	}
	v, err := do(s, fmt.Sprintf("begin %d", i), q.Run, func(view fence.View) (fence.BeginVerdict, fence.Change) { return s.w.rules.Begin(view, q) })
	if err != nil {
		return err
	}
	s.refused(v.Refusal)
	if v.Delivery == nil {
		return s.oracle.turnedAway(q, v.Refusal)
	}
	if all := s.deliveries[q.Run]; len(all) > 0 && all[len(all)-1].ID == v.Delivery.ID {
		all[len(all)-1] = v.Delivery
	} else {
		s.deliveries[q.Run] = append(all, v.Delivery)
	}
	return s.oracle.entered(q, v.Delivery)
}

func (s *story) refused(ref *fence.Refusal) {
	if ref != nil {
		s.reasons[ref.Reason]++
	}
}

// delivery chooses one, mostly the latest of its run; nil when there is none.
func (s *story) delivery() *fence.Delivery {
	runs := slices.SortedFunc(maps.Keys(s.deliveries), func(a, b fence.RunKey) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	if len(runs) == 0 {
		return nil
	}
	all := s.deliveries[runs[s.c.next(len(runs))]]
	if s.c.chance(15) {
		return all[s.c.next(len(all))]
	}
	return all[len(all)-1]
}

func (s *story) learn(d *fence.Delivery) {
	if d == nil {
		return
	}
	for i, old := range s.deliveries[d.Run] {
		if old.ID == d.ID {
			s.deliveries[d.Run][i] = d
		}
	}
}

func (s *story) claim() error {
	d := s.delivery()
	if d == nil && !s.c.chance(30) || s.c.chance(4) {
		d = nil
	}
	want := wanted[s.c.next(len(wanted))]
	if n := len(s.oracle.calls); n > 0 && s.c.chance(15) {
		// The last one again, as after a failure.
		last := s.oracle.calls[n-1].q.Effect
		want = wanted[slices.IndexFunc(wanted, func(w wish) bool { return effectOf(w.effect).id == last })]
	}
	e := effectOf(want.effect)
	q := fence.ClaimRequest{
		Identity: s.w.identity("c"), Delivery: d, Effect: e.id, Intent: e.intent, Key: e.key, KeyID: e.keyID, Params: want.params,
		Answers: want.answers, Answering: e.intent == "reply", Distinct: want.distinct, Repeatable: want.repeating, KeyWindow: want.window,
		Policy: [...]fence.Policy{"", "", "", "", fence.SameIntent, fence.NoChange}[s.c.next(6)], AfterUnresolved: s.c.chance(5),
		Claim: s.w.draw("claim"), For: 120_000,
	}
	v, err := do(s, fmt.Sprintf("claim %s answers %v by %s policy %q after-unresolved %v", want.effect, want.answers, who(d), q.Policy, q.AfterUnresolved), fence.RunKey{}, func(view fence.View) (fence.ClaimVerdict, fence.Change) {
		return s.w.rules.Claim(view, q)
	})
	if err != nil {
		return err
	}
	s.refused(v.Refusal)
	s.learn(v.Delivery)
	switch {
	case v.Replay != nil:
		return s.oracle.replayed(q, v)
	case v.Call != nil:
		if s.c.chance(5) {
			// Its answer is lost, and it is asked for again.
			again, err := do(s, "the same claim again", fence.RunKey{}, func(view fence.View) (fence.ClaimVerdict, fence.Change) { return s.w.rules.Claim(view, q) })
			if err != nil {
				return err
			}
			if again.Call == nil || again.Call.Claim != q.Claim || again.Call.Number != v.Call.Number {
				return fmt.Errorf("a claim that is pending and in time was not found again: %s", fence.Describe(again))
			}
		}
		return s.oracle.granted(q, v, !s.c.chance(35))
	}
	return nil
}

func who(d *fence.Delivery) string {
	if d == nil {
		return "nobody"
	}
	return fmt.Sprintf("%s#%d", d.Run.ID, d.ID.Number)
}

func (s *story) settle() error {
	call := s.oracle.call(s.c)
	if call == nil {
		return nil
	}
	q := fence.SettleRequest{Identity: s.w.identity("c"), Effect: call.q.Effect, Claim: call.q.Claim, Delivery: call.q.Delivery, Granted: call.effect}
	if q.Delivery != nil {
		for _, d := range s.deliveries[q.Delivery.Run] {
			if d.ID == q.Delivery.ID {
				q.Delivery = d
			}
		}
	}
	if s.c.chance(10) {
		q.Reference = "ref-" + call.q.Claim
		call.reference = q.Reference
	}
	switch {
	case s.c.chance(25):
		q.State = fence.Ambiguous
	case call.applied:
		q.State, q.Result, q.NoValue = fence.Committed, []byte("v"), s.c.chance(10)
	default:
		q.State, q.NotStarted = fence.Failed, s.c.chance(10)
	}
	v, err := do(s, fmt.Sprintf("settle %s of %s as %s", call.q.Effect, call.q.Claim, q.State), fence.RunKey{}, func(view fence.View) (fence.SettleVerdict, fence.Change) {
		return s.w.rules.Settle(view, q)
	})
	if err != nil {
		return err
	}
	s.learn(v.Delivery)
	if q.State == fence.Failed {
		call.failed = true
	}
	return s.oracle.settled(call, q, v)
}

func (s *story) advance() error {
	s.w.now += [...]fence.Millis{1, 1000, 10_000, 31_000, 60_000, 121_000, 300_000, 1000}[s.c.next(8)]
	s.note("%6d", s.w.now)
	return nil
}

func (s *story) catchUp() error {
	d := s.delivery()
	if d == nil {
		return nil
	}
	q := fence.CatchUpRequest{Identity: s.w.identity("c"), Delivery: d}
	v, err := do(s, "catch up "+who(d), fence.RunKey{}, func(view fence.View) (fence.CatchUpVerdict, fence.Change) { return s.w.rules.CatchUp(view, q) })
	if err != nil {
		return err
	}
	s.learn(v.Delivery)
	return s.oracle.caughtUp(d, v)
}

func (s *story) end() error {
	d := s.delivery()
	if d == nil {
		return nil
	}
	q := fence.EndRequest{Identity: s.w.identity("c"), Delivery: d, Reason: [...]fence.EndReason{fence.EndSuccess, fence.EndSuccess, fence.EndDiscarded, fence.EndSuperseded}[s.c.next(4)]}
	ref, err := do(s, "unfinished "+who(d), fence.RunKey{}, func(view fence.View) (*fence.Refusal, fence.Change) { return s.w.rules.Unfinished(view, q) })
	if err != nil {
		return err
	}
	run, _ := s.w.conv("c").rows[fence.RunRow(d.Run)].(*fence.Run)
	v, err := do(s, fmt.Sprintf("end %s: %s", who(d), q.Reason), fence.RunKey{}, func(view fence.View) (fence.EndVerdict, fence.Change) { return s.w.rules.End(view, q) })
	if err != nil {
		return err
	}
	s.refused(v.Refusal)
	return s.oracle.ended(d, run, q.Reason, v, ref)
}

func (s *story) release() error {
	d := s.delivery()
	if d == nil {
		return nil
	}
	q := fence.ReleaseRequest{Identity: s.w.identity("c"), Delivery: d}
	if s.c.chance(30) {
		q.Parked = fence.ReasonUnresolved
	}
	_, err := do(s, "release "+who(d), fence.RunKey{}, func(view fence.View) (bool, fence.Change) { return s.w.rules.Release(view, q) })
	return err
}

package fence_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// question is one that was put to the provider and not answered yet.
type question struct {
	effect, nonce string
	applied       bool // what the provider would show at that moment, if it shows at once
	calls         int
	until         fence.Millis
	replaced      bool // somebody else has asked since
}

// asks puts questions to the provider, and hands in its answers.
func (s *story) asks() error {
	if len(s.questions) > 0 && s.c.chance(60) {
		return s.probed()
	}
	return s.probe()
}

// probe asks the provider about an effect, if the rules let it.
func (s *story) probe() error {
	call := s.oracle.call(s.c)
	if call == nil || call.retired {
		return nil
	}
	asked := len(s.questions)
	if err := s.ask(call.q.Effect); err != nil || len(s.questions) == asked || !s.c.chance(40) {
		return err
	}
	// That one takes too long, and somebody else asks.
	s.w.now += 61_000
	return s.ask(call.q.Effect)
}

func (s *story) ask(effect string) error {
	q := fence.ProbeRequest{Identity: s.w.identity("c"), Effect: effect, Nonce: s.w.draw("probe"), By: "w", For: 60_000}
	v, err := do(s, "probe "+q.Effect, fence.RunKey{}, func(view fence.View) (fence.ProbeVerdict, fence.Change) { return s.w.rules.Probe(view, q) })
	if err != nil || !v.Granted {
		return err
	}
	for i := range v.Effect.Calls {
		c := &v.Effect.Calls[i]
		if (c.State == fence.Pending || c.State == fence.Ambiguous) && s.w.now < c.Deadline+s.w.rules.Quiet {
			return fmt.Errorf("%s is probed before its quiet period is over", q.Effect)
		}
	}
	// A question whose effect was called again or decided since is nobody's any more.
	if slices.ContainsFunc(s.questions, func(o question) bool {
		return o.effect == q.Effect && s.w.now < o.until && o.calls == len(v.Effect.Calls)
	}) && v.Effect.Probing.Tries > 1 {
		return fmt.Errorf("%s is probed twice at a time", q.Effect)
	}
	for i := range s.questions {
		s.questions[i].replaced = s.questions[i].replaced || s.questions[i].effect == q.Effect
	}
	s.questions = append(s.questions, question{
		effect: q.Effect, nonce: q.Nonce, applied: s.oracle.applied(q.Effect), calls: len(v.Effect.Calls), until: v.Effect.Probing.Until,
	})
	return nil
}

// probed brings an answer, truthful as of when the question was put; from a provider that does
// not show at once what it accepted, also "not applied" for what did.
func (s *story) probed() error {
	if len(s.questions) == 0 {
		return nil
	}
	i := s.c.next(len(s.questions))
	asked := s.questions[i]
	s.questions = slices.Delete(s.questions, i, i+1)
	q := fence.ProbedRequest{
		Identity: s.w.identity("c"), Effect: asked.effect, Nonce: asked.nonce, Finding: fence.FoundNotApplied,
		ReadYourWrites: s.c.chance(50), By: "probe",
	}
	switch {
	case s.c.chance(20):
		q.Finding = fence.FoundNothing
	case asked.applied && (q.ReadYourWrites || s.c.chance(50)):
		q.Finding, q.Result, q.HasResult = fence.FoundApplied, []byte("v"), true
	}
	v, err := do(s, fmt.Sprintf("probed %s: %s, shows at once %v", q.Effect, q.Finding, q.ReadYourWrites), fence.RunKey{}, func(view fence.View) (fence.ProbedVerdict, fence.Change) {
		return s.w.rules.Probed(view, q)
	})
	if err != nil || v.Before == nil {
		return err
	}
	if v.Before != v.After && v.Decided {
		if len(v.Before.Calls) != asked.calls {
			return errors.New("an answer about fewer calls than there are was taken")
		}
		if asked.replaced {
			return errors.New("an answer was taken although somebody else has asked since")
		}
		if v.After.State() == fence.Failed && !q.ReadYourWrites {
			return errors.New("not found was believed")
		}
		s.oracle.probedAs(v.After)
	}
	return nil
}

// probedAs takes note that a probe has decided what became of an effect's open calls.
func (o *oracle) probedAs(e *fence.Effect) {
	for _, m := range o.calls {
		if m.q.Effect != e.ID || m.retired {
			continue
		}
		if call := callOf(e, m.q.Claim); call != nil && call.State == fence.Failed && call.Denied {
			m.failed, m.denied = true, true
		}
	}
}

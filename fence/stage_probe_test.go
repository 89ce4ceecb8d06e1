package fence_test

import (
	"github.com/fencedrun/fencedrun/fence"
)

// The commands about probes (rule S8).

func (s *stage) probe(a *args) string {
	conv := a.text("conv", "c")
	q := fence.ProbeRequest{
		Identity: s.w.identity(conv), Effect: effectOf(a.need("effect")).id, Nonce: a.need("as"), By: "worker", For: a.millis("for", 60_000),
	}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.ProbeVerdict, fence.Change) { return s.w.rules.Probe(view, q) })
	return s.tell(v, d)
}

func (s *stage) probed(a *args) string {
	conv := a.text("conv", "c")
	q := fence.ProbedRequest{
		Identity: s.w.identity(conv), Effect: effectOf(a.need("effect")).id, Nonce: a.need("as"),
		Finding:        fence.Finding(a.oneOf("applied", "not_applied", "rejected", "unknown")),
		ReadYourWrites: a.has("shows-at-once"), Note: a.text("note", ""), Reference: a.text("reference", ""),
	}
	if v := a.text("result", ""); v != "" {
		q.Result, q.HasResult = []byte(v), true
	}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.ProbedVerdict, fence.Change) { return s.w.rules.Probed(view, q) })
	return s.tell(v, d)
}

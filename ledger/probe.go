package ledger

import (
	"context"

	"github.com/fencedrun/fencedrun/fence"
)

// Probe asks for the right to put a question about an unknown outcome to its provider (rule S8).
func (l *Ledger) Probe(ctx context.Context, conversation string, q fence.ProbeRequest) (fence.ProbeVerdict, fence.Millis, error) {
	return outside(ctx, l, conversation, "probe", effectAnd(q.Effect, nil), func(id fence.Identity, v fence.View) (fence.ProbeVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Probe(v, q)
	})
}

// Probed hands in the answer.
func (l *Ledger) Probed(ctx context.Context, conversation string, q fence.ProbedRequest) (fence.ProbedVerdict, fence.Millis, error) {
	return outside(ctx, l, conversation, "probe", effectAnd(q.Effect, nil), func(id fence.Identity, v fence.View) (fence.ProbedVerdict, fence.Change) {
		q.Identity = id
		return l.Rules.Probed(v, q)
	})
}

package ledger

import (
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Rule S5.7, lost answers: a claim's id is drawn before it is decided on, so that a claim that
// was written although its answer was lost is found again. Having been written is not a right
// to send: the call goes on only while it is pending and in time, and that is for the rules to
// say, on a fresh view.

// claimID returns the id for a claim that is decided on v; row is the effect's. It is the one
// that was asked for, unless a call under it was settled, resolved or overtaken by its deadline while its answer
// was lost: a further call, if the rules allow one, is another claim, or the evidence about
// the two could not be told apart.
func (l *Ledger) claimID(v fence.View, row string, q *fence.ClaimRequest) string {
	e, _ := v.Rows[row].(*fence.Effect)
	if e == nil {
		return q.Claim
	}
	for i := range e.Calls {
		if c := &e.Calls[i]; c.Claim == q.Claim && (c.State != fence.Pending || c.Deadline < v.Now) {
			return l.Seam.NewID()
		}
	}
	return q.Claim
}

// takenForRight is the mistake that rule S5.7 forbids.
func (op *operation) takenForRight() bool {
	return op.verb == "claim" && op.l.Seam.Off.Has(sabotage.LostAnswerIsRight)
}

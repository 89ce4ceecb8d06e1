package runs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// Claim is the right to make one call of an effect that finishes elsewhere, such as in a
// provider's webhook (rule S7.7). Whoever learns the outcome calls Commit or Fail, in any
// process; if nobody does before the deadline, the outcome is unknown.
//
// The run that claimed does not end with success before the outcome is known: its job comes
// back, and is not entered again while the claim is pending.
type Claim struct {
	k            *Keeper
	r            *Run // nil when another process claimed
	conversation string
	effect       EffectRef
	classify     func(error) bool
	claim        string        // "" when the effect was done before
	granted      *fence.Effect // nil when another process claimed
	record       *fence.Call
}

// Claim claims e for a call that finishes elsewhere, within deadline. When the effect was
// done before, the claim is Done and nothing must be called. e.Timeout is how long handing the
// call over may take: with less left when the claim is granted, ErrNotStarted is returned. It
// defaults to half of deadline.
func (r *Run) Claim(ctx context.Context, e Effect, deadline time.Duration) (*Claim, error) {
	if r == nil {
		return nil, noRun(EffectRef{Intent: e.Intent})
	}
	return r.claim(ctx, r.k.traitsOf(e.Intent), e.Key, e.with(), deadline)
}

// Claim claims an effect of this intent for a call that finishes elsewhere: see [Run.Claim].
func (in Intent[T]) Claim(ctx context.Context, k EffectKey, deadline time.Duration, with ...With) (*Claim, error) {
	r := FromContext(ctx)
	if r == nil {
		return nil, noRun(EffectRef{Intent: in.Name})
	}
	w, err := one(in.Name, with)
	if err != nil {
		return nil, err
	}
	return r.claim(ctx, in.traits(), k, w, deadline)
}

func (r *Run) claim(ctx context.Context, t traits, effectKey EffectKey, w With, deadline time.Duration) (*Claim, error) {
	switch {
	case deadline <= 0:
		return nil, fmt.Errorf("fencedrun: %s: deadline is not positive: %v", t.name, deadline)
	case w.ClaimDeadline != 0:
		return nil, fmt.Errorf("fencedrun: %s: ClaimDeadline is given beside the deadline of Claim", t.name)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	// The intent's own times are those of a call that is waited for.
	t.timeout, t.claimDeadline = 0, 0
	if w.ClaimDeadline = deadline; w.Timeout == 0 {
		w.Timeout = deadline / 2
	}
	o, err := r.k.prepare(r.job.Conversation, t, effectKey, w)
	if err != nil {
		return nil, err
	}
	a, err := r.k.claim(ctx, r, r.job.Conversation, o)
	if err != nil {
		return nil, err
	}
	c := &Claim{k: r.k, r: r, conversation: r.job.Conversation, effect: o.ref, classify: t.classify, record: a.replay}
	if a.replay != nil {
		return c, nil
	}
	if !a.inTime(o.timeout) {
		return nil, a.notStarted(ctx)
	}
	c.claim, c.granted, c.record = a.call.Claim, a.granted, a.call
	return c, nil
}

// ClaimByID returns the claim that [Claim.ID] named, for a process that learns the outcome of
// a call it did not make.
func (k *Keeper) ClaimByID(conversation, id string) (*Claim, error) {
	effect, claim, ok := strings.Cut(id, ".")
	if _, valid := key.EffectOf(key.IdempotencyKey(effect)); !ok || !valid || claim == "" || len(claim) > key.MaxJobID {
		return nil, fmt.Errorf("fencedrun: id is not one that Claim.ID gave: %q", id)
	}
	if err := key.ValidateName("conversation", conversation, key.MaxConversation); err != nil {
		return nil, err
	}
	return &Claim{k: k, conversation: conversation, effect: EffectRef{ID: effect}, claim: claim}, nil
}

// ID names the claim for another process; printable ASCII. It is "" when the claim is Done.
func (c *Claim) ID() string {
	if c.Done() {
		return ""
	}
	return c.effect.ID + "." + c.claim
}

// Done reports that the effect was done before: there is nothing to call or settle. Run.Check
// gives the stored value.
func (c *Claim) Done() bool { return c.claim == "" }

// Call returns what to hand to the provider. It is nil for a claim made by ClaimByID. The
// provider's reference is Commit's to record.
func (c *Claim) Call() *Call {
	if c.record == nil {
		return nil
	}
	call := &Call{Number: c.record.Number, IdempotencyKey: idempotencyKey(c.effect.ID), Fence: c.record.Fence, Effect: c.effect}
	if c.r != nil {
		call.lost = c.r.lost
	}
	return call
}

// Commit records that the call happened, with its value (kept as JSON; nil for none) and the
// provider's reference. Committing twice is committing once.
func (c *Claim) Commit(ctx context.Context, value any, reference string) error {
	q := fence.SettleRequest{State: fence.Committed, Reference: reference}
	if value != nil {
		result := keep(value, c.k.config.MaxResult)
		q.Result, q.NoValue = result.result, result.noValue
	}
	return c.settle(ctx, q)
}

// Fail records that the call failed with err: as not applied when err says so (see
// NotApplied), else as unknown.
func (c *Claim) Fail(ctx context.Context, err error) error {
	if err == nil {
		return fmt.Errorf("fencedrun: fail: err is nil")
	}
	q := fence.SettleRequest{State: fence.Ambiguous, Error: errorText(err)}
	if notApplied(err, c.classify) {
		q.State = fence.Failed
	}
	return c.settle(ctx, q)
}

func (c *Claim) settle(ctx context.Context, q fence.SettleRequest) error {
	if c.Done() {
		return nil
	}
	q.Effect, q.Claim, q.Granted = c.effect.ID, c.claim, c.granted
	q.Durable = true
	v, err := c.k.settle(ctx, c.r, c.conversation, q)
	switch {
	case err != nil:
		return err
	case v.Effect == nil:
		return fmt.Errorf("fencedrun: settle: the conversation knows no claim %s", c.ID())
	case !v.Recorded:
		return fmt.Errorf("fencedrun: settle: %s is refused: the effect is %s and stays so", q.State, v.Effect.State())
	}
	return nil
}

package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// Claim is the right to make one call of an effect that finishes elsewhere, such as in a
// provider's webhook (rule S7.7). Whoever learns the outcome calls Commit or Fail, in any
// process; if nobody does before the deadline, the outcome is unknown.
type Claim struct {
	k            *Keeper
	r            *Run
	conversation string
	effect       EffectRef
	claim        string
	granted      *fence.Effect
	record       *fence.Call
}

// Claim claims e for a call that finishes elsewhere, within deadline. When the effect was
// done before, the claim is Done and nothing must be called.
func (r *Run) Claim(ctx context.Context, e Effect, deadline time.Duration) (*Claim, error) {
	if r == nil {
		return nil, noRun(EffectRef{Intent: e.Intent})
	}
	return r.k.claimElsewhere(ctx, r, r.job.Conversation, traitsOf(e.Intent), e.Key, e.with(), deadline)
}

// Claim claims an effect of this intent for a call that finishes elsewhere: see [Run.Claim].
func (in Intent[T]) Claim(ctx context.Context, k EffectKey, deadline time.Duration, with ...With) (*Claim, error) {
	r := FromContext(ctx)
	if r == nil {
		return nil, noRun(EffectRef{Intent: in.Name})
	}
	var w With
	if len(with) > 0 {
		w = with[0]
	}
	return r.k.claimElsewhere(ctx, r, r.job.Conversation, in.traits(), k, w, deadline)
}

func (k *Keeper) claimElsewhere(ctx context.Context, r *Run, conversation string, t traits, effectKey EffectKey, w With, deadline time.Duration) (*Claim, error) {
	if deadline <= 0 {
		return nil, fmt.Errorf("fencedrun: Claim: deadline must be positive: %v", deadline)
	}
	w.ClaimDeadline, w.Timeout = deadline, min(first(w.Timeout, deadline), deadline)
	o, err := k.prepare(conversation, t, effectKey, w)
	if err != nil {
		return nil, err
	}
	a, err := k.claim(ctx, r, conversation, o)
	if err != nil {
		return nil, err
	}
	c := &Claim{k: k, r: r, conversation: conversation, effect: o.ref, record: a.replay}
	if a.replay == nil {
		c.claim, c.granted, c.record = a.call.Claim, a.granted, a.call
	}
	return c, nil
}

// ClaimByID returns the claim that [Claim.ID] named, for a process that learns the outcome of
// a call it did not make.
func (k *Keeper) ClaimByID(conversation, id string) (*Claim, error) {
	effect, claim, ok := strings.Cut(id, ".")
	if !ok || effect == "" || claim == "" {
		return nil, fmt.Errorf("fencedrun: claim id %q is not one that Claim.ID gave", id)
	}
	if err := key.ValidateName("conversation", conversation, key.MaxConversation); err != nil {
		return nil, err
	}
	return &Claim{k: k, conversation: conversation, effect: EffectRef{ID: effect}, claim: claim}, nil
}

// ID names the claim for another process; printable ASCII.
func (c *Claim) ID() string { return c.effect.ID + "." + c.claim }

// Done reports that the effect was done before: there is nothing to call or settle.
func (c *Claim) Done() bool { return c.claim == "" }

// Call returns what to hand to the provider. It is nil for a claim made by ClaimByID.
func (c *Claim) Call() *Call {
	if c.record == nil {
		return nil
	}
	return &Call{Number: c.record.Number, IdempotencyKey: key.IdempotencyKey(c.effect.ID), Fence: c.record.Fence, Effect: c.effect}
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
		return fmt.Errorf("fencedrun: Claim.Fail: err is nil")
	}
	q := fence.SettleRequest{State: fence.Ambiguous, Error: err.Error()}
	if notApplied(err, nil) {
		q.State = fence.Failed
	}
	return c.settle(ctx, q)
}

func (c *Claim) settle(ctx context.Context, q fence.SettleRequest) error {
	if c.Done() {
		return nil
	}
	q.Effect, q.Claim, q.Granted = c.effect.ID, c.claim, c.granted
	ctx, cancel := c.k.settleCtx(ctx)
	defer cancel()
	v, _, err := c.k.ledger.Settle(ctx, c.conversation, q)
	if err != nil {
		return c.k.storeError(ctx, Job{Conversation: c.conversation}, "settle", err)
	}
	if v.Effect == nil {
		return fmt.Errorf("fencedrun: settle: conversation %q knows no claim %q", c.conversation, c.ID())
	}
	if !v.Recorded {
		return fmt.Errorf("fencedrun: settle: the call is %s already and stays so", v.Effect.State())
	}
	return nil
}

// Record says what is known of an effect.
type Record struct {
	Effect EffectRef
	// State is "" when the effect was never claimed, Failed when every call is known not to
	// have applied. Ambiguous is not "no": nobody knows.
	State State
	// Call is the call that decides the state; nil when there is none.
	Call *CallRecord
	// Calls is how many calls there were.
	Calls int
}

// Decode decodes the stored result into v.
func (r Record) Decode(v any) error {
	if r.State != fence.Committed || r.Call.NoValue || len(r.Call.Result) == 0 {
		return localRefusal(fence.ReasonValueNotKept, r.Effect)
	}
	return json.Unmarshal(r.Call.Result, v)
}

// Check says what is known of an effect, without side effects: "did we already?".
func (r *Run) Check(ctx context.Context, e Effect) (Record, error) {
	if r == nil {
		return Record{}, noRun(EffectRef{Intent: e.Intent})
	}
	return r.k.Check(ctx, r.job.Conversation, e)
}

// Check is Run.Check without a run.
func (k *Keeper) Check(ctx context.Context, conversation string, e Effect) (Record, error) {
	o, err := k.prepare(conversation, traitsOf(e.Intent), e.Key, With{})
	if err != nil {
		return Record{}, err
	}
	row := fence.EffectRow(o.ref.ID)
	v, err := k.ledger.Look(ctx, conversation, row)
	if err != nil {
		return Record{}, k.storeError(ctx, Job{Conversation: conversation}, "check", err)
	}
	record := Record{Effect: o.ref}
	if effect, _ := v.Rows[row].(*fence.Effect); effect != nil {
		record.Call = effect.Deciding()
		record.State, record.Calls = record.Call.State, len(effect.Calls)
	}
	return record, nil
}

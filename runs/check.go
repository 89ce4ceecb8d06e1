package runs

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/fence"
)

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

// Decode decodes the stored result into v. ErrValueNotKept says that there is none.
func (r Record) Decode(v any) error {
	switch {
	case r.State == "":
		return fmt.Errorf("fencedrun: %s: there is no result: the effect was never claimed", r.Effect.Intent)
	case r.State != fence.Committed:
		return fmt.Errorf("fencedrun: %s: there is no result: the effect is %s", r.Effect.Intent, r.State)
	case r.Call.NoValue || len(r.Call.Result) == 0:
		return localRefusal(fence.ReasonValueNotKept, r.Effect)
	}
	if err := decode(r.Call.Result, v); err != nil {
		return fmt.Errorf("fencedrun: %s: decode the stored result: %w", r.Effect.Intent, err)
	}
	return nil
}

// Check says what is known of an effect, without side effects: "did we already?". Of e only
// Intent and Key matter.
func (r *Run) Check(ctx context.Context, e Effect) (Record, error) {
	if r == nil {
		return Record{}, noRun(EffectRef{Intent: e.Intent})
	}
	return r.k.Check(ctx, r.job.Conversation, e)
}

// Check is Run.Check without a run.
func (k *Keeper) Check(ctx context.Context, conversation string, e Effect) (Record, error) {
	o, err := k.prepare(conversation, k.traitsOf(e.Intent), e.Key, With{})
	if err != nil {
		return Record{}, err
	}
	if err := k.open(); err != nil {
		return Record{}, err
	}
	row := fence.EffectRow(o.ref.ID)
	v, err := k.ledger.Look(ctx, conversation, row)
	if err != nil {
		return Record{}, k.failed(ctx, Job{Conversation: conversation}, "check", err)
	}
	record := Record{Effect: o.ref}
	if effect, _ := v.Rows[row].(*fence.Effect); effect != nil {
		record.Call = effect.Deciding()
		record.State, record.Calls = record.Call.State, len(effect.Calls)
	}
	return record, nil
}

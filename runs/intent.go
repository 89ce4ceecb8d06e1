package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// Intent declares a kind of side effect once, typed, with everything that is true of every
// such effect. T is the result's type; it is kept as JSON. Intents are values: declare them as
// package variables.
type Intent[T any] struct {
	// Name is the verb: "refund". At most 128 bytes.
	Name string
	// Answering says that the effects answer inbound messages, as "reply" does: they may name
	// Answers, and one that names none and has a single string as key answers that.
	Answering bool
	// Distinct says that the keys tell the effects apart completely (refunds by order and
	// line, tags by name): an unresolved one does not stand in the way of another key (rule
	// S5.3).
	Distinct bool
	// Repeatable says that the effect is safe to repeat, such as setting a status: one
	// whose outcome is unknown may be called again (rule S8). A wrong word here duplicates.
	Repeatable bool
	// HonoursKey says that the provider honours the idempotency key for this long from the
	// first claim; inside it, less a tenth or the effect's timeout, whichever is longer, an effect whose outcome is unknown
	// may be called again with the same key, params and Answers (rule S8). 0: it does not.
	HonoursKey time.Duration
	// Forever keeps the effects past the retention.
	Forever bool
	// MaxCalls, Timeout and ClaimDeadline override the keeper's. ClaimDeadline must be longer
	// than Timeout and defaults to twice Timeout.
	MaxCalls      int
	Timeout       time.Duration
	ClaimDeadline time.Duration
	// Classify reports whether an error of the effect certainly says that it did not happen
	// (rule S2.1). Errors that implement NotApplied() bool, or were marked with NotApplied,
	// need no classifier. It gets each part of a joined error by itself.
	Classify func(err error) bool
	// Probe asks the provider whether an effect happened whose outcome is unknown: by
	// idempotency key, reference, or whatever else finds it. Return Applied, NotFound, Rejected when
	// the provider shows that it has refused the effect for good, or an error when it cannot be told. It is called by those who need to know, and by Keeper.Sweep;
	// only after the claim's deadline and Config.Quiet, by one process at a time, never inside a
	// transaction, with the effect's timeout (rule S8). It must not change anything at the
	// provider. Declare the intent in Config.Intents, so that others than the claimer can ask.
	Probe func(ctx context.Context, q Question) (Found[T], error)
	// ReadYourWrites says that the provider shows what it has accepted at once, and for as long
	// as an effect may be unknown, to whoever asks as Probe does. Only then NotFound means that
	// the effect did not happen, and it may be called again. Lists and searches that lag behind
	// do not qualify. A wrong word here duplicates.
	ReadYourWrites bool
}

func (in Intent[T]) traits() traits {
	return traits{
		name: in.Name, answering: in.Answering || in.Name == "reply", distinct: in.Distinct, repeatable: in.Repeatable,
		forever: in.Forever, honoursKey: in.HonoursKey, maxCalls: in.MaxCalls, timeout: in.Timeout,
		claimDeadline: in.ClaimDeadline, classify: in.Classify, probe: in.probe(), readYourWrites: in.ReadYourWrites,
	}
}

// Once calls fn at most once for this effect on the run's conversation, over all jobs,
// deliveries, workers and restarts, and returns its result, now or stored. fn gets a ctx of
// its own: detached from the handler's cancellation, with the effect's timeout (rule S6.2).
//
// A *RefusedError says that fn was not called, and why. An *OutcomeError says that it was
// called and failed, or that nobody knows. The value is also returned beside an
// OutcomeNotRecorded. ErrValueNotKept says that it was done earlier and its value is not
// there; a stored value that T cannot decode is another error. At most one With may be given.
func (in Intent[T]) Once(ctx context.Context, k EffectKey, fn func(ctx context.Context, call *Call) (T, error), with ...With) (T, error) {
	var none T
	r := FromContext(ctx)
	if r == nil {
		return none, noRun(EffectRef{Intent: in.Name})
	}
	return in.run(r.k, r.job.Conversation, k, fn, with, func(o *order, fn effectFunc) (*fence.Call, error) {
		return r.k.once(ctx, r, r.job.Conversation, o, fn)
	})
}

// OnceOn is Once without a job, for cron scripts and HTTP handlers: every run sees it as
// somebody else's write (rule S5, without a job).
func (in Intent[T]) OnceOn(ctx context.Context, keeper *Keeper, conversation string, k EffectKey, fn func(ctx context.Context, call *Call) (T, error), with ...With) (T, error) {
	return in.run(keeper, conversation, k, fn, with, func(o *order, fn effectFunc) (*fence.Call, error) {
		return keeper.once(ctx, nil, conversation, o, fn)
	})
}

// run checks what was asked for, and brings fn's value past once, which knows no types.
func (in Intent[T]) run(keeper *Keeper, conversation string, k EffectKey, fn func(ctx context.Context, call *Call) (T, error), with []With,
	once func(*order, effectFunc) (*fence.Call, error),
) (T, error) {
	var value T
	switch {
	case keeper == nil:
		return value, fmt.Errorf("fencedrun: %s: keeper is nil", in.Name)
	case fn == nil:
		return value, noFunc(in.Name)
	}
	w, err := one(in.Name, with)
	if err != nil {
		return value, err
	}
	o, err := keeper.prepare(conversation, in.traits(), k, w)
	if err != nil {
		return value, err
	}
	done, err := once(o, func(ctx context.Context, call *Call) (kept, error) {
		var err error
		value, err = fn(ctx, call)
		if err != nil {
			return kept{}, err
		}
		return keep(value, keeper.config.MaxResult), nil
	})
	if err != nil || done == nil {
		return value, err
	}
	return in.stored(done, o.ref)
}

// one returns the only With, or the zero one.
func one(intent string, with []With) (With, error) {
	switch len(with) {
	case 0:
		return With{}, nil
	case 1:
		return with[0], nil
	}
	return With{}, fmt.Errorf("fencedrun: %s: more than one With", intent)
}

// stored decodes the result of a call that was committed before.
func (in Intent[T]) stored(call *fence.Call, ref EffectRef) (T, error) {
	var value T
	if call.NoValue || len(call.Result) == 0 {
		return value, localRefusal(fence.ReasonValueNotKept, ref)
	}
	if err := decode(call.Result, &value); err != nil {
		return value, fmt.Errorf("fencedrun: %s: decode the stored result: %w", in.Name, err)
	}
	return value, nil
}

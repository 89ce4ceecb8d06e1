package runs

import (
	"context"
	"errors"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger"
)

// run calls the effect and records what became of it. It returns the committed call when the
// ledger knew better than the effect, nil when the effect succeeded.
func (a *attempt) run(ctx context.Context, fn effectFunc) (*fence.Call, error) {
	if !a.inTime(a.o.timeout) {
		return nil, a.notStarted(ctx)
	}
	call := newCall(a.o, a.call, a.lost())
	value, err := a.perform(ctx, call, fn)
	return a.record(ctx, call, value, err)
}

func (a *attempt) lost() <-chan struct{} {
	if a.r == nil {
		return nil
	}
	return a.r.lost
}

// perform runs fn on a ctx that is detached from the handler's cancellation and has the
// effect's timeout (rule S6.2). A panic or Goexit makes the outcome unknown at once, and passes
// through unchanged (rule S2.2): recover would lose the stack.
func (a *attempt) perform(ctx context.Context, call *Call, fn effectFunc) (value kept, err error) {
	effectCtx, cancel := a.k.detached(ctx, a.o.timeout)
	defer cancel()
	returned := false
	defer func() {
		if !returned {
			_, _ = a.settle(ctx, fence.SettleRequest{State: fence.Ambiguous, Reference: call.getReference(), Error: errLeft.Error()})
		}
	}()
	value, err = fn(effectCtx, call)
	returned = true
	return value, err
}

var errLeft = errors.New("the effect panicked or left its goroutine")

// record writes down what the effect returned.
func (a *attempt) record(ctx context.Context, call *Call, value kept, err error) (*fence.Call, error) {
	off := a.k.seam.Off
	q := fence.SettleRequest{State: fence.Committed, Result: value.result, NoValue: value.noValue, Reference: call.getReference()}
	if err == nil {
		if value.noValue && off.Has(sabotage.BigResultFails) {
			q.State = fence.Failed
		}
		if _, err := a.settle(ctx, q); err != nil {
			return nil, a.outcome(OutcomeNotRecorded, err, err)
		}
		return nil, nil
	}
	outcome := OutcomeAmbiguous
	q = fence.SettleRequest{State: fence.Ambiguous, Error: errorText(err), Reference: q.Reference}
	if notApplied(err, a.o.traits.classify) || off.Has(sabotage.TimeoutMeansFailed) {
		outcome, q.State = OutcomeFailed, fence.Failed
	}
	e, unrecorded := a.settle(ctx, q)
	if e != nil && e.State() == fence.Committed {
		// An echo or a person said meanwhile that it happened, and that is final (rule S2).
		return e.Deciding(), nil
	}
	return nil, a.outcome(outcome, err, unrecorded)
}

// settle records an outcome and returns the effect as it then is.
func (a *attempt) settle(ctx context.Context, q fence.SettleRequest) (*fence.Effect, error) {
	q.Effect, q.Claim, q.Granted = a.o.ref.ID, a.call.Claim, a.granted
	v, err := a.k.settle(ctx, a.r, a.conversation, q)
	if err != nil {
		a.k.tell(context.WithoutCancel(ctx), Event{
			Kind: fence.EventNotRecorded, Conversation: a.conversation, Run: a.call.Run, Delivery: a.call.Delivery.Number,
			Effect: a.o.ref, Call: a.call.Number, Text: string(q.State), Err: err,
		})
	}
	return v.Effect, err
}

// settle records an outcome on a ctx that is detached from the caller's and bounded (rule
// S7.1). It keeps trying until the bound. r is nil when no delivery of this process claimed.
func (k *Keeper) settle(ctx context.Context, r *Run, conversation string, q fence.SettleRequest) (fence.SettleVerdict, error) {
	settleCtx, cancel := k.settleCtx(ctx)
	defer cancel()
	if k.seam.Off.Has(sabotage.SettleByHandlerCtx) {
		settleCtx = ctx
	}
	q.Reference = referenceOf(q.Reference)
	var v fence.SettleVerdict
	err := k.insist(settleCtx, func() (err error) {
		if r != nil {
			v, _, err = r.h.Settle(settleCtx, q)
		} else {
			v, _, err = k.ledger.Settle(settleCtx, conversation, q)
		}
		return err
	})
	if err != nil {
		r.noteAway()
		return v, k.storeError(context.WithoutCancel(ctx), jobOf(r, conversation), "settle", err)
	}
	return v, nil
}

// insist asks the ledger until it answers or ctx is done: what is known must be written down,
// though the ledger is away for a while (rule S7.1).
func (k *Keeper) insist(ctx context.Context, ask func() error) error {
	for pause := k.config.PollMin; ; pause = min(2*pause, k.config.PollMax) {
		err := ask()
		if err == nil || errors.Is(err, ledger.ErrCorrupt) || k.open() != nil {
			return err
		}
		if k.seam.Sleep(ctx, pause/2+k.seam.Jitter(pause)) != nil {
			return err
		}
	}
}

// onceUndurably is the mistake that rule S5.7 forbids: the effect is called, and its claim is
// written afterwards, if there is an afterwards.
func (k *Keeper) onceUndurably(ctx context.Context, r *Run, conversation string, o *order, fn effectFunc) (*fence.Call, error) {
	v, err := k.ledger.Look(ctx, conversation, fence.EffectRow(o.ref.ID))
	if err != nil {
		return nil, err
	}
	first := &Call{Number: 1, IdempotencyKey: idempotencyKey(o.ref.ID), Effect: o.ref}
	var value kept
	var failed error
	if v.Rows[fence.EffectRow(o.ref.ID)] == nil {
		value, failed = fn(context.WithoutCancel(ctx), first)
	}
	a, err := k.claim(ctx, r, conversation, o)
	if err != nil {
		return nil, err
	}
	if a.replay != nil {
		return a.replay, nil
	}
	return a.record(ctx, first, value, failed)
}

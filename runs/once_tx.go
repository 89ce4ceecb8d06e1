package runs

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// ErrNoJoin is in the error of an OnceTx or CompleteTx whose ledger can never write in that
// transaction: one in memory or on Redis, a tx of another database, something that is none.
var ErrNoJoin = ledger.ErrNoJoin

// OnceTx is [Run.Once] for an effect that is itself a write in the ledger's own database, made
// in tx: the effect and its record commit together or not at all, so it happens exactly once
// (promise S11.6). tx is what the ledger works with: pgx.Tx or *sql.Tx. fn makes its writes in
// the same tx; whatever it does outside is not protected.
//
// The rules decide as for Once. nil means that fn's writes and their record are in tx now, or that
// it was done before and fn was not called. After any error roll tx back: no outcome is ever
// unknown here, and nothing of it is kept. With.Wait, Timeout and ClaimDeadline mean nothing in a
// transaction; Wait is refused. Two transactions that are the first on a new conversation cannot wait
// for each other: one gets an error of the ledger at its end, and is to be made again.
//
// From OnceTx on the conversation is locked until tx ends: end it soon, and do nothing else with
// this library on the conversation before, but OnceTx and CompleteTx in the same tx. OnceTx
// changes no setting of tx. Observers are told of refusals and replays only, since nobody tells
// this library whether tx was committed; of an end by CompleteTx they are told once the handler has
// returned.
func (r *Run) OnceTx(ctx context.Context, tx any, e Effect, fn func(ctx context.Context, call *Call) error) error {
	if r == nil {
		return noRun(EffectRef{Intent: e.Intent})
	}
	return r.k.onceTxNoValue(ctx, r, tx, r.job.Conversation, e, fn)
}

// OnceTx is Run.OnceTx without a job: see [Keeper.Once].
func (k *Keeper) OnceTx(ctx context.Context, tx any, conversation string, e Effect, fn func(ctx context.Context, call *Call) error) error {
	return k.onceTxNoValue(ctx, nil, tx, conversation, e, fn)
}

// OnceTx is [Run.OnceTx] with a result that is kept, for the run in ctx.
func (in Intent[T]) OnceTx(ctx context.Context, tx any, k EffectKey, fn func(ctx context.Context, call *Call) (T, error), with ...With) (T, error) {
	r := FromContext(ctx)
	if r == nil {
		var none T
		return none, noRun(EffectRef{Intent: in.Name})
	}
	return in.run(r.k, r.job.Conversation, k, fn, with, func(o *order, fn effectFunc) (*fence.Call, error) {
		return r.k.onceTx(ctx, r, tx, r.job.Conversation, o, fn)
	})
}

// OnceTxOn is OnceTx without a job: see [Intent.OnceOn].
func (in Intent[T]) OnceTxOn(ctx context.Context, keeper *Keeper, tx any, conversation string, k EffectKey, fn func(ctx context.Context, call *Call) (T, error), with ...With) (T, error) {
	return in.run(keeper, conversation, k, fn, with, func(o *order, fn effectFunc) (*fence.Call, error) {
		return keeper.onceTx(ctx, nil, tx, conversation, o, fn)
	})
}

// CompleteTx ends the run with success inside tx: what the job wrote there, and that it is done,
// commit together. The handler is to commit tx and return nil.
//
// It is refused, with a *RefusedError, as End is refused (rule S10.1): a delivery that was
// replaced completes nothing, nor does a run that owns an unresolved effect. After an error roll
// tx back.
func (r *Run) CompleteTx(ctx context.Context, tx any) error {
	if r == nil {
		return noRun(EffectRef{})
	}
	if err := r.k.open(); err != nil {
		return err
	}
	j, err := r.k.ledger.Join(ctx, tx, r.job.Conversation)
	if err != nil {
		return r.k.noJoin(ctx, r.job, "complete", err)
	}
	v, events, now, err := j.End(ctx, r.h, fence.EndSuccess)
	if err == nil && v.Refusal == nil {
		err = j.Flush(ctx)
	}
	if err != nil {
		return r.k.failed(ctx, r.job, "complete", err)
	}
	if v.Refusal == nil {
		r.mu.Lock()
		r.untold = events // if the run is found ended when the handler has returned
		r.mu.Unlock()
	}
	return r.judged(v.Refusal, now)
}

func (k *Keeper) onceTxNoValue(ctx context.Context, r *Run, tx any, conversation string, e Effect, fn func(ctx context.Context, call *Call) error) error {
	if fn == nil {
		return noFunc(e.Intent)
	}
	o, err := k.prepare(conversation, k.traitsOf(e.Intent), e.Key, e.with())
	if err != nil {
		return err
	}
	_, err = k.onceTx(ctx, r, tx, conversation, o, func(ctx context.Context, call *Call) (kept, error) {
		return kept{}, fn(ctx, call)
	})
	return err
}

// onceTx claims, calls and settles in tx. Only the last write touches it, so that a refusal, and an
// effect that fails, leave it as it was but for the lock and what fn wrote.
func (k *Keeper) onceTx(ctx context.Context, r *Run, tx any, conversation string, o *order, fn effectFunc) (*fence.Call, error) {
	if o.wait > 0 {
		return nil, fmt.Errorf("fencedrun: %s: Wait in a transaction: whoever is waited for could never settle, this transaction locks the conversation", o.ref.Intent)
	}
	if err := k.open(); err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	job := jobOf(r, conversation)
	j, err := k.ledger.Join(ctx, tx, conversation)
	if err != nil {
		return nil, k.noJoin(ctx, job, "claim", err)
	}
	var h *ledger.Handle
	if r != nil {
		if refusal := r.may(); refusal != nil {
			a, err := k.onlyReplay(ctx, r, o, refusal, j.Look)
			if err != nil {
				return nil, err
			}
			return a.replay, nil
		}
		h = r.h
	}
	q := o.request
	q.Claim = k.seam.NewID()
	v, now, err := j.Claim(ctx, h, q)
	switch {
	case err != nil:
		return nil, k.failed(ctx, job, "claim", err)
	case v.Refusal != nil:
		refused := k.refused(v.Refusal, o.ref, now)
		if r != nil {
			r.refused(refused)
		}
		return nil, refused
	case v.Replay != nil:
		return v.Replay, nil
	}
	var lost <-chan struct{}
	if r != nil {
		lost = r.lost
	}
	call := newCall(o, v.Call, lost)
	value, err := fn(ctx, call)
	if err != nil {
		return nil, err
	}
	_, _, err = j.Settle(ctx, h, fence.SettleRequest{
		Effect: o.ref.ID, Claim: q.Claim, State: fence.Committed, Result: value.result, NoValue: value.noValue,
		Reference: referenceOf(call.getReference()), Granted: v.Effect,
	})
	if err == nil {
		err = j.Flush(ctx)
	}
	if err != nil {
		return nil, k.failed(ctx, job, "settle", err)
	}
	return nil, nil
}

// noJoin tells a mistake in the program from a ledger that is away.
func (k *Keeper) noJoin(ctx context.Context, job Job, verb string, err error) error {
	if errors.Is(err, ErrNoJoin) {
		return fmt.Errorf("fencedrun: %s in a transaction: %w", verb, err)
	}
	return k.failed(ctx, job, verb, err)
}

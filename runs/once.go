package runs

import (
	"context"
	"errors"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Once calls fn at most once for this effect on the run's conversation: see [Intent.Once],
// which also keeps a value. nil means that it is done, now or earlier; whether fn was called
// tells which.
func (r *Run) Once(ctx context.Context, e Effect, fn func(ctx context.Context, call *Call) error) error {
	if r == nil {
		return noRun(EffectRef{Intent: e.Intent})
	}
	return r.k.onceNoValue(ctx, r, r.job.Conversation, e, fn)
}

// Once is Run.Once without a job, for cron scripts and HTTP handlers: every run sees the
// effect as somebody else's write (rule S5, without a job).
func (k *Keeper) Once(ctx context.Context, conversation string, e Effect, fn func(ctx context.Context, call *Call) error) error {
	return k.onceNoValue(ctx, nil, conversation, e, fn)
}

func (k *Keeper) onceNoValue(ctx context.Context, r *Run, conversation string, e Effect, fn func(ctx context.Context, call *Call) error) error {
	o, err := k.prepare(conversation, traitsOf(e.Intent), e.Key, e.with())
	if err != nil {
		return err
	}
	_, err = k.once(ctx, r, conversation, o, func(ctx context.Context, call *Call) (kept, error) {
		return kept{}, fn(ctx, call)
	})
	return err
}

// once claims, calls and settles one effect. It returns the committed call when the effect
// was done before, nil when it was done now.
func (k *Keeper) once(ctx context.Context, r *Run, conversation string, o *order, fn func(context.Context, *Call) (kept, error)) (*fence.Call, error) {
	a, err := k.claim(ctx, r, conversation, o)
	if err != nil {
		return nil, err
	}
	if a.replay != nil {
		return a.replay, nil
	}
	return nil, a.run(ctx, fn)
}

// attempt is a call that was granted, or found done.
type attempt struct {
	k            *Keeper
	r            *Run // nil without a job
	conversation string
	o            *order
	sent         time.Time // when the claim was asked for, by the process's clock
	granted      *fence.Effect
	call         *fence.Call
	replay       *fence.Call
	left         time.Duration // until the claim's deadline, by the ledger's clock
}

// claim asks for the right to call the effect, waiting for one in flight if the caller said
// so (rule S5.1). No connection is held between the questions.
func (k *Keeper) claim(ctx context.Context, r *Run, conversation string, o *order) (*attempt, error) {
	if err := k.open(); err != nil {
		return nil, err
	}
	started := k.seam.Now()
	pause := k.config.PollMin
	for {
		a, err := k.ask(ctx, r, conversation, o)
		if o.wait == 0 || !errors.Is(err, ErrInFlight) {
			return a, err
		}
		left := o.wait - k.seam.Now().Sub(started)
		if left <= 0 {
			refused := asRefused(err)
			refused.Reason = fence.ReasonWaitTimeout
			return nil, refused
		}
		if cause := k.seam.Sleep(ctx, min(left, pause/2+k.seam.Jitter(pause))); cause != nil {
			return nil, cause
		}
		pause = min(2*pause, k.config.PollMax)
	}
}

// ask asks once.
func (k *Keeper) ask(ctx context.Context, r *Run, conversation string, o *order) (*attempt, error) {
	if r != nil {
		if over, loss := r.state(); over || loss != nil {
			return k.onlyReplay(ctx, r, conversation, o, loss)
		}
	}
	// Before the claim, a done ctx means: no claim (rule S6.2).
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	a := &attempt{k: k, r: r, conversation: conversation, o: o, sent: k.seam.Now()}
	q := o.request
	q.Claim = k.seam.NewID()
	var v fence.ClaimVerdict
	var now fence.Millis
	var err error
	if r != nil {
		v, now, err = r.h.Claim(ctx, q)
	} else {
		v, now, err = k.ledger.Claim(ctx, conversation, q)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
			return nil, cause
		}
		return nil, k.storeError(ctx, jobOf(r, conversation), "claim", err)
	}
	switch {
	case v.Refusal != nil:
		refused := k.refused(v.Refusal, o.ref, now)
		if r != nil {
			r.refused(refused)
		}
		return nil, refused
	case v.Replay != nil:
		a.replay = v.Replay
		return a, nil
	}
	a.granted, a.call = v.Effect, v.Call
	a.left = (v.Call.Deadline - now).Duration()
	return a, nil
}

func jobOf(r *Run, conversation string) Job {
	if r == nil {
		return Job{Conversation: conversation}
	}
	return r.job
}

// refused keeps what a refusal tells about the run itself.
func (r *Run) refused(e *RefusedError) {
	switch {
	case isLoss(e) && e.Refusal.Reason != fence.ReasonBusy:
		r.lose(e)
	case e.Refusal.Unknown:
		r.noteUnknown()
	}
}

// onlyReplay answers a run that may no longer claim: its handler has returned, or it lost its
// lease. What was done is still replayed (rules S5.1, S9.4, S10.2).
func (k *Keeper) onlyReplay(ctx context.Context, r *Run, conversation string, o *order, loss *RefusedError) (*attempt, error) {
	refusal := localRefusal(fence.ReasonEnded, o.ref)
	if loss != nil {
		copied := *loss
		copied.Effect = o.ref
		refusal = &copied
	}
	v, err := k.ledger.Look(context.WithoutCancel(ctx), conversation, fence.EffectRow(o.ref.ID))
	if err != nil {
		return nil, k.storeError(ctx, r.job, "claim", err)
	}
	e, _ := v.Rows[fence.EffectRow(o.ref.ID)].(*fence.Effect)
	if e == nil || e.State() != fence.Committed {
		return nil, refusal
	}
	call := e.Deciding()
	if call.Params != "" && o.request.Params != "" && call.Params != o.request.Params {
		return nil, refusal
	}
	return &attempt{k: k, r: r, conversation: conversation, o: o, replay: call}, nil
}

// run calls the effect and records what became of it.
func (a *attempt) run(ctx context.Context, fn func(context.Context, *Call) (kept, error)) error {
	k := a.k
	// The deadline counts from before the claim was sent: the process may have slept
	// (rule S6.3).
	left := min(a.left, a.o.claim-k.seam.Now().Sub(a.sent))
	if left < a.o.timeout && !k.seam.Off.Has(sabotage.LateStartCalls) {
		err := a.settle(ctx, fence.SettleRequest{State: fence.Failed, NotStarted: true, Error: ErrNotStarted.Error()})
		return a.outcome(OutcomeFailed, ErrNotStarted, err)
	}
	call := newCall(a.o, a.call, a.lost())
	value, err := a.perform(ctx, call, fn)
	q := fence.SettleRequest{State: fence.Committed, Result: value.result, NoValue: value.noValue, Reference: call.getReference()}
	if err == nil {
		if k.seam.Off.Has(sabotage.BigResultFails) && value.noValue {
			q.State = fence.Failed
		}
		if err := a.settle(ctx, q); err != nil {
			return a.outcome(OutcomeNotRecorded, err, err)
		}
		return nil
	}
	outcome := OutcomeAmbiguous
	q.State, q.Error = fence.Ambiguous, err.Error()
	if notApplied(err, a.o.traits.classify) || k.seam.Off.Has(sabotage.TimeoutMeansFailed) {
		outcome, q.State = OutcomeFailed, fence.Failed
	} else if a.r != nil {
		a.r.noteUnknown()
	}
	return a.outcome(outcome, err, a.settle(ctx, q))
}

func (a *attempt) lost() <-chan struct{} {
	if a.r == nil {
		return nil
	}
	return a.r.lost
}

// perform runs fn on a ctx that is detached from the handler's cancellation and has the
// effect's timeout. A panic or Goexit makes the outcome unknown at once, and passes through
// unchanged (rule S2.2).
func (a *attempt) perform(ctx context.Context, call *Call, fn func(context.Context, *Call) (kept, error)) (value kept, err error) {
	effectCtx, cancel := a.k.seam.WithTimeout(context.WithoutCancel(ctx), a.o.timeout)
	defer cancel()
	returned := false
	defer func() {
		if returned {
			return
		}
		if a.r != nil {
			a.r.noteUnknown()
		}
		_ = a.settle(ctx, fence.SettleRequest{
			State: fence.Ambiguous, Reference: call.getReference(), Error: "the effect panicked or left its goroutine",
		})
	}()
	value, err = fn(effectCtx, call)
	returned = true
	return value, err
}

func (a *attempt) outcome(o Outcome, cause, unrecorded error) error {
	return &OutcomeError{Outcome: o, Effect: a.o.ref, Call: a.call.Number, Recorded: unrecorded == nil, Err: cause}
}

// settle records an outcome, on a ctx that is detached from the handler's and bounded (rule
// S7.1). It keeps trying until the bound.
func (a *attempt) settle(ctx context.Context, q fence.SettleRequest) error {
	k := a.k
	q.Effect, q.Claim, q.Granted = a.o.ref.ID, a.call.Claim, a.granted
	settleCtx, cancel := k.settleCtx(ctx)
	if k.seam.Off.Has(sabotage.SettleByHandlerCtx) {
		settleCtx = ctx
	}
	defer cancel()
	var err error
	for pause := k.config.PollMin; ; pause = min(2*pause, k.config.PollMax) {
		if a.r != nil {
			_, _, err = a.r.h.Settle(settleCtx, q)
		} else {
			_, _, err = k.ledger.Settle(settleCtx, a.conversation, q)
		}
		if err == nil {
			return nil
		}
		if k.seam.Sleep(settleCtx, pause/2+k.seam.Jitter(pause)) != nil {
			break
		}
	}
	err = k.storeError(settleCtx, jobOf(a.r, a.conversation), "settle", err)
	k.tell(settleCtx, Event{
		Kind: fence.EventNotRecorded, Conversation: a.conversation, Run: a.call.Run, Delivery: a.call.Delivery.Number,
		Effect: a.o.ref, Call: a.call.Number, Text: string(q.State), Err: err,
	})
	return err
}

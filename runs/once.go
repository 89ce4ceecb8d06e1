package runs

import (
	"context"
	"fmt"
	"slices"
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
	if fn == nil {
		return noFunc(e.Intent)
	}
	o, err := k.prepare(conversation, k.traitsOf(e.Intent), e.Key, e.with())
	if err != nil {
		return err
	}
	_, err = k.once(ctx, r, conversation, o, func(ctx context.Context, call *Call) (kept, error) {
		return kept{}, fn(ctx, call)
	})
	return err
}

func noFunc(intent string) error { return fmt.Errorf("fencedrun: %s: fn is nil", intent) }

// effectFunc calls the effect and encodes what it returned.
type effectFunc func(ctx context.Context, call *Call) (kept, error)

// once claims, calls and settles one effect. It returns the committed call when the effect
// was done before, nil when it was done now.
func (k *Keeper) once(ctx context.Context, r *Run, conversation string, o *order, fn effectFunc) (*fence.Call, error) {
	k.enter() // its goroutine may outlive its handler
	defer k.exit()
	if k.seam.Off.Has(sabotage.ClaimNotDurable) {
		return k.onceUndurably(ctx, r, conversation, o, fn)
	}
	a, err := k.claim(ctx, r, conversation, o)
	if err != nil {
		return nil, err
	}
	if a.replay != nil {
		return a.replay, nil
	}
	return a.run(ctx, fn)
}

// claim asks for the right to call the effect, waiting for one in flight if the caller said
// so (rule S5.1). No connection is held between the questions.
func (k *Keeper) claim(ctx context.Context, r *Run, conversation string, o *order) (*attempt, error) {
	if err := k.open(); err != nil {
		return nil, err
	}
	started := k.seam.Now()
	for pause := k.config.PollMin; ; pause = min(2*pause, k.config.PollMax) {
		a, err := k.ask(ctx, r, conversation, o)
		refused := asRefused(err)
		if !o.request.Probed {
			if o.request.Probed = k.probeFor(ctx, conversation, refused, &o.traits).known; o.request.Probed {
				before := refused
				a, err = k.ask(ctx, r, conversation, o)
				refused = asRefused(err)
				refused.waitAs(before)
			}
		}
		if refused == nil || refused.Reason != fence.ReasonInFlight || o.wait == 0 {
			return a, err
		}
		left := o.wait - k.seam.Now().Sub(started)
		if left <= 0 {
			refused.Reason = fence.ReasonWaitTimeout
			return nil, refused
		}
		if cause := k.seam.Sleep(ctx, min(left, pause/2+k.seam.Jitter(pause))); cause != nil {
			return nil, cause
		}
	}
}

// ask asks once.
func (k *Keeper) ask(ctx context.Context, r *Run, conversation string, o *order) (*attempt, error) {
	if r != nil {
		if refusal := r.may(); refusal != nil {
			return k.onlyReplay(ctx, r, o, refusal, func(ctx context.Context, keys ...string) (fence.View, error) {
				return k.ledger.Look(ctx, r.job.Conversation, keys...)
			})
		}
	}
	// Before the claim, a done ctx means: no claim (rule S6.2).
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
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
	switch {
	case err != nil:
		k.unclaim(ctx, r, conversation, q)
		return nil, k.failed(ctx, jobOf(r, conversation), "claim", err)
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

// unclaim takes a claim back whose question got no answer: it may have been written, and the
// call was certainly not made. If the ledger cannot be asked, the claim lapses.
func (k *Keeper) unclaim(ctx context.Context, r *Run, conversation string, q fence.ClaimRequest) {
	ctx, cancel := k.settleCtx(ctx)
	defer cancel()
	settle := fence.SettleRequest{
		Effect: q.Effect, Claim: q.Claim, State: fence.Failed, NotStarted: true, Error: "the claim could not be confirmed, so nothing was called",
	}
	if _, _, err := k.ledger.Settle(ctx, conversation, settle); err != nil {
		if ctx.Err() != nil {
			r.noteAway()
		}
		_ = k.storeError(ctx, jobOf(r, conversation), "settle", err)
	}
}

// onlyReplay answers a run that may no longer claim: its handler has returned, or it lost its
// right to write. What was done is still replayed (rules S5.1, S9.4, S10.2). Where a replay
// would be refused the run is told of its own loss instead, which is the stronger reason.
func (k *Keeper) onlyReplay(ctx context.Context, r *Run, o *order, why *RefusedError,
	look func(context.Context, ...string) (fence.View, error),
) (*attempt, error) {
	refusal := *why
	refusal.Effect = o.ref
	ctx, cancel := k.settleCtx(ctx)
	defer cancel()
	v, err := look(ctx, fence.EffectRow(o.ref.ID))
	if err != nil {
		return nil, k.storeError(ctx, r.job, "claim", err)
	}
	event := Event{
		Kind: fence.EventRefused, Conversation: r.job.Conversation, Run: r.job.key(), Delivery: r.Delivery(),
		Effect: o.ref, Reason: refusal.Reason,
	}
	e, _ := v.Rows[fence.EffectRow(o.ref.ID)].(*fence.Effect)
	if e == nil || e.State() != fence.Committed || !covers(e.Deciding(), &o.request) {
		k.tell(ctx, event)
		return nil, &refusal
	}
	call := e.Deciding()
	event.Kind, event.Reason, event.Call = fence.EventReplayed, "", call.Number
	k.tell(ctx, event)
	return &attempt{replay: call}, nil
}

// covers reports whether a committed call is certainly what the request asks for.
func covers(call *fence.Call, q *fence.ClaimRequest) bool {
	if call.Params != "" && q.Params != "" && call.Params != q.Params {
		return false
	}
	if len(call.Answers) == 0 {
		return true
	}
	return !slices.ContainsFunc(q.Answers, func(id string) bool { return !slices.Contains(call.Answers, id) })
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
	left         time.Duration // until the claim's deadline, by the ledger's clock, when it was granted
}

// inTime is rule S6.3: the claim's deadline counts from before it was sent, by either clock,
// because the process may have slept. It reports whether needs is left.
func (a *attempt) inTime(needs time.Duration) bool {
	left := min(a.left, a.o.claim-a.k.seam.Now().Sub(a.sent))
	return left >= needs || a.k.seam.Off.Has(sabotage.LateStartCalls)
}

// notStarted settles a call that came too late to be made.
func (a *attempt) notStarted(ctx context.Context) error {
	_, err := a.settle(ctx, fence.SettleRequest{State: fence.Failed, NotStarted: true, Error: ErrNotStarted.Error()})
	return a.outcome(OutcomeFailed, ErrNotStarted, err)
}

func (a *attempt) outcome(o Outcome, cause, unrecorded error) error {
	return &OutcomeError{Outcome: o, Effect: a.o.ref, Call: a.call.Number, Recorded: unrecorded == nil, Err: cause}
}

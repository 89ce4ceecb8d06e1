package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger"
)

// Question is what a probe is asked: did the provider do this?
type Question struct {
	Conversation string
	Effect       EffectRef
	// IdempotencyKey is what every call of the effect was given.
	IdempotencyKey string
	// Params, Summary and Answers are the last call's, Params as canonical JSON.
	Params  string
	Summary string
	Answers []string
	// Reference is what a call has set with Call.SetReference before its outcome became unknown;
	// "" none.
	Reference string
	// Calls are all calls there were, oldest first; their times are the ledger's.
	Calls []CallRecord
	// Try counts the probes of this effect, from 1.
	Try int
}

// Since returns when the first call was claimed, by the ledger's clock: where a search at the
// provider has to begin, less what the clocks may differ.
func (q Question) Since() time.Time {
	if len(q.Calls) == 0 {
		return time.Time{} // a test of the probe alone
	}
	return q.Calls[0].At.Time()
}

// DecodeParams decodes the params of the last call into v. It is an error if the call was made
// without any.
func (q Question) DecodeParams(v any) error {
	if q.Params == "" {
		return fmt.Errorf("fencedrun: %s: the call was made without Params", q.Effect.Intent)
	}
	if err := decode([]byte(q.Params), v); err != nil {
		return fmt.Errorf("fencedrun: %s: decode the params: %w", q.Effect.Intent, err)
	}
	return nil
}

// Found is what a probe found out. The zero Found says that it cannot be told, as any error
// does.
type Found[T any] struct {
	What Finding
	// Value and Reference are for FoundApplied: what Once would have returned, and the
	// provider's name for it.
	Value     T
	Reference string
}

// Finding is what a probe found out about an effect (rule S8).
type Finding = fence.Finding

// The findings.
const (
	FoundApplied    = fence.FoundApplied
	FoundNotApplied = fence.FoundNotApplied
	FoundRejected   = fence.FoundRejected
	FoundNothing    = fence.FoundNothing
)

// Applied is what a probe returns when the provider shows the effect. reference is the
// provider's name for it, "" if it has none.
func Applied[T any](value T, reference string) Found[T] {
	return Found[T]{What: FoundApplied, Value: value, Reference: reference}
}

// NotFound is what a probe returns when the provider does not show the effect. It counts as "not
// applied" only for an intent with ReadYourWrites; for any other the outcome stays unknown.
func NotFound[T any]() Found[T] { return Found[T]{What: FoundNotApplied} }

// Rejected is what a probe returns when the provider shows that it has refused the effect, and will
// not make it any more: "declined", "bounced before it was sent". Not finding anything is NotFound.
func Rejected[T any]() Found[T] { return Found[T]{What: FoundRejected} }

// Declared is an [Intent] of any type.
type Declared interface{ traits() traits }

// probed is a Found without its type.
type probed struct {
	kept
	what      Finding
	reference string
}

// probeFunc asks a provider; limit is the most that is kept of a value.
type probeFunc func(ctx context.Context, q Question, limit int) (probed, error)

func (in Intent[T]) probe() probeFunc {
	if in.Probe == nil {
		return nil
	}
	return func(ctx context.Context, q Question, limit int) (probed, error) {
		found, err := in.Probe(ctx, q)
		if err != nil {
			return probed{}, err
		}
		p := probed{what: found.What, reference: found.Reference}
		switch found.What {
		case FoundApplied:
			p.kept = keep(found.Value, limit)
		case FoundNotApplied, FoundRejected, FoundNothing, "":
		default:
			return probed{}, fmt.Errorf("the probe found %q, which is no Finding", found.What)
		}
		return p, nil
	}
}

// prober returns the traits of an intent that can be probed: as declared to the keeper, or as
// the caller has them; nil if it cannot.
func (k *Keeper) prober(intent string, callers *traits) *traits {
	if callers != nil && callers.name == intent && callers.probe != nil {
		return callers
	}
	if t, ok := k.declared[intent]; ok && t.probe != nil {
		return &t
	}
	return nil
}

// maxInline is how many unknown outcomes one refusal has probed at most; a sweep does the rest.
const maxInline = 8

// probedFor says what came of probing what refused somebody.
type probedFor struct {
	asked  bool // a provider was
	known  bool // something is, that was unknown
	undone bool // … and did not happen
}

// probeFor probes what is unknown among the things that refused somebody. callers are the traits
// of the effect that was refused, nil if a run was. A refusal whose question somebody else is asking
// right now is made to wait for that, and one whose question has brought nothing to wait for the
// next, a few times: then its job is parked, and sweeps go on asking.
func (k *Keeper) probeFor(ctx context.Context, conversation string, refused *RefusedError, callers *traits) (p probedFor) {
	if refused == nil || !refused.unknown() || refused.RetryAfter > 0 {
		return p // nothing is unknown, or the quiet period is not over
	}
	var tried []string
	for _, c := range refused.Conflicts {
		if c.State != fence.Ambiguous || c.Report || slices.Contains(tried, c.ID) || len(tried) == maxInline {
			continue
		}
		t := k.prober(c.Intent, callers)
		if t == nil {
			continue
		}
		tried = append(tried, c.ID)
		a, err := k.probe(ctx, conversation, c.ID, t)
		if err != nil {
			break // told already; the refusal stands
		}
		p.asked, p.known = p.asked || a.asked, p.known || a.known
		p.undone = p.undone || a.known && a.state == fence.Failed
		refused.RetryAfter = max(refused.RetryAfter, a.next)
	}
	return p
}

// waitAs keeps how long what is unknown still is to be waited for, when the same was refused again
// after something else was found out.
func (e *RefusedError) waitAs(before *RefusedError) {
	if e != nil && before != nil && e.unknown() {
		e.RetryAfter = max(e.RetryAfter, before.RetryAfter)
	}
}

// probeAnswer says what came of a probe.
type probeAnswer struct {
	asked bool          // the provider was
	known bool          // the outcome is, by this or otherwise
	state State         // the effect's
	next  time.Duration // until a job that needs to know should come back; 0: not for this
}

// mostWaits is after how many probes that brought nothing a job stops coming back for the next.
const mostWaits = 3

// wait is until when a job waits that is held up by e: for whoever is asking, or for the next
// question.
func wait(e *fence.Effect, now fence.Millis) time.Duration {
	p := &e.Probing
	switch {
	case p.Nonce != "":
		return max(p.Until-now, 0).Duration()
	case p.Tries <= mostWaits:
		return max(p.Next-now, 0).Duration()
	}
	return 0
}

// probe asks the provider about one effect, if the rules let it (rule S8). An error means that
// the ledger could not be asked; one of the probe only leaves the outcome unknown. A panic of the
// probe passes through.
func (k *Keeper) probe(ctx context.Context, conversation, effect string, t *traits) (probeAnswer, error) {
	timeout := first(t.timeout, k.config.EffectTimeout)
	q := fence.ProbeRequest{
		Effect: effect, Nonce: k.seam.NewID(), By: k.config.Worker, For: fence.MillisOf(timeout + k.config.SettleTimeout),
	}
	sent := k.seam.Now()
	v, now, err := k.ledger.Probe(ctx, conversation, q)
	switch {
	case err != nil:
		return probeAnswer{}, k.failed(ctx, Job{Conversation: conversation}, "probe", err)
	case v.Effect == nil:
		return probeAnswer{known: true}, nil // gone, and nothing is unknown of it
	case !v.Granted:
		return probeAnswer{known: v.Next == 0, state: v.Effect.State(), next: wait(v.Effect, now)}, nil
	}
	// As with a claim (rule S6.3), the right to ask counts from before it was asked for: whoever
	// slept since leaves the question to others.
	left := min((v.Effect.Probing.Until - now).Duration(), q.For.Duration()-k.seam.Now().Sub(sent))
	if left < timeout && !k.seam.Off.Has(sabotage.LateProbes) {
		return k.answer(ctx, conversation, fence.ProbedRequest{
			Effect: effect, Nonce: q.Nonce, Finding: FoundNothing, Unasked: true,
		})
	}
	return k.question(ctx, conversation, v.Effect, q.Nonce, t, timeout)
}

// question puts the question that was granted, and hands in the answer.
func (k *Keeper) question(ctx context.Context, conversation string, e *fence.Effect, nonce string, t *traits, timeout time.Duration) (a probeAnswer, err error) {
	answer := fence.ProbedRequest{
		Effect: e.ID, Nonce: nonce, Finding: FoundNothing, ReadYourWrites: t.readYourWrites, By: "probe by " + k.config.Worker,
		Note: "the probe panicked or left its goroutine",
	}
	defer func() { a, err = k.answer(ctx, conversation, answer) }()
	probeCtx, cancel := k.seam.WithTimeout(ctx, timeout)
	defer cancel()
	found, failed := t.probe(probeCtx, questionOf(conversation, e), k.config.MaxResult)
	switch {
	case failed != nil:
		// Whoever asked was told to stop: the provider is not to blame.
		answer.Note, answer.Unasked = errorText(failed), ctx.Err() != nil
	case found.what == FoundApplied:
		answer.Note, answer.Finding, answer.Reference = "", FoundApplied, referenceOf(found.reference)
		answer.Result, answer.HasResult = found.result, !found.noValue
	case found.what == FoundNotApplied:
		answer.Finding, answer.Note = FoundNotApplied, ""
		if !t.readYourWrites {
			answer.Note = "it is not found, which proves nothing at a provider that does not show its writes at once"
		}
	case found.what == FoundRejected:
		answer.Finding, answer.Note = FoundRejected, "the provider shows that it refused it"
	default:
		answer.Note = "the provider could not say"
	}
	return a, err
}

// answer hands in what a probe found, for as long as recording an outcome may take.
func (k *Keeper) answer(ctx context.Context, conversation string, q fence.ProbedRequest) (probeAnswer, error) {
	settleCtx, cancel := k.settleCtx(ctx)
	defer cancel()
	var v fence.ProbedVerdict
	var now fence.Millis
	err := k.insist(settleCtx, func() (err error) {
		v, now, err = k.ledger.Probed(settleCtx, conversation, q)
		return err
	})
	if err != nil {
		return probeAnswer{}, k.storeError(context.WithoutCancel(ctx), Job{Conversation: conversation}, "probe", err)
	}
	a := probeAnswer{asked: !q.Unasked, known: v.Decided}
	if v.After != nil {
		a.state = v.After.State()
		a.next = wait(v.After, now)
	}
	return a, nil
}

func questionOf(conversation string, e *fence.Effect) Question {
	last := &e.Calls[len(e.Calls)-1]
	q := Question{
		Conversation: conversation, Effect: EffectRef{ID: e.ID, Intent: e.Intent, Key: e.Key}, IdempotencyKey: idempotencyKey(e.ID),
		Params: last.Params, Summary: last.Summary, Answers: slices.Clone(last.Answers), Calls: slices.Clone(e.Calls), Try: e.Probing.Tries,
	}
	for i := range e.Calls {
		if ref := e.Calls[i].Reference; ref != "" {
			q.Reference = ref
		}
	}
	return q
}

// Swept says what a Sweep did. Asked is the sum of Applied, NotApplied and Unknown, but for
// answers that somebody else's evidence has overtaken.
type Swept struct {
	Asked      int `json:"asked"`       // probes made
	Applied    int `json:"applied"`     // … that found the effect
	NotApplied int `json:"not_applied"` // … that found that it had not happened
	Unknown    int `json:"unknown"`     // … that could not say; the next probe comes later each time
	// NotYet are unresolved effects that are not to be probed now: in time, in their quiet
	// period, asked about a short while ago, or being asked about by somebody else.
	NotYet int `json:"not_yet"`
	// NoProbe are unknown outcomes of intents that declare no probe: they wait for a person.
	NoProbe int `json:"no_probe"`
}

// Sweep asks the providers once about every unknown outcome that is due and whose intent,
// declared in Config.Intents, has a Probe (rule S8). Schedule it: with cron, a periodic job of
// the queue; every few minutes is often enough. Any number of processes may sweep at the same
// time, and beside handlers: nobody asks about an effect that somebody else is asking about.
//
// It asks one after the other. A probe that fails, or cannot say, stops nothing: its effect comes
// again after a pause that doubles from Config.Quiet to an hour. An error says that the ledger
// could not be asked, or that ctx is done; what was found until then is recorded.
func (k *Keeper) Sweep(ctx context.Context) (Swept, error) {
	var s Swept
	if err := k.open(); err != nil {
		return s, err
	}
	k.enter()
	defer k.exit()
	if !k.probes {
		return s, errors.New("fencedrun: sweep: no intent of Config.Intents has a Probe, so nothing could be asked")
	}
	found, _, err := k.ledger.Unresolved(ctx, 0, 0)
	if err != nil {
		return s, k.failed(ctx, Job{}, "sweep", err)
	}
	var unreadable error
	for _, f := range found {
		if ctx.Err() != nil {
			return s, errors.Join(unreadable, context.Cause(ctx))
		}
		t := k.prober(f.Effect.Intent, nil)
		if t == nil {
			if f.Effect.State() == fence.Ambiguous {
				s.NoProbe++
			} else {
				s.NotYet++
			}
			continue
		}
		a, err := k.probe(ctx, f.Conversation, f.Effect.ID, t)
		switch {
		case errors.Is(err, ledger.ErrCorrupt): // this one must not keep the others waiting for ever
			unreadable = errors.Join(unreadable, fmt.Errorf("conversation %q: %w", f.Conversation, err))
			continue
		case err != nil:
			return s, errors.Join(unreadable, err)
		}
		s.count(a)
	}
	return s, unreadable
}

func (s *Swept) count(a probeAnswer) {
	switch {
	case !a.asked && !a.known:
		s.NotYet++
		return
	case !a.asked:
		return // decided since it was listed
	}
	s.Asked++
	switch {
	case a.known && a.state == fence.Committed:
		s.Applied++
	case a.known && a.state == fence.Failed:
		s.NotApplied++
	case !a.known:
		s.Unknown++
	}
}

package runs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// Effect is a side effect without a value, for [Run.Once]. Effects with a value, a classifier
// or other traits are declared as an [Intent].
type Effect struct {
	// Intent is the verb: "reply", "refund", "tag". At most 128 bytes. What Config.Intents
	// declares of it counts; of the others only "reply" answers messages.
	Intent string
	// Key is the business object: ID(message), Key("order", order, "line", 2).
	Key EffectKey

	// The rest is as in With.
	Params          any
	Summary         string
	Answers         []string
	Policy          Policy
	AfterUnresolved bool
	Wait            time.Duration
	Timeout         time.Duration
	ClaimDeadline   time.Duration
}

// With holds what is true of one call of [Intent.Once].
type With struct {
	// Params are what would make the same effect a different deal: amount, address. Any JSON
	// value without free text. They are compared, not part of the key (rule S5.1).
	Params any
	// Summary is for people, such as the text of a reply. It decides nothing and is never
	// logged.
	Summary string
	// Answers are the ids of the inbound messages that the effect answers; only for an
	// answering intent (rule S5.4).
	Answers []string
	// Policy says which changes of the conversation refuse the effect. Defaults to
	// AnyChange.
	Policy Policy
	// AfterUnresolved lets the effect pass although another of the same intent is
	// unresolved (rule S5.3). Say it only when the two cannot be the same deal.
	AfterUnresolved bool
	// Wait is how long to wait for the result when the effect is in flight elsewhere.
	// Defaults to 0: not at all.
	Wait time.Duration
	// Timeout is how long the effect may run before its ctx is done, ClaimDeadline when a
	// claim whose outcome nobody recorded becomes unknown; the latter must be longer and
	// defaults to twice the former. Both default to the intent's, then to the keeper's.
	Timeout       time.Duration
	ClaimDeadline time.Duration
}

func (e Effect) with() With {
	return With{
		Params: e.Params, Summary: e.Summary, Answers: e.Answers, Policy: e.Policy, AfterUnresolved: e.AfterUnresolved,
		Wait: e.Wait, Timeout: e.Timeout, ClaimDeadline: e.ClaimDeadline,
	}
}

// traits is what is true of every effect of an intent, without its type.
type traits struct {
	name          string
	answering     bool
	distinct      bool
	repeatable    bool
	forever       bool
	honoursKey    time.Duration
	maxCalls      int
	timeout       time.Duration
	claimDeadline time.Duration
	classify      func(error) bool
	probe         probeFunc // nil: none

	readYourWrites bool
}

// traitsOf returns the traits of an intent by its name: as it was declared to the keeper, else
// those of one that says nothing.
func (k *Keeper) traitsOf(intent string) traits {
	if t, ok := k.declared[intent]; ok {
		return t
	}
	return traits{name: intent, answering: intent == "reply"}
}

// order is a checked request for one effect.
type order struct {
	ref     EffectRef
	traits  traits
	request fence.ClaimRequest
	wait    time.Duration
	timeout time.Duration // of the effect
	claim   time.Duration // the claim's deadline
}

// keyMargin is the part of a provider's key window that is not used, at least the effect's timeout:
// clocks differ, and calls take time.
const keyMargin = 10

// prepare checks an effect and builds its request. Nothing is written for bad input.
func (k *Keeper) prepare(conversation string, t traits, effectKey EffectKey, w With) (*order, error) {
	if err := key.ValidateName("conversation", conversation, key.MaxConversation); err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := effectKey.Err(); err != nil {
		return nil, err // names the part of the key
	}
	if err := w.check(t); err != nil {
		return nil, err
	}
	params := ""
	if w.Params != nil {
		canonical, err := key.CanonicalValue(w.Params)
		if err != nil {
			return nil, fmt.Errorf("fencedrun: %s: Params: %w", t.name, inner(err))
		}
		params = string(canonical)
	}
	o := &order{traits: t, wait: w.Wait}
	if err := o.times(&k.config, t, w); err != nil {
		return nil, err
	}
	id := key.EffectID(k.config.Namespace, conversation, t.name, effectKey)
	o.ref = EffectRef{ID: id, Intent: t.name, Key: effectKey.Canonical()}
	single, _ := effectKey.SingleID()
	o.request = fence.ClaimRequest{
		Effect: id, Intent: t.name, Key: effectKey.Canonical(), KeyID: single, Params: params, Summary: clean(w.Summary),
		Answers: slices.Clone(w.Answers), By: k.config.Worker, Answering: t.answering, Distinct: t.distinct,
		Repeatable: t.repeatable, Forever: t.forever, MaxCalls: t.maxCalls, Policy: w.Policy,
		AfterUnresolved: w.AfterUnresolved, KeyWindow: fence.MillisOf(max(0, t.honoursKey-max(t.honoursKey/keyMargin, o.timeout))),
		For: fence.MillisOf(o.claim),
	}
	return o, nil
}

// check checks what an intent declares.
func (t *traits) check() error {
	if err := key.ValidateName("Intent", t.name, key.MaxIntent); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"HonoursKey", t.honoursKey < 0}, {"MaxCalls", t.maxCalls < 0},
		{"Timeout", t.timeout < 0}, {"ClaimDeadline", t.claimDeadline < 0},
	} {
		if f.bad {
			return fmt.Errorf("fencedrun: %s: Intent.%s is negative", t.name, f.name)
		}
	}
	if t.readYourWrites && t.probe == nil {
		return fmt.Errorf("fencedrun: %s: Intent.ReadYourWrites is said of a Probe, and there is none", t.name)
	}
	return nil
}

// check checks what is said of one call.
func (w *With) check(t traits) error {
	if len(w.Answers) > 0 && !t.answering {
		return fmt.Errorf("fencedrun: %s: Answers: the intent does not answer messages; what it is about belongs into its key, or declare it with Intent.Answering", t.name)
	}
	if err := checkIDs("Answers", w.Answers); err != nil {
		return err
	}
	switch w.Policy {
	case "", AnyChange, SameIntent, NoChange:
	default:
		return fmt.Errorf("fencedrun: %s: Policy is %q, not AnyChange, SameIntent or NoChange", t.name, w.Policy)
	}
	for _, f := range []struct {
		name string
		v    time.Duration
	}{{"Wait", w.Wait}, {"Timeout", w.Timeout}, {"ClaimDeadline", w.ClaimDeadline}} {
		if f.v < 0 {
			return fmt.Errorf("fencedrun: %s: %s is negative: %v", t.name, f.name, f.v)
		}
	}
	return nil
}

// times fills in how long the call and its claim may take: as the call says, else the intent,
// else the keeper.
func (o *order) times(c *Config, t traits, w With) error {
	o.timeout = first(w.Timeout, t.timeout, c.EffectTimeout)
	o.claim = first(w.ClaimDeadline, t.claimDeadline)
	switch {
	case o.claim > 0:
	case w.Timeout == 0 && t.timeout == 0:
		o.claim = c.ClaimDeadline
	default:
		o.claim = 2 * o.timeout
	}
	if t.honoursKey > 0 && t.honoursKey <= o.timeout {
		return fmt.Errorf("fencedrun: %s: HonoursKey (%v) must be longer than Timeout (%v): a call may take that long to reach the provider", t.name, t.honoursKey, o.timeout)
	}
	if o.claim <= o.timeout {
		return fmt.Errorf("fencedrun: %s: ClaimDeadline (%v) must be longer than Timeout (%v)", t.name, o.claim, o.timeout)
	}
	return nil
}

// inner takes a package's own prefix off an error that is wrapped anew.
func inner(err error) error {
	if wrapped := errors.Unwrap(err); wrapped != nil {
		return wrapped
	}
	return err
}

func first(durations ...time.Duration) time.Duration {
	for _, d := range durations {
		if d > 0 {
			return d
		}
	}
	return 0
}

package fence

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// ClaimRequest asks whether an effect may be called now (rule S5).
type ClaimRequest struct {
	Identity
	// Delivery asks; nil is a write without a job (keeper.Once): S5.2 and the landed part of
	// S5.3 do not apply then.
	Delivery *Delivery

	Effect  string // id: what namespace, conversation, intent and key hash to
	Intent  string
	Key     string // canonical JSON
	KeyID   string // the key when it is a single string, else ""
	Params  string // canonical JSON, "" not given
	Summary string
	Answers []string
	By      string // the worker

	// What is true of every effect of the intent.
	Answering  bool
	Distinct   bool
	Repeatable bool
	Forever    bool
	MaxCalls   int    // 0: the rules' default
	KeyWindow  Millis // how long the provider honours the idempotency key, margin taken off

	Policy          Policy
	AfterUnresolved bool

	// Probed says that it is asked again because a probe has decided something: a refusal for the
	// same as before is no second one.
	Probed bool

	Claim string // drawn before deciding, so that a lost answer can be recognised (rule S5.7)
	For   Millis // the claim's deadline counts from now
}

// ClaimVerdict answers a ClaimRequest. Exactly one of Call, Replay and Refusal is set.
type ClaimVerdict struct {
	// Call is granted: the effect is to be called, while Call is pending and in time.
	Call *Call
	// Effect is the effect's record as it now is; nil for a refusal without one.
	Effect *Effect
	// Replay is the committed call whose result is to be given.
	Replay  *Call
	Refusal *Refusal
	// Delivery is the asking delivery with what it learned; nil without a job.
	Delivery *Delivery
}

// Claim decides rule S5: it grants a call, gives a stored result, or refuses and says why.
func (r Rules) Claim(v View, q ClaimRequest) (ClaimVerdict, Change) {
	c := &claim{q: q, answers: answersOf(q)}
	s := r.start(&c.step, v, q.Identity)
	if q.Delivery != nil {
		d := *q.Delivery
		d.Twice = d.Twice && !q.Probed // the refusal that made it so was about what is known now
		c.d = &d
	}
	c.effect, _ = s.lookEffect(q.Effect)
	if !s.needs.Empty() {
		return ClaimVerdict{}, s.done()
	}
	order := [...]int{1, 2, 3, 4, 6}
	if c.effect != nil && s.isOff(sabotage.RightsBeforeReplay) {
		order[0], order[1] = 2, 1
	}
	for _, number := range order {
		if verdict := c.rule(number); verdict != nil {
			verdict.Delivery = c.d
			return *verdict, s.idle()
		}
		if !s.needs.Empty() {
			return ClaimVerdict{}, s.done()
		}
	}
	verdict := c.grant()
	verdict.Delivery = c.d
	return verdict, s.done()
}

// rule applies one of the rules S5.1 to S5.6; nil: it has no objection.
func (c *claim) rule(number int) *ClaimVerdict {
	switch number {
	case 1:
		return c.own()
	case 2:
		return c.right()
	case 3:
		return c.unchanged()
	case 4:
		return c.unanswered()
	default:
		return c.within()
	}
}

// claim is a ClaimRequest being decided.
type claim struct {
	step
	q       ClaimRequest
	d       *Delivery // a copy, or nil
	effect  *Effect   // nil: no record
	answers []string  // named, or given by the key
}

// answersOf returns the inbound ids that the effect answers: those named, or for an answering
// intent that names none and has a single string as key, that string (rule S5.4).
func answersOf(q ClaimRequest) []string {
	if len(q.Answers) > 0 || !q.Answering || q.KeyID == "" {
		return q.Answers
	}
	return []string{q.KeyID}
}

func (c *claim) refuse(ref *Refusal) *ClaimVerdict {
	c.event(c.asking(Event{Kind: EventRefused, Effect: c.q.Effect, Intent: c.q.Intent, Key: c.q.Key, Reason: ref.Reason}))
	return &ClaimVerdict{Refusal: ref, Effect: c.effect}
}

// asking adds to an event who asks.
func (c *claim) asking(e Event) Event {
	if c.d != nil {
		e.Run, e.Delivery = c.d.Run, c.d.ID.Number
	}
	return e
}

// wait remembers a pending claim that refused this delivery (rule S4.6).
func (c *claim) wait(claims ...string) {
	if c.d == nil {
		return
	}
	for _, id := range claims {
		if !slices.Contains(c.d.Waits, id) {
			c.d.Waits = append(slices.Clip(c.d.Waits), id)
		}
	}
}

// twice notes a refusal; the same one a second time, with no CatchUp between, parks the job
// (rule S5, catching up).
func (c *claim) twice(ref *Refusal, parts ...string) {
	if c.d == nil {
		return
	}
	sig := signature(string(ref.Reason), c.q.Intent, parts)
	// A handler that goes on after a refusal is refused for several things in turn.
	before := strings.Fields(c.d.Refused)
	if slices.Contains(before, sig) {
		c.d.Twice = c.d.Twice || !c.q.Probed && !c.isOff(sabotage.RefusedForEver)
	} else {
		c.d.Refused = strings.Join(append(before[max(0, len(before)+1-maxRefused):], sig), " ")
	}
	ref.Twice = c.d.Twice
}

// maxRefused is how many different refusals a run remembers.
const maxRefused = 64

// signature stands for what a refusal was about. It is short, because a run keeps many.
func signature(reason, intent string, parts []string) string {
	h := fnv.New64a()
	for _, part := range append([]string{reason, intent}, parts...) {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		_, _ = h.Write([]byte(part))
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// within is rule S5.6: calls that reached the provider and did not apply are limited.
func (c *claim) within() *ClaimVerdict {
	if c.effect == nil {
		return nil
	}
	limit := c.MaxCalls
	if c.q.MaxCalls > 0 {
		limit = c.q.MaxCalls
	}
	limit += c.effect.Grants
	if c.d != nil {
		if run := c.lookRun(c.d.Run); run != nil {
			limit += run.Grants
		}
	}
	reached := 0
	for i := range c.effect.Calls {
		if call := &c.effect.Calls[i]; call.State == Failed && (!call.NotStarted || c.isOff(sabotage.NotStartedCounts)) {
			reached++
		}
	}
	if reached < limit || c.isOff(sabotage.CallsUnlimited) {
		return nil
	}
	return c.refuse(&Refusal{Reason: ReasonExhausted, Conflicts: []Conflict{callConflict(c.effect, c.effect.Deciding())}})
}

// grant is rule S5.7: the claim, durable before the effect is called.
func (c *claim) grant() ClaimVerdict {
	q := c.q
	e := &Effect{ID: q.Effect, Intent: q.Intent, Key: q.Key, Retention: c.Retention, row: c.rowOf(q.Effect)}
	if c.effect != nil {
		e = c.editEffect(c.effect)
	} else {
		c.put(e)
	}
	e.Distinct, e.Forever = q.Distinct, q.Forever
	if !c.isOff(sabotage.FenceStands) {
		c.head.Fence++
	}
	call := Call{
		Number: nextNumber(e), Claim: q.Claim, Fence: c.head.Fence, State: Pending, Seq: c.seq(), At: c.now,
		Deadline: c.now + q.For, By: q.By, Summary: q.Summary, Params: q.Params,
		Named: len(q.Answers) > 0, Answers: c.answers, Again: Again{Repeatable: q.Repeatable},
	}
	if q.KeyWindow > 0 {
		// The window counts from the first claim of the effect (rule S8).
		first := c.now
		if len(e.Calls) > 0 {
			first = e.Calls[0].At
		}
		call.Again.Until = first + q.KeyWindow
	}
	if c.d != nil {
		call.Run, call.Delivery = c.d.Run, c.d.ID
	}
	e.Calls = append(e.Calls, call)
	c.resolveHead(e)
	c.change.Durable = true
	c.callEvent(EventClaimed, e, &call, "")
	return ClaimVerdict{Call: &e.Calls[len(e.Calls)-1], Effect: e}
}

// nextNumber is one more than the last call's, which is not their count where a record was lost.
func nextNumber(e *Effect) int {
	if len(e.Calls) == 0 {
		return 1
	}
	return e.Calls[len(e.Calls)-1].Number + 1
}

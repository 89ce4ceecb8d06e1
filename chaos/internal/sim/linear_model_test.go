package sim

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/fencedrun/fencedrun/fence"
)

// The model of one effect, as docs/semantics.md says it. It shares no code with package
// fence: only the words for states and reasons.

// opInput is what somebody asks of the ledger.
type opInput struct {
	verb string // "claim", "settle", "resolve", "read"; of a run: "begin", "write"
	// first marks the first try of an operation whose answer was lost and that was asked for
	// again: nobody heard what came of it, and what was heard was said later.
	first bool
	key   string // the effect, or the run
	claim string // of a claim, settle: which call; of a Begin, its nonce
	state fence.State
	value string
	yes   bool         // resolve: it happened
	at    fence.Millis // of the ledger's clock, when it was asked
	n     int64        // write: the delivery's number
}

// opOutput is what the ledger answered; nil when nobody heard.
type opOutput struct {
	at       fence.Millis // of the ledger's clock, when it was answered
	refused  fence.Reason
	number   int // claim: of the granted call
	fence    int64
	claim    string
	deadline fence.Millis
	replay   bool
	value    string // claim: of the replay; read: of the effect
	recorded bool
	double   bool
	state    fence.State // settle, read: the effect's; "" none
	early    bool        // resolve: refused
	n        int64       // begin: the delivery's number, 0 refused
}

// modelCall is one call of the model's effect.
type modelCall struct {
	claim    string
	fence    int64
	state    fence.State
	value    string
	kept     bool // the value is known
	denied   bool
	deadline fence.Millis
	landed   int // in which order it became committed
}

// modelEffect is comparable, so that the checker can tell states apart.
type modelEffect struct {
	calls  [8]modelCall
	n      int
	grants int
	landed int
}

const modelMaxCalls = 3 // rule S5.6's default

func (e modelEffect) list() []modelCall { return slices.Clone(e.calls[:e.n]) }

// state is rule S2.3.
func (e modelEffect) state() fence.State {
	has := func(s fence.State) bool {
		return slices.ContainsFunc(e.list(), func(c modelCall) bool { return c.state == s })
	}
	switch {
	case e.n == 0:
		return ""
	case has(fence.Committed):
		return fence.Committed
	case has(fence.Pending):
		return fence.Pending
	case has(fence.Ambiguous):
		return fence.Ambiguous
	}
	return fence.Failed
}

// fence is the largest fence number that is known.
func (e modelEffect) fence() int64 {
	n := int64(0)
	for _, c := range e.list() {
		n = max(n, c.fence)
	}
	return n
}

// first is the committed call that was known first: a replay never changes.
func (e modelEffect) first() modelCall {
	var found modelCall
	for _, c := range e.list() {
		if c.state == fence.Committed && (found.landed == 0 || c.landed < found.landed) {
			found = c
		}
	}
	return found
}

// lapses is rule S5.0: what the effect may be for a decision that was made at some time between
// two moments of the ledger's clock.
func (e modelEffect) lapses(from, to fence.Millis) []modelEffect {
	states := []modelEffect{e}
	for i := range e.n {
		c := e.calls[i]
		if c.state != fence.Pending || to <= c.deadline {
			continue
		}
		lapsed := e
		lapsed.calls[i].state = fence.Ambiguous
		if from > c.deadline && c.deadline > 0 {
			return []modelEffect{lapsed}
		}
		states = append(states, lapsed)
	}
	return states
}

func stepEffect(state, input, output any) []any {
	e, in := state.(modelEffect), input.(opInput)
	out, _ := output.(*opOutput)
	to := fence.Millis(1 << 50) // when it was decided at the latest
	if out != nil {
		to = out.at
	}
	if in.first {
		out = nil
	}
	var next []any
	for _, e := range e.lapses(in.at, to) {
		for _, after := range e.step(in, out, to) {
			next = append(next, after)
		}
	}
	if out == nil {
		next = append(next, e) // it may never have reached the ledger
	}
	return next
}

func (e modelEffect) step(in opInput, out *opOutput, to fence.Millis) []modelEffect {
	switch in.verb {
	case "claim":
		return e.claim(in, out)
	case "settle":
		return e.settle(in, out)
	case "resolve":
		return e.resolve(in, out, to)
	}
	if out.state == e.state() && (out.state != fence.Committed || out.value == e.first().value) {
		return []modelEffect{e}
	}
	return nil
}

// claim is rules S5.1, S5.6 and S5.7. Whether the asking run may write (S5.2 to S5.4) is not
// this model's to say: for an effect that is open it may be refused for whatever else.
func (e modelEffect) claim(in opInput, out *opOutput) []modelEffect {
	failed := 0
	for _, c := range e.list() {
		if c.state == fence.Failed {
			failed++
		}
	}
	same := func(ok bool) []modelEffect {
		if ok {
			return []modelEffect{e}
		}
		return nil
	}
	switch e.state() {
	case fence.Committed:
		return same(out == nil || out.replay && out.value == e.first().value)
	case fence.Pending:
		return e.pending(in, out)
	case fence.Ambiguous:
		return same(out == nil || out.refused == fence.ReasonAmbiguous)
	}
	if failed >= modelMaxCalls+e.grants {
		return same(out == nil || out.refused != "" && out.refused != fence.ReasonInFlight && out.refused != fence.ReasonAmbiguous)
	}
	granted := e
	if e.n == len(e.calls) {
		return nil
	}
	granted.n++
	call := &granted.calls[e.n]
	call.state, call.claim = fence.Pending, in.claim
	switch {
	case out == nil:
		return []modelEffect{e, granted} // nobody will settle it
	case out.number == 0:
		return same(!out.replay && !slices.Contains([]fence.Reason{fence.ReasonInFlight, fence.ReasonAmbiguous, fence.ReasonExhausted}, out.refused))
	case out.number != granted.n || out.fence <= e.fence():
		return nil
	}
	call.claim, call.fence, call.deadline = out.claim, out.fence, out.deadline
	return []modelEffect{granted}
}

// pending: a claim whose answer was lost is asked for again, and finds its own call (S5.7).
// Everybody else is told that it is in flight.
func (e modelEffect) pending(in opInput, out *opOutput) []modelEffect {
	i := slices.IndexFunc(e.list(), func(c modelCall) bool { return c.state == fence.Pending })
	c := &e.calls[i]
	switch {
	case out == nil || out.refused == fence.ReasonInFlight && c.claim != in.claim:
	case c.claim == in.claim && out.number == i+1 && out.claim == in.claim && out.fence > e.fence():
		c.fence, c.deadline = out.fence, out.deadline
	default:
		return nil
	}
	return []modelEffect{e}
}

// settle is rule S7.
func (e modelEffect) settle(in opInput, out *opOutput) []modelEffect {
	i := slices.IndexFunc(e.list(), func(c modelCall) bool { return c.claim == in.claim })
	if i < 0 {
		return nil
	}
	after := e
	c := &after.calls[i]
	double := false
	switch {
	case c.state == fence.Pending, c.state == fence.Ambiguous && in.state != fence.Ambiguous, c.state == fence.Failed && in.state == fence.Committed:
		if in.state == fence.Committed {
			double = c.denied || e.state() == fence.Committed
			after.landed++
			c.value, c.kept, c.landed = in.value, true, after.landed
		}
		c.state = in.state
	case c.state == fence.Committed && in.state == fence.Committed && !c.kept:
		c.value, c.kept = in.value, true // only the claimer has the value
	}
	if out != nil && (out.recorded != (c.state == in.state) || out.double != double || out.state != after.state()) {
		return nil
	}
	return []modelEffect{after}
}

// resolve is what rule S8 says of a person's verdict.
func (e modelEffect) resolve(in opInput, out *opOutput, to fence.Millis) []modelEffect {
	refused := func(ok bool, after modelEffect) []modelEffect {
		if out == nil || out.early != ok {
			return []modelEffect{after}
		}
		return nil
	}
	switch e.state() {
	case "":
		return refused(false, e)
	case fence.Committed:
		return refused(in.yes, e)
	case fence.Failed:
		return refused(!in.yes, e)
	}
	// The decision was made at some time between the question and the answer; a call whose
	// deadline nobody heard has 0.
	var next []modelEffect
	open, maybe := false, false
	for _, c := range e.list() {
		if c.state == fence.Pending || c.state == fence.Ambiguous {
			open = open || to <= c.deadline
			maybe = maybe || in.at <= c.deadline || c.deadline == 0
		}
	}
	if maybe && (out == nil || out.early) {
		next = append(next, e)
	}
	if open || out != nil && out.early {
		return next
	}
	after := e
	last := 0
	for i := range after.n {
		if s := after.calls[i].state; s == fence.Pending || s == fence.Ambiguous {
			last = i
		}
	}
	for i := range after.n {
		c := &after.calls[i]
		switch {
		case c.state != fence.Pending && c.state != fence.Ambiguous:
		case in.yes && i == last:
			after.landed++
			c.state, c.landed = fence.Committed, after.landed
		case !in.yes:
			c.state, c.denied = fence.Failed, true
		}
	}
	if !in.yes {
		after.grants++
	}
	return append(next, after)
}

// modelRun is a run's current delivery, and the Begin that made it.
type modelRun struct {
	n     int64
	nonce string
}

// stepRun is the model of a run's deliveries: each Begin that is granted makes the next one
// (rule S4.2), and only the current one may write (rule S5.2). A Begin whose answer was lost is
// repeated, and finds its own delivery, unless another has made a later one meanwhile.
func stepRun(state, input, output any) []any {
	r, in := state.(modelRun), input.(opInput)
	out, _ := output.(*opOutput)
	if in.first {
		out = nil
	}
	next := modelRun{r.n + 1, in.claim}
	switch {
	case in.verb == "begin" && out == nil:
		return []any{r, next}
	case in.verb == "begin" && out.n == 0:
		return []any{r}
	case in.verb == "begin" && r.nonce == in.claim && out.n == r.n:
		return []any{r}
	case in.verb == "begin" && r.nonce != in.claim && out.n == next.n:
		return []any{next}
	case in.verb == "write" && (out == nil || in.n == r.n):
		return []any{r}
	}
	return nil
}

func describeOp(input, output any) string {
	in := input.(opInput)
	out, _ := output.(*opOutput)
	if out == nil {
		return fmt.Sprintf("%s %+v → ?", in.verb, in)
	}
	return fmt.Sprintf("%s %+v → %+v", in.verb, in, *out)
}

var (
	effectModel = (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{modelEffect{}} }, Step: stepEffect, DescribeOperation: describeOp,
	}).ToModel()
	runModel = (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{modelRun{}} }, Step: stepRun, DescribeOperation: describeOp,
	}).ToModel()
)

package fence

import (
	"errors"
	"slices"
)

// CheckStep returns what must not have happened between two full states of a conversation, nil
// if nothing of it did. now is the time of the transition.
func CheckStep(before, after Conversation, now Millis) error {
	c := &checker{head: after.Head, rows: after.Rows, now: now}
	switch {
	case before.Head == nil:
	case after.Head == nil:
		c.fail("a transition dropped the head")
	default:
		c.numbers(before.Head)
		for _, key := range sortedKeys(before.Rows) {
			c.row(key, before.Rows[key], after.Rows[key])
		}
	}
	c.claims(before)
	return errors.Join(c.wrong...)
}

// numbers never go down (rule S3.1).
func (c *checker) numbers(before *Head) {
	after := c.head
	if before.Epoch != after.Epoch {
		c.fail("the epoch changed")
	}
	if after.Seq < before.Seq || after.Fence < before.Fence || after.Floor < before.Floor {
		c.fail("seq, fence or floor went down: %d %d %d to %d %d %d", before.Seq, before.Fence, before.Floor, after.Seq, after.Fence, after.Floor)
	}
}

func (c *checker) row(key string, before, after Record) {
	if after == nil {
		if due := before.Index().Due; due == 0 || due > c.now {
			c.fail("row %q was deleted before its time", key)
		}
		return
	}
	switch before := before.(type) {
	case *Run:
		if after, ok := after.(*Run); ok {
			c.runStep(before, after)
		}
	case *Effect:
		if after, ok := after.(*Effect); ok {
			c.effectStep(before, after)
		}
	case *Inbound:
		if after, ok := after.(*Inbound); ok {
			c.inboundStep(before, after)
		}
	case *Report:
		after, ok := after.(*Report)
		if ok && (after.Seq != before.Seq || before.Echo != "" && after.Echo != before.Echo) {
			c.fail("report %q was reported anew", before.ID)
		}
	}
}

func (c *checker) runStep(before, after *Run) {
	name := before.Key.String()
	if after.Delivery.Number < before.Delivery.Number || after.Generation < before.Generation {
		c.fail("run %s: delivery %d of generation %d became %d of %d", name, before.Delivery.Number, before.Generation, after.Delivery.Number, after.Generation)
	}
	entered := after.Delivery.Number > before.Delivery.Number
	if after.Delivery.Nonce != before.Delivery.Nonce && after.Delivery.Number == before.Delivery.Number {
		c.fail("run %s: delivery %d changed its nonce", name, after.Delivery.Number)
	}
	same := after.Generation == before.Generation
	if same && (after.Order != before.Order || after.FirstSeq != before.FirstSeq || before.Wrote && !after.Wrote) && before.FirstSeq > 0 {
		c.fail("run %s: its order, beginning or writing changed", name)
	}
	switch {
	case before.State == after.State:
	case before.State == RunActive:
		if entered {
			c.fail("run %s became %s with a delivery", name, after.State)
		}
	case !entered:
		c.fail("run %s was %s and is %s with no delivery", name, before.State, after.State)
	case same && (before.Finished() || before.State == RunCancelled):
		c.fail("run %s was %s and is entered in the same generation", name, before.State)
	}
	if before.Finished() && after.State == RunEnded && same && after.End != EndSuccess {
		c.fail("run %s had ended with success", name)
	}
}

func (c *checker) effectStep(before, after *Effect) {
	name := effectName(before.Intent, before.Key)
	if len(after.Calls) < len(before.Calls) || after.Grants < before.Grants {
		c.fail("effect %s lost a call or a grant", name)
		return
	}
	for i := range before.Calls {
		was, is := &before.Calls[i], &after.Calls[i]
		if was.Claim != is.Claim || was.Number != is.Number || was.Fence != is.Fence || was.Run != is.Run ||
			was.Delivery != is.Delivery || was.At != is.At || was.Deadline != is.Deadline || was.Params != is.Params ||
			was.Named != is.Named || !slices.Equal(was.Answers, is.Answers) {
			c.fail("effect %s: call %d became another call", name, was.Number)
		}
		if !mayBecome(was.State, is.State) {
			c.fail("effect %s: call %d was %s and is %s", name, was.Number, was.State, is.State)
		}
		if was.State != is.State && is.Seq <= was.Seq || was.State == Committed && is.Seq != was.Seq {
			c.fail("effect %s: call %d went from seq %d to %d", name, was.Number, was.Seq, is.Seq)
		}
		// A value that a person gave may be replaced by a person (rule S7.5).
		if was.State == Committed && !was.NoValue && was.ResolvedBy == "" && (is.NoValue || !slices.Equal(was.Result, is.Result)) {
			c.fail("effect %s: call %d changed its result", name, was.Number)
		}
		if was.Late && !is.Late || was.Denied && !is.Denied {
			c.fail("effect %s: call %d lost its mark", name, was.Number)
		}
	}
}

// mayBecome is how the outcome of one call may change (rules S2 and S7.3).
func mayBecome(was, is State) bool {
	switch was {
	case Pending:
		return true
	case Ambiguous:
		return is != Pending
	case Failed:
		return is == Failed || is == Committed
	}
	return is == Committed
}

func (c *checker) inboundStep(before, after *Inbound) {
	lost := slices.ContainsFunc(before.Answered, func(a Answer) bool { return !after.answered(a) })
	if lost || before.Dismissed != "" && after.Dismissed == "" || before.Registered && !after.Registered || before.Unanswered && !after.Unanswered {
		c.fail("message %q forgot something", before.ID)
	}
}

// claims checks what a claim adds: one call of one effect, with a fresh fence number, and only
// when every earlier call is known not to have applied or may be called again (rule S11.1).
func (c *checker) claims(before Conversation) {
	added := 0
	for _, key := range sortedKeys(c.rows) {
		after, ok := c.rows[key].(*Effect)
		if !ok {
			continue
		}
		var calls []Call
		if was, ok := before.Rows[key].(*Effect); ok {
			calls = was.Calls
		}
		for i := len(calls); i < len(after.Calls); i++ {
			call := &after.Calls[i]
			if call.State != Pending {
				continue // a record that was lost and is re-created
			}
			added++
			if before.Head != nil && call.Fence <= before.Head.Fence {
				c.fail("a claim took fence number %d after %d", call.Fence, before.Head.Fence)
			}
			for k := range calls {
				c.free(effectName(after.Intent, after.Key), &calls[k])
			}
		}
	}
	if added > 1 {
		c.fail("one transition made %d claims", added)
	}
}

func (c *checker) free(name string, call *Call) {
	lapsed := call.State == Ambiguous || call.State == Pending && c.now > call.Deadline
	if call.State != Failed && !(lapsed && call.Again.Open(c.now)) {
		c.fail("effect %s was claimed while its call %d is %s", name, call.Number, call.State)
	}
}

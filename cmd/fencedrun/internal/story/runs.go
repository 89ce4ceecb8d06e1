package story

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
)

func (t *teller) of(r *fence.Run, e Entry) Entry {
	e.Queue, e.Job = r.Key.Queue, r.Key.ID
	if e.Who == "" {
		e.Who = t.job(r.Key)
	}
	return e
}

// run tells a job's life, without what it called.
func (t *teller) run(r *fence.Run) {
	if r.BegunAt > 0 {
		text := "began"
		if r.Generation > 1 {
			text = fmt.Sprintf("began, as new work under an id that was used before (use %d; the earlier one is not kept)", r.Generation)
		}
		text += " (queue " + r.Key.Queue
		if len(r.Inbound) > 0 {
			text += "; brings " + listed(r.Inbound)
		}
		t.add(t.of(r, Entry{At: r.BegunAt.Time(), Kind: KindBegan, Text: text + ")", Delivery: r.FirstDelivery, seq: r.FirstSeq}))
	}
	t.resumed(r)
	switch {
	case r.State == fence.RunCancelled:
		t.cancelled(r)
	case r.State == fence.RunEnded:
		t.ended(r)
	case r.Parked != "":
		t.add(t.of(r, Entry{
			At: r.TouchedAt.Time(), Kind: KindParked, Delivery: r.Delivery.Number, Alarm: true,
			Text: "was stopped for a person" + nth(r) + ": " + parkedWhy(r.Parked),
		}))
	case t.seat(r) == nil:
		t.add(t.of(r, Entry{
			At: r.TouchedAt.Time(), Kind: KindReleased, Delivery: r.Delivery.Number,
			Text: "went back to its queue" + nth(r) + ", which is expected to deliver it again" + t.waitingFor(r),
		}))
	}
}

// resumed tells of later deliveries, as far as anything shows when they were at work.
func (t *teller) resumed(r *fence.Run) {
	seen := r.FirstDelivery
	for _, own := range t.calls[r.Key] {
		c := own.call
		if c.Delivery.Number <= seen || c.At < r.BegunAt {
			continue
		}
		seen = c.Delivery.Number
		if c.Delivery == r.Delivery && t.seat(r) != nil {
			continue // told below, with its time
		}
		t.add(t.of(r, Entry{
			At: c.At.Time(), Kind: KindResumed, Delivery: seen, Inferred: true,
			Text: fmt.Sprintf("was delivered again and let in by now (delivery %d)", seen),
		}))
	}
	if t.seat(r) != nil && r.Delivery.Number > r.FirstDelivery {
		t.add(t.of(r, Entry{
			At: r.TouchedAt.Time(), Kind: KindResumed, Delivery: r.Delivery.Number,
			Text: fmt.Sprintf("was delivered again and let in (delivery %d)", r.Delivery.Number),
		}))
	}
}

func (t *teller) cancelled(r *fence.Run) {
	by := orElse(r.CancelBy, "somebody")
	why := ""
	if r.CancelWhy != "" {
		why = ": " + quoted(r.CancelWhy)
	}
	e := Entry{At: r.TouchedAt.Time(), Kind: KindCancelled, Who: by, Text: "cancelled " + t.job(r.Key) + why}
	if r.FirstSeq == 0 && r.Mode != "" {
		// A tombstone from the directory: the record was made when the job arrived.
		e.Who = ""
		e.Text = "arrived and was turned away: " + by + " had cancelled it before it began" + why
	} else if r.FirstSeq == 0 {
		e.Text += ", before it began"
	}
	t.add(t.of(r, e))
}

func (t *teller) ended(r *fence.Run) {
	e := Entry{At: r.TouchedAt.Time(), Delivery: r.Delivery.Number}
	var open []string
	for _, id := range r.Inbound {
		if in := t.inbound[id]; in != nil && in.Unanswered {
			open = append(open, id)
		}
	}
	switch r.End {
	case fence.EndDiscarded:
		e.Kind, e.Alarm = KindDiscarded, true
		e.Text = "was given up" + nth(r) + ": its last attempt failed, or its error said that trying again is no use"
	case fence.EndSuperseded:
		e.Kind = KindSuperseded
		e.Text = "gave way to a newer job, and ended" + nth(r)
		if by := t.newer(r); by != nil {
			e.Text = "gave way to the newer " + t.job(by.Key) + ", and ended" + nth(r)
			e.Inferred = true
		}
	default:
		e.Kind = KindEnded
		e.Text = "ended with success" + nth(r)
	}
	if len(open) > 0 {
		e.Alarm = true
		e.Text += ". It left " + listed(open) + " unanswered"
	}
	t.add(t.of(r, e))
}

// nth says which delivery it was, if it was not the first.
func nth(r *fence.Run) string {
	if r.Delivery.Number <= r.FirstDelivery {
		return ""
	}
	return fmt.Sprintf(" (delivery %d)", r.Delivery.Number)
}

// newer returns the newest run that supersedes r and ended with success or is active.
func (t *teller) newer(r *fence.Run) *fence.Run {
	var by *fence.Run
	for _, other := range t.h.Runs {
		if other.Order.Newer(r.Order) && (other.State == fence.RunActive || other.Finished()) && (by == nil || other.Order.Newer(by.Order)) {
			by = other
		}
	}
	return by
}

func parkedWhy(reason fence.Reason) string {
	switch reason {
	case fence.ReasonUnresolved, fence.ReasonAmbiguous:
		return "nobody knows whether something it needs to be sure of happened"
	case fence.ReasonStalePayload:
		return "its payload holds an old copy of the conversation, in which something has happened since"
	case fence.ReasonRefusedTwice:
		return "it was refused twice for the same thing and did not read the conversation again in between"
	}
	return strings.ReplaceAll(string(reason), "_", " ")
}

// seat returns the place of r's current delivery among those that may be at work, or nil.
func (t *teller) seat(r *fence.Run) *fence.Seat {
	if t.h.Head == nil || r.State != fence.RunActive {
		return nil
	}
	for i := range t.h.Head.Seats {
		if s := &t.h.Head.Seats[i]; s.Run == r.Key && s.Delivery == r.Delivery {
			return s
		}
	}
	return nil
}

// waitingFor says which pending effects r waits for, and that it was refused.
func (t *teller) waitingFor(r *fence.Run) string {
	if len(r.Waits) == 0 && r.Refused == "" {
		return ""
	}
	var names []string
	for _, e := range t.h.Effects {
		for i := range e.Calls {
			if c := &e.Calls[i]; c.State == fence.Pending && slices.Contains(r.Waits, c.Claim) {
				names = append(names, named(e.Intent, e.Key)+" (until "+t.clock(c.Deadline)+" at the latest)")
			}
		}
	}
	switch {
	case len(names) > 0:
		return ". It waits for the outcome of " + listed(names)
	case r.Refused != "":
		return ". Something was refused to it; what and why is not kept"
	}
	return ""
}

// working tells what an active run that nobody stopped is up to.
func (t *teller) working(r *fence.Run) Working {
	w := Working{Queue: r.Key.Queue, Job: r.Key.ID, Delivery: r.Delivery.Number, Since: r.TouchedAt.Time().In(t.o.Location)}
	seat := t.seat(r)
	if seat == nil {
		w.Text = "Has waited in queue " + r.Key.Queue + " since " + t.clock(r.TouchedAt) + t.waitingFor(r) + ". Nothing to do."
		return w
	}
	since := "since " + t.clock(r.TouchedAt)
	until, found := t.o.Leases[fence.LeaseID{Run: fence.RunRow(seat.Run), Nonce: seat.Delivery.Nonce}]
	switch {
	case found && !t.past(until):
		w.Text = "Has been at work " + since + ". Nothing to do."
	default:
		w.Text = "Was at work " + since + ", and gives no sign of life any more: its worker has died or hangs. Its queue delivers it again."
	}
	return w
}

// stopped tells of a run that goes on only if a person does something.
func (t *teller) stopped(r *fence.Run) (Stopped, bool) {
	s := Stopped{Queue: r.Key.Queue, Job: r.Key.ID, Since: r.TouchedAt.Time().In(t.o.Location)}
	switch {
	case r.Parked == fence.ReasonUnresolved || r.Parked == fence.ReasonAmbiguous:
		s.Reason = string(r.Parked)
		if t.inDoubt() {
			s.Text = "It waits for a decision on what is in doubt above."
			s.Do = []Step{{Text: "Settle the doubt first. Then " + t.again(r)}}
		} else {
			s.Text = "What it waited for is decided. Nothing starts it by itself."
			s.Do = []Step{{Text: upper(t.again(r))}}
		}
	case r.Parked == fence.ReasonStalePayload:
		s.Reason = string(r.Parked)
		s.Text = "Its payload holds an old copy of the conversation. Running it again as it is stops it again."
		s.Do = []Step{{Text: "Enqueue a new job with a new copy of the conversation, and delete this one from the queue"}}
		if open := t.openOf(r); len(open) > 0 {
			s.Do = append(s.Do, Step{"Or, if nothing is left to be said, close what it brought", t.command("dismiss", append([]string{t.conversation}, open...), "--why "+placeholder)})
		}
	case r.Parked == fence.ReasonRefusedTwice:
		s.Reason = string(r.Parked)
		s.Text = "Its code was told that the conversation had changed, and asked for the same again without looking. That is a fault of the code: " +
			"it must catch up before it reads."
		s.Do = []Step{{Text: "When the code is mended, " + t.again(r)}}
	case r.Parked != "":
		s.Reason = string(r.Parked)
		s.Text = "It was stopped: " + parkedWhy(r.Parked) + "."
		s.Do = []Step{{Text: upper(t.again(r))}}
	case r.State == fence.RunEnded && r.End == fence.EndDiscarded && len(t.openOf(r)) > 0:
		s.Reason = string(r.End)
		s.Text = "It was given up, and " + listed(t.openOf(r)) + " is unanswered."
		s.Do = []Step{{Text: "Find out in its queue why it failed. Then " + t.again(r) + ", which opens it anew"}}
	default:
		return s, false
	}
	return s, true
}

// openOf returns the messages of r's job that are open.
func (t *teller) openOf(r *fence.Run) []string {
	var open []string
	for _, id := range r.Inbound {
		if in := t.inbound[id]; in != nil && in.Registered && !in.Closed() {
			open = append(open, id)
		}
	}
	return open
}

func (t *teller) inDoubt() bool { return t.h.Head != nil && len(t.h.Head.Unresolved) > 0 }

// again is what to do in the queue, whose commands are not ours.
func (t *teller) again(r *fence.Run) string {
	return "run " + t.job(r.Key) + " of queue " + r.Key.Queue + " again by hand"
}

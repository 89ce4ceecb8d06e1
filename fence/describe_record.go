package fence

import (
	"fmt"
	"strconv"
	"strings"
)

// Conversation is the full state of one conversation, for Check, CheckStep and Describe.
type Conversation struct {
	Head   *Head              // nil when the conversation is not known
	Rows   map[string]Record  // by row key
	Leases map[LeaseID]Millis // nil: not known
}

// record describes what the ledger keeps.
func (d *describer) record(x any) (string, bool) {
	switch x := x.(type) {
	case *Run:
		return d.run(x), true
	case *Effect:
		return d.effect(x), true
	case *Inbound:
		return d.inbound(x), true
	case *Report:
		return d.reportRow(x), true
	case *Reference:
		return d.reference(x), true
	case *Head:
		return d.head(x, nil), true
	case *Delivery:
		return d.delivery(x), true
	case Conversation:
		return d.conversation(&x), true
	case *Conversation:
		return d.conversation(x), true
	}
	return "", false
}

func (d *describer) run(r *Run) string {
	parts := []string{string(r.State)}
	if r.End != "" {
		parts[0] += " (" + string(r.End) + ")"
	}
	if r.Delivery.Number > 0 {
		parts = append(parts, "delivery "+strconv.FormatInt(r.Delivery.Number, 10))
	}
	if r.Generation > 1 {
		parts = append(parts, "generation "+strconv.Itoa(r.Generation))
	}
	if r.Mode != "" {
		parts = append(parts, string(r.Mode), orderName(r.Order))
	}
	if len(r.Inbound) > 0 {
		parts = append(parts, "brings "+strings.Join(r.Inbound, ", "))
	}
	if r.Wrote {
		parts = append(parts, "wrote")
	}
	if r.Edited > 0 {
		parts = append(parts, fmt.Sprintf("edited before delivery %d", r.Edited))
	}
	if r.Grants > 0 {
		parts = append(parts, fmt.Sprintf("granted %d more", r.Grants))
	}
	if len(r.Progress) > 0 {
		parts = append(parts, fmt.Sprintf("progress %d bytes", len(r.Progress)))
	}
	if r.Parked != "" {
		parts = append(parts, "parked: "+string(r.Parked))
	}
	if len(r.Waits) > 0 {
		parts = append(parts, fmt.Sprintf("waits for %d pending", len(r.Waits)))
	}
	if r.Refused != "" {
		parts = append(parts, "refused and has not looked since")
	}
	if r.State == RunCancelled {
		parts = append(parts, "by "+orElse(r.CancelBy, "somebody")+": "+orElse(r.CancelWhy, "no reason given"))
	}
	return runName(r.Key, 0) + ": " + strings.Join(parts, ", ")
}

func (d *describer) effect(e *Effect) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", effectName(e.Intent, e.Key), e.State())
	if e.Grants > 0 {
		fmt.Fprintf(&b, ", granted %d more", e.Grants)
	}
	if e.Forever {
		b.WriteString(", kept for ever")
	}
	for i := range e.Calls {
		b.WriteString("\n  " + d.call(&e.Calls[i]))
	}
	if p := &e.Probing; p.Tries > 0 {
		fmt.Fprintf(&b, "\n  probed %s", times(p.Tries))
		switch {
		case p.Nonce != "":
			b.WriteString(", the provider is being asked until " + d.at(p.Until))
		case p.Next > 0:
			fmt.Fprintf(&b, ": %s; next at %s", orElse(p.Note, "it could not say"), d.at(p.Next))
		}
	}
	return b.String()
}

func (d *describer) call(c *Call) string {
	parts := []string{string(c.State)}
	switch c.State {
	case Pending:
		parts[0] += " until " + d.at(c.Deadline)
	case Failed:
		if c.NotStarted {
			parts = append(parts, "never started")
		}
	case Committed:
		switch {
		case c.NoValue:
			parts = append(parts, "value not kept")
		case len(c.Result) > 0:
			parts = append(parts, "result "+strconv.Quote(string(c.Result)))
		}
	}
	if len(c.Answers) > 0 {
		parts = append(parts, "answers "+strings.Join(c.Answers, ", "))
	}
	if c.Params != "" {
		parts = append(parts, "params "+c.Params)
	}
	if c.Reference != "" {
		parts = append(parts, "reference "+c.Reference)
	}
	if c.Error != "" {
		parts = append(parts, "error "+strconv.Quote(c.Error))
	}
	if c.Late {
		parts = append(parts, "late")
	}
	if c.Vanished {
		parts = append(parts, "re-created")
	}
	if c.Denied {
		parts = append(parts, "said not to have happened")
	}
	if c.ResolvedBy != "" {
		parts = append(parts, "by "+c.ResolvedBy+summary(c.Note))
	}
	name := fmt.Sprintf("call %d of %s", c.Number, runName(c.Run, c.Delivery.Number))
	if c.Fence > 0 {
		name += fmt.Sprintf(", fence %d", c.Fence)
	}
	return name + ": " + strings.Join(parts, ", ") + summary(c.Summary)
}

func (d *describer) inbound(in *Inbound) string {
	text := "message " + in.ID + ": "
	var parts []string
	for _, a := range in.Answered {
		if a.Report {
			parts = append(parts, "answered by report "+strconv.Quote(a.ID))
		} else {
			parts = append(parts, "answered by "+effectName(a.Intent, a.Key)+" of "+runName(a.Run, 0))
		}
	}
	if in.Dismissed != "" {
		parts = append(parts, "dismissed: "+in.Dismissed)
	}
	if len(parts) == 0 {
		parts = append(parts, "open")
	}
	if !in.Registered {
		parts = append(parts, "no job has named it")
	}
	if in.Unanswered {
		parts = append(parts, "its job ended without an answer")
	}
	return text + strings.Join(parts, ", ")
}

func (d *describer) reportRow(r *Report) string {
	text := "report " + strconv.Quote(r.ID)
	if r.Intent != "" {
		text += " of a " + r.Intent
	}
	text += summary(r.Summary)
	if r.By != "" {
		text += " by " + r.By
	}
	if len(r.Answers) > 0 {
		text += ", answers " + strings.Join(r.Answers, ", ")
	}
	if r.Echo != "" {
		text += ", the echo of one of our own effects"
	}
	return text
}

func (d *describer) reference(r *Reference) string {
	if r.Effect != "" {
		return "reference " + r.Ref + " is one of our own effects"
	}
	return "reference " + r.Ref + " is report " + strconv.Quote(r.Report)
}

func (d *describer) delivery(x *Delivery) string {
	text := fmt.Sprintf("%s: %s, %s, has seen up to %d", runName(x.Run, x.ID.Number), x.Mode, orderName(x.Order), x.Seen)
	if x.CaughtUp > 0 {
		text += fmt.Sprintf(", caught up at %d", x.CaughtUp)
	}
	if x.Twice {
		text += ", refused twice for the same"
	}
	return text
}

func (d *describer) head(h *Head, leases map[LeaseID]Millis) string {
	var b strings.Builder
	fmt.Fprintf(&b, "conversation %s: seq %d, fence %d", h.Conversation, h.Seq, h.Fence)
	for i := range h.Seats {
		seat := &h.Seats[i]
		fmt.Fprintf(&b, "\n  at work: %s (%s, %s)", runName(seat.Run, seat.Delivery.Number), seat.Mode, orderName(seat.Order))
		if leases == nil {
			continue
		}
		until, ok := leases[LeaseID{RunRow(seat.Run), seat.Delivery.Nonce}]
		switch {
		case !ok || d.relative && until <= d.now:
			b.WriteString(", its lease has lapsed")
		default:
			b.WriteString(", its lease runs until " + d.at(until))
		}
	}
	for i := range h.Unresolved {
		c := h.Unresolved[i].conflict()
		fmt.Fprintf(&b, "\n  unresolved: %s", d.conflict(&c))
		if ids := h.Unresolved[i].Answers; len(ids) > 0 {
			b.WriteString(", has taken " + strings.Join(ids, ", "))
		}
	}
	for i := range h.Landed {
		c := h.Landed[i].conflict()
		fmt.Fprintf(&b, "\n  landed at %d: %s", h.Landed[i].Seq, d.conflict(&c))
	}
	if h.Floor > 0 {
		fmt.Fprintf(&b, "\n  what landed up to %d is in the rows only", h.Floor)
	}
	for _, w := range h.Wrote {
		fmt.Fprintf(&b, "\n  the newest that ended and wrote: %s", orderName(w.Order))
	}
	return b.String()
}

// conversation is the head, then each row as it stands, by kind and key.
func (d *describer) conversation(c *Conversation) string {
	if c.Head == nil {
		return "the conversation is not known"
	}
	var b strings.Builder
	b.WriteString(d.head(c.Head, c.Leases))
	for _, prefix := range [...]string{"r/", "e/", "i/", "o/", "x/"} {
		for _, key := range sortedKeys(c.Rows) {
			if strings.HasPrefix(key, prefix) {
				text, _ := d.record(c.Rows[key])
				b.WriteString("\n" + text)
			}
		}
	}
	return b.String()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

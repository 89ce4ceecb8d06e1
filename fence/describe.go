package fence

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Describe says in plain words what x is: what happened, and what is to be done about it. x is
// an Event, a Conflict or a Refusal, or a pointer to one; a verdict; a pointer to a record, a
// Delivery or a Head; or a Conversation. The answer is one line, or a short block for what has
// parts; the same x gives the same text. Epochs, nonces, claim ids and digests are never in
// it; keys, summaries and notes are.
//
// Points of time are in UTC. DescribeAt gives them relative to a now.
func Describe(x any) string { return (&describer{}).describe(x) }

// DescribeAt is Describe with points of time relative to now, such as +120s.
func DescribeAt(x any, now Millis) string {
	return (&describer{now: now, relative: true}).describe(x)
}

type describer struct {
	now      Millis
	relative bool
}

func (d *describer) describe(x any) string {
	switch x := x.(type) {
	case *Refusal:
		if x == nil {
			return "not refused"
		}
		return d.refusal(x)
	case Refusal:
		return d.refusal(&x)
	case Event:
		return d.event(&x)
	case *Event:
		return d.event(x)
	case Conflict:
		return d.conflict(&x)
	case *Conflict:
		return d.conflict(x)
	}
	if text, ok := d.verdict(x); ok {
		return text
	}
	if text, ok := d.record(x); ok {
		return text
	}
	return fmt.Sprintf("fence: nothing is known of a %T", x)
}

// at writes a point of time.
func (d *describer) at(m Millis) string {
	switch {
	case !d.relative:
		return m.Time().Format("2006-01-02T15:04:05.999Z")
	case m == d.now:
		return "now"
	case m > d.now:
		return "+" + span(m-d.now)
	}
	return "-" + span(d.now-m)
}

// span writes a duration: seconds while that is readable, then the largest unit that keeps it
// whole.
func span(m Millis) string {
	if m >= 10*60*1000 {
		for _, unit := range [...]struct {
			size Millis
			name string
		}{{24 * 3600 * 1000, "d"}, {3600 * 1000, "h"}, {60 * 1000, "m"}} {
			if m%unit.size == 0 {
				return strconv.FormatInt(int64(m/unit.size), 10) + unit.name
			}
		}
		return m.Duration().String()
	}
	if m < 1000 {
		return strconv.FormatInt(int64(m), 10) + "ms"
	}
	return strconv.FormatFloat(float64(m)/1000, 'f', -1, 64) + "s"
}

// effectName names an effect the way people do: by its intent and key.
func effectName(intent, key string) string { return intent + " " + key }

func runName(run RunKey, delivery int64) string {
	switch {
	case run == (RunKey{}):
		return "a write without a job"
	case delivery == 0:
		return "run " + run.String()
	}
	return "run " + run.String() + " delivery " + strconv.FormatInt(delivery, 10)
}

func orderName(o Order) string {
	if o.Source == "" {
		return "no order"
	}
	return "order " + o.Source + " " + strconv.FormatInt(o.Number, 10)
}

// conflict names an effect or report that stands in the way, and how it stands.
func (d *describer) conflict(c *Conflict) string {
	if c.Report {
		name := "report " + strconv.Quote(c.ID)
		if c.Intent != "" {
			name += " of a " + c.Intent
		}
		return name + summary(c.Summary) + " from outside"
	}
	if c.ID == "" {
		return runName(c.Run, c.Delivery)
	}
	parts := []string{string(c.State)}
	who := runName(c.Run, c.Delivery)
	if c.Call > 0 {
		who = "call " + strconv.Itoa(c.Call) + " of " + who
	}
	parts = append(parts, who)
	if c.State == Pending {
		parts = append(parts, "until "+d.at(c.Deadline))
	}
	return effectName(c.Intent, c.Key) + summary(c.Summary) + " (" + strings.Join(parts, ", ") + ")"
}

func summary(s string) string {
	if s == "" {
		return ""
	}
	return " " + strconv.Quote(s)
}

func (d *describer) conflicts(list []Conflict) string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = d.conflict(&list[i])
	}
	return strings.Join(texts, ", ")
}

// answers says of each message by what it is answered. All conflicts of one message follow
// each other.
func (d *describer) answers(list []Conflict) string {
	texts := make([]string, len(list))
	for i := range list {
		c := &list[i]
		verb := "was answered by"
		switch {
		case len(c.Inbound) == 0:
			texts[i] = d.conflict(c) + " answers other messages"
			continue
		case c.State == Pending:
			verb = "is being answered by"
		case c.State == Ambiguous:
			verb = "may have been answered by"
		}
		texts[i] = strings.Join(c.Inbound, ", ") + " " + verb + " " + d.conflict(c)
	}
	return strings.Join(texts, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

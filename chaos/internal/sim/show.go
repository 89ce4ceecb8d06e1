package sim

import (
	"fmt"
	"io"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
)

// Shown returns the steps of a trace that a reader needs: what repeats is left out, and so are
// calls of the ledger where nothing went wrong, for what came of them has a step of its own.
func (r *Result) Shown() []Step {
	var list []Step
	for i := range r.Trace {
		if s := &r.Trace[i]; s.Fault != NoFault || !s.dull() {
			list = append(list, *s)
		}
	}
	return folded(list)
}

func (s *Step) dull() bool {
	switch s.What {
	case "renew", "load", "thinks", "find run", "bury", "exhume", "scan":
		return true
	}
	if s.Event != nil {
		switch s.Event.Kind { //nolint:exhaustive // the others are shown
		case fence.EventCaughtUp, fence.EventStamped, fence.EventPurged:
			return true
		}
	}
	return strings.HasPrefix(s.What, "write") && s.Task != "" || strings.HasPrefix(s.What, "reads") || strings.HasPrefix(s.What, "takes a snapshot")
}

// folded leaves out the rounds of a job that comes back again and again for the same reason.
func folded(list []Step) []Step {
	const round = 4 // delivered, refused, sent back, the queue told
	var kept []Step
	for i := 0; i < len(list); i++ {
		same := i >= round && i+round <= len(list)
		for k := i; same && k < i+round; k++ {
			same = list[k].Fault == NoFault && words(list[k]) == words(list[k-round])
		}
		if same && strings.HasPrefix(list[i].What, "delivers ") {
			i += round - 1
			continue
		}
		kept = append(kept, list[i])
	}
	return kept
}

// words are a step's text without its numbers.
func words(s Step) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, strings.TrimSuffix(s.Lane, "1")+s.What)
}

// Terminal writes a trace as text, one line a step.
func (r *Result) Terminal(w io.Writer) error {
	var b strings.Builder
	for _, line := range r.setting() {
		b.WriteString(line + "\n")
	}
	b.WriteByte('\n')
	for _, l := range r.Lines() {
		if l.Lane == "verdict" {
			continue
		}
		mark := ""
		if l.Bad {
			mark = "   ◀ WRONG"
		}
		fmt.Fprintf(&b, "%10s  %-9s  %s%s\n", since(l.At), l.Who, l.Text, mark)
		if l.Fault != "" {
			fmt.Fprintf(&b, "%10s  %-9s  ⚡ %s\n", "", "", l.Fault)
		}
	}
	if r.Violation != "" {
		fmt.Fprintf(&b, "\nWRONG: %s\n", sendText(r.Violation))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var providerTexts = map[string]string{
	"naive":   "does whatever reaches it",
	"honours": "recognises the idempotency key",
	"fences":  "refuses smaller fence numbers than it has seen",
	lasting:   "can be asked what it did, and does nothing for old requests",
	early:     "can be asked what it did, and may do it after it was asked",
}

// setting says in what world a trace plays.
func (r *Result) setting() []string {
	c := &r.Config
	const legend = "“w1 j0#2” is worker w1 at the 2nd delivery of job j0"
	if c.User != nil {
		return []string{"A shortest story (" + legend + "):"}
	}
	handler := ""
	for name := range strings.SplitSeq(c.Handler, "+") {
		for i := range Handlers {
			if Handlers[i].Name == name {
				if handler != "" {
					handler += "; another "
				}
				handler += Handlers[i].Does
			}
		}
	}
	list := []string{}
	if handler != "" {
		list = append(list, fmt.Sprintf("handler:   %s (%s)", handler, c.Handler))
	}
	queue := "River"
	if c.Queue == "asynq" {
		queue = "Asynq"
	}
	provider := c.Provider
	if text := providerTexts[provider]; text != "" {
		provider = text
	}
	return append(list, "provider:  "+provider, fmt.Sprintf("queue:     %s, mode %s; %s", queue, c.Mode, legend))
}

// Mermaid writes a trace as a Mermaid sequence diagram.
func (r *Result) Mermaid(w io.Writer) error {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	lines := r.Lines()
	for _, lane := range lanes(lines) {
		fmt.Fprintf(&b, "    participant %s\n", lane)
	}
	clean := strings.NewReplacer(";", ",", "#", "/", "\n", " ", ":", " ")
	for _, l := range lines {
		what, from, to := clean.Replace(l.Text), l.Lane, ""
		switch {
		case l.Lane == "ledger" && l.proc != "":
			from, to = l.proc, l.Lane
		case l.send && l.Lane != "provider":
			to = "provider"
		case strings.HasPrefix(l.Text, "tells the queue"):
			to = "queue"
		case strings.Contains(l.Text, "the ledger") && l.Lane != "queue":
			to = "ledger"
		}
		if l.task != "" && l.Lane != "ledger" {
			what = clean.Replace(l.task) + " " + what
		}
		if to == "" {
			fmt.Fprintf(&b, "    Note over %s: %s %s\n", from, since(l.At), what)
		} else {
			fmt.Fprintf(&b, "    %s->>%s: %s %s\n", from, to, since(l.At), what)
		}
		if l.Fault != "" {
			fmt.Fprintf(&b, "    Note right of %s: FAULT %s\n", l.Lane, clean.Replace(l.Fault))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lanes are those that appear, in a fixed order.
func lanes(lines []Line) []string {
	have := map[string]bool{"ledger": true, "provider": true, "queue": true}
	for i := range lines {
		have[lines[i].Lane] = true
		have[lines[i].proc] = true
	}
	var list []string
	for _, lane := range []string{"customer", "agent", "operator", "api", "queue", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "ledger", "provider", "verdict"} {
		if have[lane] {
			list = append(list, lane)
		}
	}
	return list
}

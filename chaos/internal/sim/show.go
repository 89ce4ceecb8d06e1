package sim

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Shown returns the steps of a trace that a reader needs: what repeats is left out, and so are
// renewals and loads where nothing went wrong.
func (r *Result) Shown() []Step {
	var list []Step
	for _, s := range r.Trace {
		dull := s.Fault == NoFault && (s.What == "renew" || s.What == "load" || s.What == "write" || strings.HasPrefix(s.What, "reads") || s.What == "thinks")
		if !dull {
			list = append(list, s)
		}
	}
	return folded(list)
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
	c := &r.Config
	fmt.Fprintf(&b, "handler %s, provider %s, queue %s, mode %s, order %s, %d messages, tag %s\n", c.Handler, c.Provider, c.Queue, c.Mode, c.Order, c.Messages, c.Tag)
	for _, s := range r.Shown() {
		fault := ""
		if s.Fault != NoFault {
			fault = "   ⚡ " + s.Fault.String()
		}
		who := s.Lane
		if s.Task != "" {
			who += " " + s.Task
		}
		fmt.Fprintf(&b, "%11s  %-15s %s%s\n", clock(s.At), who, s.What, fault)
	}
	if r.Violation != "" {
		fmt.Fprintf(&b, "\n%s: %s\n", r.Kind, r.Violation)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Mermaid writes a trace as a Mermaid sequence diagram.
func (r *Result) Mermaid(w io.Writer) error {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	for _, lane := range r.lanes() {
		fmt.Fprintf(&b, "    participant %s\n", lane)
	}
	clean := strings.NewReplacer(";", ",", "#", "/", "\n", " ", ":", " ")
	for _, s := range r.Shown() {
		what := clean.Replace(s.What)
		from, to := s.Lane, ""
		switch {
		case strings.HasPrefix(s.What, "SEND"):
			to = "provider"
		case strings.HasPrefix(s.What, "tells the queue"):
			to = "queue"
		case s.What == "write" || s.What == "load" || s.What == "renew":
			to = "ledger"
		}
		if to == "" {
			fmt.Fprintf(&b, "    Note over %s: %s %s\n", from, clock(s.At), what)
		} else {
			fmt.Fprintf(&b, "    %s->>%s: %s %s\n", from, to, clock(s.At), what)
		}
		if s.Fault != NoFault {
			fmt.Fprintf(&b, "    Note right of %s: FAULT %s\n", from, s.Fault)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lanes are those that appear, in a fixed order.
func (r *Result) lanes() []string {
	have := map[string]bool{"ledger": true, "provider": true, "queue": true}
	for _, s := range r.Trace {
		have[s.Lane] = true
	}
	var list []string
	for _, lane := range []string{"customer", "agent", "operator", "queue", "api", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "world", "ledger", "provider", "ORACLE"} {
		if have[lane] {
			list = append(list, lane)
		}
	}
	return list
}

type page struct {
	Title string
	Arms  []arm
}

type arm struct {
	Title, Verdict string
	Lanes          []string
	Rows           []row
}

type row struct {
	At    string
	Cells []cell
}

type cell struct{ Text, Fault, Class string }

// HTML writes one self-contained page with a lane for each worker, the ledger and the
// provider; without may be nil.
func HTML(w io.Writer, with, without *Result) error {
	p := page{Title: "fencedrun: " + with.Violation}
	if with.Violation == "" {
		p.Title = "fencedrun: a conversation under faults"
	}
	p.Arms = append(p.Arms, with.arm("with the library"))
	if without != nil {
		p.Arms = append(p.Arms, without.arm("without it, the same choices"))
	}
	return pageTemplate.Execute(w, p)
}

func (r *Result) arm(title string) arm {
	a := arm{Title: title, Lanes: r.lanes(), Verdict: fmt.Sprintf("%d messages, %d answers, %d duplicates", r.Tally.Messages, r.Tally.Answers, r.Tally.Duplicates)}
	if r.Violation != "" {
		a.Verdict = r.Kind + ": " + r.Violation
	}
	var send int
	steps := r.Shown()
	for i, s := range steps {
		if strings.HasPrefix(s.What, "SEND") {
			send = i
		}
	}
	for i, s := range steps {
		x := row{At: clock(s.At), Cells: make([]cell, len(a.Lanes))}
		for l, lane := range a.Lanes {
			if lane != s.Lane {
				continue
			}
			c := cell{Text: s.What, Class: "step"}
			if s.Task != "" {
				c.Text = s.Task + ": " + c.Text
			}
			if s.Fault != NoFault {
				c.Fault = s.Fault.String()
				c.Class += " fault"
			}
			if r.Violation != "" && (lane == "ORACLE" || i == send) {
				c.Class += " bad"
			}
			x.Cells[l] = c
		}
		a.Rows = append(a.Rows, x)
	}
	return a
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --line: #8884; --fault: #d97706; --bad: #dc2626; --soft: #8881; }
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin: 2rem 0 .2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12px; }
th { position: sticky; top: 0; background: Canvas; text-align: left; padding: .2rem .5rem; border-bottom: 2px solid var(--line); }
td { border-left: 1px solid var(--line); padding: 0 .4rem; vertical-align: top; max-width: 22rem; }
td.at { border: 0; text-align: right; font-variant-numeric: tabular-nums; opacity: .7; white-space: nowrap; }
.step { background: var(--soft); border-radius: 4px; padding: .1rem .4rem; margin: 1px 0; overflow-wrap: anywhere; }
.fault { box-shadow: inset 3px 0 var(--fault); }
.bad { outline: 2px solid var(--bad); outline-offset: -1px; }
.mark { color: var(--fault); font-weight: 600; }
</style></head><body>
<h1>{{.Title}}</h1>
{{range .Arms}}<h2>{{.Title}}</h2><p>{{.Verdict}}</p>
<div class="scroll"><table><thead><tr><th></th>{{range .Lanes}}<th>{{.}}</th>{{end}}</tr></thead><tbody>
{{range .Rows}}<tr><td class="at">{{.At}}</td>{{range .Cells}}<td>{{if .Text}}<div class="{{.Class}}">{{.Text}}{{if .Fault}} <span class="mark">⚡ {{.Fault}}</span>{{end}}</div>{{end}}</td>{{end}}</tr>
{{end}}</tbody></table></div>{{end}}
</body></html>
`))

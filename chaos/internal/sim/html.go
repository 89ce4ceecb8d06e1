package sim

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

type page struct {
	Title   string
	Setting []string
	Would   string // what the rule that is switched off would have said
	Arms    []arm
}

type arm struct {
	ID, Title, Verdict string
	Bad                bool
	Lanes              []lane
	Rows               []row
}

type lane struct{ Name, Does string }

type row struct {
	At, Who, Text, Fault string
	Cells                []string // what is drawn in each lane: "", "dot", "from", "to" or "line"
	Bad                  bool
}

var laneTexts = map[string]string{
	"customer": "writes messages", "agent": "a person who answers, too", "operator": "decides what is unknown", "api": "the process that enqueues",
	"queue": "hands out jobs", "ledger": "what the library writes down", "provider": "what really happens", "verdict": "by the provider's record",
}

// HTML writes one self-contained page with a lane for each worker, the ledger and the
// provider. without, the same without the library, may be nil, and beside is its title; would is what the rule
// that is switched off would have said, or "".
func HTML(w io.Writer, with, without *Result, beside, would string) error {
	p := page{Title: "A conversation under faults", Setting: with.setting(), Would: would}
	if with.Violation != "" {
		p.Title = sendText(with.Violation)
	}
	title := "With the library"
	if with.Config.Off != (Config{}).Off {
		title += ", one of its rules switched off"
	}
	p.Arms = append(p.Arms, with.arm("with", title))
	if without != nil {
		p.Arms = append(p.Arms, without.arm("without", beside))
	}
	return pageTemplate.Execute(w, p)
}

func (r *Result) arm(id, title string) arm {
	t := r.Tally
	a := arm{ID: id, Title: title, Bad: r.Violation != "" || t.Duplicates > 0}
	a.Verdict = fmt.Sprintf("%s, %s, %s", count(t.Messages, "message"), count(t.Answers, "answer"), count(t.Duplicates, "duplicate"))
	if r.Violation != "" {
		a.Verdict = "Broken: " + sendText(r.Violation)
	}
	lines := r.Lines()
	names := lanes(lines)
	for _, name := range names {
		does := laneTexts[name]
		if does == "" {
			does = "worker process"
		}
		a.Lanes = append(a.Lanes, lane{name, does})
	}
	for _, l := range lines {
		a.Rows = append(a.Rows, row{At: since(l.At), Who: l.who(), Text: l.Text, Fault: l.Fault, Bad: l.Bad, Cells: l.cells(names)})
	}
	return a
}

// who names the actor for a reader who sees one line alone.
func (l *Line) who() string {
	if l.Lane == "verdict" {
		return "the provider's record"
	}
	return l.Who
}

// cells draws a line into the lanes: a dot where it happens, and the way from who asked for it.
func (l *Line) cells(names []string) []string {
	other := ""
	switch {
	case l.Lane == "ledger":
		other = l.proc
	case l.send && l.Lane != "provider":
		other = "provider"
	}
	cells := make([]string, len(names))
	at, to := slices.Index(names, l.Lane), slices.Index(names, other)
	cells[at] = "dot"
	if to < 0 || to == at {
		return cells
	}
	for i := min(at, to); i <= max(at, to); i++ {
		cells[i] = "line"
	}
	cells[min(at, to)], cells[max(at, to)] = "left", "right"
	cells[at] += " dot"
	if l.send {
		cells[to] += " hit"
	}
	return cells
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Bare returns the world of a result without the library, and what it is: the one of the same
// choices if that duplicates, although without the library they answer other questions; else the
// shortest in the same setting that one fault leads to a duplicate.
func (e *Engine) Bare(cfg Config, found *Result) (Result, string) {
	cfg.Without = true
	setup := found.Choices[:min(found.Setup, len(found.Choices))]
	same := e.Replay(cfg, found.Choices, true)
	if same.Tally.Duplicates > 0 {
		return same, "Without it, in the same setting"
	}
	var best *Result
	for at := range 40 {
		for v := 1; v < 16 && v < max(cfg.Rate, 16); v++ {
			list := append(append(slices.Clone(setup), make([]int, at)...), v)
			if r := e.Replay(cfg, list, false); r.Tally.Duplicates > 0 && (best == nil || r.Tally.Steps < best.Tally.Steps) {
				best = &r
			}
		}
	}
	if best == nil {
		return same, "Without it, in the same setting"
	}
	return e.Replay(cfg, best.Choices, true), "Without it, in the same setting: one event is enough"
}

// Trail is a world's hash in words: the same on every machine.
func (r *Result) Trail() string { return hex(r.Hash) }

package story

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// width is the most columns of a line, except for a command, which is never broken.
const width = 100

// The colours of a terminal.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

// WriteText writes the story for people: in at most 100 columns, but that commands are not broken.
// color adds a terminal's colours.
func (s Story) WriteText(w io.Writer, color bool) error {
	p := &page{color: color}
	p.story(&s)
	_, err := io.WriteString(w, p.b.String())
	return err
}

// page is text being laid out.
type page struct {
	b     strings.Builder
	color bool
}

func (p *page) paint(style, text string) string {
	if !p.color || style == "" {
		return text
	}
	return style + text + plain
}

func (p *page) line(text string) { p.b.WriteString(strings.TrimRight(text, " ") + "\n") }

func (p *page) story(s *Story) {
	at := s.Now.Format("2006-01-02 15:04:05 MST")
	p.line(p.paint(bold, "Conversation "+visible(s.Conversation)) + ", as of " + at)
	if !s.Known {
		p.line("")
		p.wrap("", "", "The ledger knows nothing of it. Is that its name, and is this the ledger and the namespace? What is older than the retention is deleted.")
		return
	}
	p.line("")
	p.summary(s)
	p.entries(s)
	p.doubts(s)
	p.stopped(s)
	p.open(s)
	p.working(s)
}

// summary is what to know before anything else.
func (p *page) summary(s *Story) {
	var count = map[Problem]int{}
	for i := range s.Doubts {
		count[s.Doubts[i].Problem]++
	}
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, one)
		case n > 1:
			parts = append(parts, fmt.Sprintf(many, n))
		}
	}
	add(count[ProblemDuplicate], "one thing may have been done twice", "%d things may have been done twice")
	add(count[ProblemUnknown], "of one thing nobody knows whether it happened", "of %d things nobody knows whether they happened")
	add(len(s.Stopped), "one job stands still until somebody acts", "%d jobs stand still until somebody acts")
	add(count[ProblemUnderWay], "one call may be under way", "%d calls may be under way")
	add(len(s.Open), "one message is unanswered", "%d messages are unanswered")
	if len(parts) == 0 {
		p.line("Nothing is in doubt, and no message is unanswered.")
		return
	}
	style := ""
	if count[ProblemDuplicate]+count[ProblemUnknown]+len(s.Stopped) > 0 {
		style = bold + red
	}
	for i, text := range parts {
		if i > 0 {
			style = ""
		}
		p.line(p.paint(style, "* "+upper(text)+"."))
	}
}

func (p *page) heading(text string) {
	p.line("")
	p.line(p.paint(bold, text))
}

func (p *page) entries(s *Story) {
	who := 8
	for i := range s.Entries {
		if n := utf8.RuneCountInString(s.Entries[i].Who); n > who && n <= 22 {
			who = n
		}
	}
	indent := strings.Repeat(" ", 10+who+2)
	var day time.Time
	inferred := false
	p.heading("WHAT HAPPENED")
	if s.LeftOut > 0 {
		p.line(p.paint(faint, fmt.Sprintf("(%s before these are left out)", plural(s.LeftOut, "line"))))
	}
	claimed := false
	for i := range s.Entries {
		e := &s.Entries[i]
		claimed = claimed || e.Kind == KindClaimed
		if !sameDay(day, e.At) {
			day = e.At
			p.line(e.At.Format("Monday, 2006-01-02, MST"))
		}
		name := visible(e.Who)
		start := e.At.Format("15:04:05") + "  "
		if pad := who - utf8.RuneCountInString(name); pad >= 0 {
			start += name + strings.Repeat(" ", pad+2)
		} else {
			p.line(start + name)
			start = indent
		}
		text := e.Text
		if e.Inferred {
			text += " ~"
			inferred = true
		}
		style := ""
		if e.Alarm {
			style = red
		}
		p.wrapStyled(start, indent, text, style)
	}
	if claimed {
		p.legend("claimed: wrote down, before calling, that it is about to. Nobody else may call meanwhile.")
	}
	if inferred {
		p.legend("~ follows from other records; no record says it.")
	}
}

func (p *page) legend(text string) { p.line(p.paint(faint, "          "+text)) }

func (p *page) doubts(s *Story) {
	if len(s.Doubts) == 0 {
		return
	}
	p.heading("IN DOUBT")
	for i := range s.Doubts {
		d := &s.Doubts[i]
		p.wrapStyled(fmt.Sprintf("%d. ", i+1), "   ", strings.ToUpper(problemWords[d.Problem])+": "+named(d.Intent, d.Key), red)
		if d.Summary != "" {
			p.wrap("   ", "   ", quoted(d.Summary))
		}
		p.wrap("   ", "   ", d.Text)
		p.facts(d, s.Now)
		p.steps(d.Do)
	}
}

// facts are what to compare with what the provider shows.
func (p *page) facts(d *Doubt, now time.Time) {
	fact := func(name, value string) {
		if value != "" {
			p.wrap(fmt.Sprintf("     %-16s ", name), strings.Repeat(" ", 22), value)
		}
	}
	by := "without a job"
	if d.Job != "" {
		by = "by job " + d.Job + " of queue " + d.Queue
	}
	if d.Worker != "" {
		by += ", on " + d.Worker
	}
	fact("claimed", stamp(d.Since, now)+" "+by+"; its deadline: "+stamp(d.Deadline, now))
	fact("params", d.Params)
	fact("answers", strings.Join(d.Answers, ", "))
	fact("its error", d.Error)
	fact("idempotency key", d.IdempotencyKey)
	fact("reference", d.Reference)
}

var problemWords = map[Problem]string{
	ProblemUnderWay:  "may be under way",
	ProblemUnknown:   "unknown",
	ProblemDuplicate: "perhaps twice",
}

func (p *page) stopped(s *Story) {
	if len(s.Stopped) == 0 {
		return
	}
	p.heading("STOPPED JOBS")
	for i := range s.Stopped {
		j := &s.Stopped[i]
		p.wrap("*  ", "   ", "Job "+j.Job+" of queue "+j.Queue+", since "+stamp(j.Since, s.Now)+". "+j.Text)
		p.steps(j.Do)
	}
}

func (p *page) open(s *Story) {
	if len(s.Open) == 0 {
		return
	}
	p.heading("UNANSWERED MESSAGES")
	for i := range s.Open {
		m := &s.Open[i]
		p.wrap("*  ", "   ", m.ID+", here since "+stamp(m.Since, s.Now)+". "+m.Text)
		p.steps(m.Do)
	}
}

func (p *page) working(s *Story) {
	if len(s.Working) == 0 {
		return
	}
	p.heading("JOBS THAT GO ON BY THEMSELVES")
	for i := range s.Working {
		j := &s.Working[i]
		p.wrap("*  ", "   ", "Job "+j.Job+" of queue "+j.Queue+". "+j.Text)
	}
}

// steps are what to do, each with its command on a line of its own.
func (p *page) steps(do []Step) {
	for _, step := range do {
		end := "."
		if step.Command != "" {
			end = ":"
		}
		p.wrap("   - ", "     ", step.Text+end)
		if step.Command != "" {
			p.line("       " + p.paint(bold, visible(step.Command)))
		}
	}
}

func stamp(at, now time.Time) string {
	if sameDay(at, now) {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04:05")
}

func (p *page) wrap(start, indent, text string) { p.wrapStyled(start, indent, text, "") }

// wrapStyled breaks text between words. A word that is too long stands alone.
func (p *page) wrapStyled(start, indent, text, style string) {
	words := strings.Fields(visible(text))
	line := ""
	flush := func() {
		p.line(start + p.paint(style, line))
		start, line = indent, ""
	}
	for _, word := range words {
		next := word
		if line != "" {
			next = line + " " + word
		}
		if line != "" && utf8.RuneCountInString(start)+utf8.RuneCountInString(next) > width {
			flush()
			next = word
		}
		line = next
	}
	flush()
}

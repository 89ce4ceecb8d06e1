package checkup

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// width is the most columns of a line.
const width = 100

// The colours of a terminal.
var colors = map[Level]string{Problem: "\x1b[1;31m", Warning: "\x1b[33m", OK: "\x1b[32m"}

const plain = "\x1b[0m"

// WriteText writes the report for people, in at most 100 columns. color adds a terminal's colours.
func (r Report) WriteText(w io.Writer, color bool) error {
	var b strings.Builder
	count := map[Level]int{}
	for _, f := range r.Findings {
		count[f.Level]++
	}
	for i, f := range r.Findings {
		if i > 0 && r.Findings[i-1].Level != OK && f.Level == OK {
			b.WriteString("\n")
		}
		name := string(f.Level)
		if f.Level == Problem {
			name = strings.ToUpper(name)
		}
		label := fmt.Sprintf("%-8s ", name)
		wrap(&b, label, f.What, paint(color, colors[f.Level], label))
		if f.Level == OK {
			continue
		}
		if f.Why != "" {
			wrap(&b, "         ", f.Why, "")
		}
		if f.Do != "" {
			wrap(&b, "      -> ", f.Do, "")
		}
	}
	b.WriteString("\n" + summary(count) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func summary(count map[Level]int) string {
	if count[Problem]+count[Warning] == 0 {
		return "All is well: " + plural(count[OK], "check") + "."
	}
	return fmt.Sprintf("%s, %s; %s found all well.", plural(count[Problem], "problem"), plural(count[Warning], "warning"), plural(count[OK], "check"))
}

func paint(color bool, style, text string) string {
	if !color {
		return text
	}
	return style + text + plain
}

// wrap breaks text between words behind start, which shown replaces if it is not "".
func wrap(b *strings.Builder, start, text, shown string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(start))
	if shown == "" {
		shown = start
	}
	line := ""
	flush := func() {
		b.WriteString(strings.TrimRight(shown+line, " ") + "\n")
		shown, line = indent, ""
	}
	for word := range strings.FieldsSeq(visible(text)) {
		next := word
		if line != "" {
			next = line + " " + word
		}
		if line != "" && len(indent)+utf8.RuneCountInString(next) > width {
			flush()
			next = word
		}
		line = next
	}
	flush()
}

// visible replaces what a terminal would act on: errors of servers and names are of others.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\ufffd'
		}
		return r
	}, s)
}

package operator

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
)

// width is the longest line that is printed for people, where ids allow it.
const width = 100

// screen is what people read. Only the first error counts, and Flush tells it.
type screen struct {
	*bufio.Writer
	colour  bool
	program string // how the next command begins
}

func (a *app) screen() *screen {
	return &screen{Writer: bufio.NewWriter(a.stdout), colour: colourful(a.stdout), program: a.place.program()}
}

// colourful reports whether w is a terminal whose owner likes colours (https://no-color.org).
func colourful(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (s *screen) printf(format string, args ...any) { fmt.Fprintf(s, format, args...) }

// field prints one line of a block, and nothing for an empty value.
func (s *screen) field(name, value string) {
	if value != "" {
		s.printf("  %-13s %s\n", name, value)
	}
}

// The colours: what is wrong, what may become so, what is a name to look for.
func (s *screen) red(text string) string    { return s.paint("31;1", text) }
func (s *screen) yellow(text string) string { return s.paint("33", text) }
func (s *screen) bold(text string) string   { return s.paint("1", text) }

func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// next ends a list with what to type.
func (s *screen) next(commands ...string) {
	s.printf("\nNext:\n")
	for _, c := range commands {
		if rest, ok := strings.CutPrefix(c, "fencedrun "); ok {
			c = s.program + " " + rest
		}
		s.printf("  %s\n", c)
	}
}

// show prints doc as JSON, or what text writes.
func (a *app) show(doc any, text func(s *screen)) error {
	if a.json {
		return a.printJSON(doc)
	}
	s := a.screen()
	text(s)
	return s.Flush()
}

func (a *app) printJSON(doc any) error {
	s := a.screen()
	err := json.MarshalWrite(s, doc, jsontext.WithIndent("  "), json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	s.printf("\n")
	return s.Flush()
}

// table is rows of cells under a heading. Cells of columns that are not fixed are cut where a line
// would become too long.
type table struct {
	columns []column
	rows    [][]string
}

type column struct {
	name  string
	fixed bool // ids, which people copy
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(s *screen) {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = len(c.name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	t.shrink(widths)
	heading := make([]string, len(t.columns))
	for i, c := range t.columns {
		heading[i] = c.name
	}
	for n, row := range append([][]string{heading}, t.rows...) {
		line := " "
		for i, cell := range row {
			cell = cut(cell, widths[i])
			line += " " + cell + strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0)+1)
		}
		line = strings.TrimRight(line, " ")
		if n == 0 {
			line = s.bold(line)
		}
		s.printf("%s\n", line)
	}
}

// least is the narrowest that a column is made.
const least = 8

func (t *table) shrink(widths []int) {
	for {
		total, widest := 1, -1
		for i, w := range widths {
			total += w + 2
			if !t.columns[i].fixed && w > least && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if total <= width || widest < 0 {
			return
		}
		widths[widest]--
	}
}

// cut shortens text to n characters.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	runes := []rune(text)
	return string(runes[:max(n-1, 0)]) + "…"
}

func head(text string, n int) string { return cut(line(text), n) }

// line makes text of customers and models safe to print: one line, and nothing that a terminal
// obeys.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r
	}, text)
	return strings.TrimSpace(text)
}

// quoted is text as one line in quotes, "" for none.
func quoted(text string, n int) string {
	if text == "" {
		return ""
	}
	return `"` + head(text, n) + `"`
}

// What is printed to be typed next.
func whyCommand(conversation string) string {
	return shell.Command("fencedrun why", []string{conversation})
}

func historyCommand(conversation string) string {
	return shell.Command("fencedrun history", []string{conversation})
}

// plural writes a number with its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

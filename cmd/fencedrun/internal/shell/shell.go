// Package shell writes commands that can be pasted into a shell, whatever names they have in them.
package shell

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Word writes a name as one word. Nothing in it is acted upon by a terminal that shows it.
func Word(name string) string {
	plain := name != ""
	printable := true
	for _, r := range name {
		if !strings.ContainsRune("_./:@%+=,-", r) && !(r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))) {
			plain = false
		}
		if r != ' ' && !unicode.IsPrint(r) || r == utf8.RuneError {
			printable = false
		}
	}
	switch {
	case plain && name[0] != '-':
		return name
	case printable:
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(name) {
		switch c := name[i]; {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}

// Command writes a command with the arguments and the flags that follow its verb. Flags are written as
// they are; the arguments are names. One that begins with a dash comes behind the flags, and is not
// taken for one of them.
func Command(verb string, names []string, flags ...string) string {
	var words []string
	for _, name := range names {
		words = append(words, Word(name))
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		return strings.Join(slices.Concat([]string{verb}, flags, []string{"--"}, words), " ")
	}
	return strings.Join(slices.Concat([]string{verb}, words, flags), " ")
}

// Item writes a name as the value of a flag that takes several, with commas between them.
func Item(name string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{name}) // to memory
	w.Flush()
	return Word(strings.TrimSuffix(b.String(), "\n"))
}

package operator

import (
	"bufio"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencedrun/fencedrun/fence"
)

func TestATerminalIsToldNothingByCustomers(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "two\nlines\t": "two lines", "\x1b[31mred": "\uFFFD[31mred", "a\u202eb": "a\uFFFDb", "bell\a": "bell\uFFFD", "größer 字": "größer 字",
	} {
		if got := line(text); got != want {
			t.Errorf("%q is printed as %q, want %q", text, got, want)
		}
	}
}

func TestATableFitsAndKeepsIDs(t *testing.T) {
	var b strings.Builder
	s := &screen{Writer: bufio.NewWriter(&b)}
	table := table{columns: []column{{"ID", true}, {"WHAT", false}, {"TEXT", false}}}
	id := strings.Repeat("i", 40)
	table.add(id, strings.Repeat("w", 80), strings.Repeat("ü", 200))
	table.add("short", "w", "t")
	table.write(s)
	_ = s.Flush()
	for l := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > width {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	if !strings.Contains(b.String(), id+"  w") || !strings.Contains(b.String(), "ü…") {
		t.Errorf("an id is cut, or a text is not:\n%s", b.String())
	}
}

func TestShortIDsTellEffectsApart(t *testing.T) {
	var all []target
	ids := []string{"aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaab", "aaaaaaaaaaaabbbb", "bcdefghijklmnop", "bcdefghi"}
	for _, id := range ids {
		all = append(all, target{effect: &fence.Effect{ID: id}})
	}
	shorten(all, ids)
	for i, want := range []string{"aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaab", "aaaaaaaaaaaab", "bcdefghij", "bcdefghi"} {
		if all[i].short != want {
			t.Errorf("%s is shortened to %s, want %s", all[i].effect.ID, all[i].short, want)
		}
	}
}

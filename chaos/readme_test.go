package chaos_test

import (
	"os"
	"strings"
	"testing"
)

// What README.md shows of chaos is what example_test.go runs, word for word.
func TestTheReadmeShowsTheTestedExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := string(source)
	_, output, _ := strings.Cut(code, "\t// Output:\n")
	output, _, _ = strings.Cut(output, "\n}\n")
	var report strings.Builder
	for line := range strings.Lines(output) {
		report.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "\t//"), " "))
	}
	for mark, want := range map[string]string{"careless": code, "careful": code, "everywhere": code, "report": report.String()} {
		_, after, begins := strings.Cut(string(readme), "<!-- "+mark+" -->\n")
		shown, _, ends := strings.Cut(after, "<!-- /"+mark+" -->")
		if !begins || !ends {
			t.Errorf("README.md has no marks around %q", mark)
			continue
		}
		shown = strings.TrimSpace(shown)
		shown = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(shown, "```go\n"), "```\n"), "\n```")
		if !strings.Contains(want, shown) || len(shown) < 100 {
			t.Errorf("README.md shows under %q what is not in example_test.go:\n%s", mark, shown)
		}
	}
}

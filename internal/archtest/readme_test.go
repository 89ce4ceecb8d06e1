package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README's quick start is the body of a tested example, word for word: what a newcomer
// copies compiles and prints what the README says.
func TestTheReadmesQuickStartIsATestedExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(readme), "<!-- quickstart -->\n")
	shown, _, end := strings.Cut(after, "<!-- /quickstart -->")
	if !ok || !end {
		t.Fatal("README.md has no quick start between its two marks")
	}
	shown = strings.TrimSpace(shown)
	shown = strings.TrimSuffix(strings.TrimPrefix(shown, "```go\n"), "\n```")
	if tested := quickStart(t); shown != tested {
		t.Errorf("README.md shows\n%s\n\nand the example is\n%s", shown, tested)
	}
}

// quickStart returns the body of Example_quickStart, one tab less deep.
func quickStart(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../../runs/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, body, ok := strings.Cut(string(text), "func Example_quickStart() {\n")
		if !ok {
			continue
		}
		body, _, _ = strings.Cut(body, "\n}\n")
		lines := strings.Split(body, "\n")
		for i, line := range lines {
			lines[i] = strings.TrimPrefix(line, "\t")
		}
		return strings.Join(lines, "\n")
	}
	t.Fatal("no Example_quickStart in runs")
	return ""
}

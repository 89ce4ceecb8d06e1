package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hazardsHeading is where docs/reliability.md says which test keeps which promise.
const hazardsHeading = "## Hazards, row by row"

// fewestHazards is how many tests that section names at least.
const fewestHazards = 40

// namedTest is how a table names a test: `adapters/river.TestName` or `internal/live.TestName/subtest`.
var namedTest = regexp.MustCompile("`([a-z][a-z0-9/_-]*)\\.((?:Test|Fuzz|Example)[A-Za-z0-9_]*)(?:/([^`]+))?`")

// testsNamed lists the tests that the tables of a Markdown text name, as folder, function and subtest.
func testsNamed(markdown string) [][3]string {
	var found [][3]string
	for line := range strings.Lines(markdown) {
		if !strings.HasPrefix(strings.TrimSpace(line), "|") {
			continue
		}
		for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
			found = append(found, [3]string{m[1], m[2], m[3]})
		}
	}
	return found
}

// tests are what a folder's tests are called: its functions, and every string in it, one of which a
// subtest's name must be.
type tests struct{ functions, strings map[string]bool }

// scenarioFolder holds the names of the subtests of each adapter's TestScenarios.
const scenarioFolder = "adapters/internal/adaptertest/scenarios"

func testsOf(folder string) (tests, error) {
	found := tests{map[string]bool{}, map[string]bool{}}
	for _, pattern := range []string{folder + "/*_test.go", scenarioFolder + "/*.go"} {
		files, err := filepath.Glob(filepath.Join(root(), filepath.FromSlash(pattern)))
		if err != nil {
			return found, err
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return found, err
			}
			found.add(file)
		}
	}
	return found, nil
}

func (f tests) add(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil {
				f.functions[n.Name.Name] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				f.strings[text] = true
			}
		}
		return true
	})
}

// wrongTests lists the tests that the tables of a Markdown text name and that do not exist.
func wrongTests(markdown string) ([]string, error) {
	var wrong []string
	folders := map[string]tests{}
	for _, named := range testsNamed(markdown) {
		folder, function, subtest := named[0], named[1], named[2]
		if _, ok := folders[folder]; !ok {
			found, err := testsOf(folder)
			if err != nil {
				return nil, err
			}
			folders[folder] = found
		}
		switch have := folders[folder]; {
		case !have.functions[function]:
			wrong = append(wrong, fmt.Sprintf("%s has no test %s", folder, function))
		case subtest != "" && !have.strings[subtest]:
			wrong = append(wrong, fmt.Sprintf("%s.%s has no subtest %q", folder, function, subtest))
		}
	}
	return wrong, nil
}

// Whoever renames a test that docs/reliability.md points at hears of it.
func TestEveryTestThatReliabilityNamesExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(), "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), hazardsHeading+"\n")
	if !ok {
		t.Skipf("docs/reliability.md has no section %q yet", hazardsHeading)
	}
	if n := len(testsNamed(section)); n < fewestHazards {
		t.Errorf("it names %d tests, want at least %d: is the table still one?", n, fewestHazards)
	}
	wrong, err := wrongTests(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

func TestATestThatDoesNotExistIsFound(t *testing.T) {
	wrong, err := wrongTests("`adapters/river.TestNotInATable`\n" +
		"| a row | `adapters/river.TestScenarios`, `adapters/river.TestScenarios/fresh job is done` |\n" +
		"| another | `adapters/river.TestGone` and `internal/nowhere.TestScenarios` |\n" +
		"| a third | `adapters/river.TestScenarios/no such scenario`, `runs.Keeper` |\n")
	want := []string{
		"adapters/river has no test TestGone",
		"internal/nowhere has no test TestScenarios",
		`adapters/river.TestScenarios has no subtest "no such scenario"`,
	}
	if err != nil || !slices.Equal(wrong, want) {
		t.Errorf("got %q, %v; want %q", wrong, err, want)
	}
}

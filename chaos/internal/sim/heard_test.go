package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plantedIn are the kinds of violations that a test of its own plants, and that test.
var plantedIn = map[string]string{
	"busy": "TestWhatStaysBusyIsNoticed",
}

// oracle is one place at which the package says that something is wrong.
type oracle struct{ kind, format, at string }

func (o oracle) isHeardBy(s silent) bool {
	return o.kind == s.kind && strings.Contains(o.format, s.says)
}

var verb = regexp.MustCompile(`%[a-z]`)

// says reports whether a violation is o's. Where the format is no literal, any of its kind is.
func (o oracle) says(kind, text string) bool {
	parts := verb.Split(o.format, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return kind == o.kind && (o.format == "" || regexp.MustCompile("(?s)^"+strings.Join(parts, ".*")+"$").MatchString(text))
}

// unheard are the oracles of which it is not known that anything makes them speak: no plant, and
// no cell of the self-test. Which of several oracles of one kind a cell hears is only known when
// it is played.
func (e *Engine) unheard(oracles []oracle) ([]oracle, error) {
	known, err := Known()
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(oracles, func(o oracle) bool {
		return plantedIn[o.kind] != "" || slices.ContainsFunc(silents, o.isHeardBy)
	})
	wanted := func(c Cell) bool {
		return slices.ContainsFunc(left, func(o oracle) bool { return word(o.kind) == c.Kind })
	}
	for {
		for _, c := range known.Cells {
			if !wanted(c) {
				continue
			}
			r, err := e.Play(c)
			if err != nil {
				return nil, err
			}
			left = slices.DeleteFunc(left, func(o oracle) bool { return o.says(r.Kind, r.Violation) })
		}
		// Where the code has changed and a cell's world is another one, others like it are tried.
		known.Cells = slices.DeleteFunc(known.Cells, func(c Cell) bool { return !wanted(c) })
		v, err := e.Verify(known)
		if err != nil || v.Stale == 0 {
			return left, err
		}
		known = v.Selftest
	}
}

// An oracle that is added must be heard: by the self-test, by a plant of silent_test.go, or by a
// test that plantedIn names.
func TestEveryOracleIsHeard(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	oracles, tests := readOracles(t)
	if len(oracles) < 60 {
		t.Fatalf("only %d oracles are found: does this test still know one when it sees it?", len(oracles))
	}
	left, err := e.unheard(slices.Clone(oracles))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range left {
		t.Errorf("%s: nothing is known to make this speak: %q %q; plant what it looks at in silent_test.go, or let FENCEDRUN_SELFTEST look for it", o.at, o.kind, o.format)
	}
	for _, s := range silents {
		n := 0
		for _, o := range oracles {
			if o.isHeardBy(s) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q %q is the sentence of %d oracles", s.kind, s.says, n)
		}
	}
	for kind, name := range plantedIn {
		if !slices.Contains(tests[name], kind) {
			t.Errorf("%q should be heard by %s, which does not speak of it", kind, name)
		}
	}
}

func TestAnOracleThatNothingMakesSpeakIsTold(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	mute := []oracle{
		{kind: "mute", format: "of a kind of its own"},
		{kind: "pending", format: "%s is pending somehow"}, // of a kind that is planted
		{kind: "durable", format: "%s is durable enough"},  // of a kind that the self-test hears
	}
	left, err := e.unheard(append(slices.Clone(mute), oracle{kind: "duplicate"}, oracle{kind: "busy"}))
	if err != nil || !slices.Equal(left, mute) {
		t.Errorf("%v, %v", left, err)
	}
}

// readOracles reads the package's source: the oracles, and the strings in each of its tests.
func readOracles(t *testing.T) (oracles []oracle, tests map[string][]string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	tests = map[string][]string{}
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
			case strings.HasSuffix(name, "_test.go"):
				ast.Inspect(fn, func(n ast.Node) bool {
					if lit, ok := n.(*ast.BasicLit); ok {
						tests[fn.Name.Name] = append(tests[fn.Name.Name], unquoted(lit))
					}
					return true
				})
			default:
				ast.Inspect(fn, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "fail" {
						o := oracle{kind: unquoted(call.Args[0]), format: unquoted(call.Args[1]), at: set.Position(call.Pos()).String()}
						if oracles = append(oracles, o); o.kind == "" {
							t.Errorf("%s: the kind is no literal, so nobody can tell whether it is ever heard", o.at)
						}
					}
					return true
				})
			}
		}
	}
	return oracles, tests
}

// unquoted is a literal string, "" for anything else.
func unquoted(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	return ""
}

package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// words are what a store may know of fence: how the driver interface writes time, and what the
// columns beside a row's bytes mean. Everything else there is a rule or a record, and a store
// that can see neither cannot get one wrong.
var words = []string{
	"Millis", "MillisOf",
	"Index", "OpenKind", "NotOpen", "UnresolvedEffect", "OpenInbound", "MaxOpen",
}

// ruleMentions lists the names of fence in one file of a store that are not just words.
func ruleMentions(fset *token.FileSet, name string, src any) ([]string, error) {
	file, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		return nil, err
	}
	local := ""
	for _, spec := range file.Imports {
		if spec.Path.Value != `"`+modulePath+`/fence"` {
			continue
		}
		local = "fence"
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			return []string{name + ": dot import of fence"}, nil
		}
	}
	if local == "" {
		return nil, nil
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && x.Obj == nil && !slices.Contains(words, sel.Sel.Name) {
			found = append(found, fmt.Sprintf("%s:%d: fence.%s", name, fset.Position(sel.Pos()).Line, sel.Sel.Name))
		}
		return true
	})
	return found, nil
}

func TestAStoreSeesNoRule(t *testing.T) {
	g := loaded(t)
	fset := token.NewFileSet()
	for _, name := range g.own() {
		if !matches("ledger/*", name) || !strings.HasSuffix(name, "ledger") {
			continue
		}
		for _, file := range g.get(name).GoFiles {
			src, err := os.ReadFile(filepath.Join(g.get(name).Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			found, err := ruleMentions(fset, name+"/"+file, src)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range found {
				t.Errorf("%s is no word that a store may know: the ledger decides", m)
			}
		}
	}
}

func TestAStoreThatKnowsARuleIsNoticed(t *testing.T) {
	const src = `package p

import rules "github.com/fencedrun/fencedrun/fence"

func f(due rules.Millis, e *rules.Effect) bool { return e.State == rules.Pending && due > 0 }
`
	found, err := ruleMentions(token.NewFileSet(), "p.go", src)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"p.go:5: fence.Effect", "p.go:5: fence.Pending"}
	if !slices.Equal(found, want) {
		t.Errorf("noticed %q, want %q", found, want)
	}
}

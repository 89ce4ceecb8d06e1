package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A simulator can repeat an execution only if everything that would make two of them differ
// comes from it. So in the packages that it drives these constructs stand in internal/seam and
// nowhere else. What looks harmless is not: a receive blocks where no scheduler can see it, and
// a sync.WaitGroup both starts goroutines and waits for them.

// bannedNames are the package-level names that must not be mentioned, by import path.
var bannedNames = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "AfterFunc"},
	"sync":    {"WaitGroup", "Cond", "NewCond"},
	"runtime": {"Gosched"},
}

// bannedImports must not be imported at all.
var bannedImports = []string{"math/rand", "math/rand/v2", "crypto/rand", "github.com/google/uuid", "golang.org/x/sync/errgroup"}

// use is one banned construct at one place.
type use struct {
	file string // relative to the module, with slashes
	line int
	what string
}

func (u use) String() string { return fmt.Sprintf("%s:%d: %s", u.file, u.line, u.what) }

// uses lists the banned constructs of one file.
func uses(fset *token.FileSet, name string, src any) ([]use, error) {
	file, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		return nil, err
	}
	var found []use
	add := func(at ast.Node, what string) {
		found = append(found, use{file: name, line: fset.Position(at.Pos()).Line, what: what})
	}

	imported := make(map[string]string) // local name → import path
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if slices.Contains(bannedImports, path) {
			add(spec, "import "+path)
		}
		local := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if _, ok := bannedNames[path]; ok && local == "." {
			add(spec, "dot import of "+path)
		}
		imported[local] = path
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(n, "go")
		case *ast.SelectStmt:
			add(n, "select")
		case *ast.SendStmt:
			add(n, "send")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				add(n, "receive")
			}
		case *ast.SelectorExpr:
			// An identifier that the parser resolved is a variable, not a package.
			if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && slices.Contains(bannedNames[imported[x.Name]], n.Sel.Name) {
				add(n, imported[x.Name]+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found, nil
}

// driven returns the packages that a simulator drives: the public ones and whatever of this
// module they compile, without the seam. The concrete ledgers that talk to a database are
// here too, because their exceptions should be few, named and reasoned.
func driven(g graph) []*pkg {
	names := make(map[string]bool)
	for _, name := range g.own() {
		if !slices.ContainsFunc([]string{"fence", "ledger/...", "runs", "adapters/*"}, func(p string) bool { return matches(p, name) }) {
			continue
		}
		if slices.ContainsFunc(testers, func(p string) bool { return matches(p, name) }) {
			continue
		}
		names[name] = true
		for _, dep := range g.get(name).Deps {
			if own, ok := ownName(dep); ok {
				names[own] = true
			}
		}
	}
	delete(names, "internal/seam")
	var packages []*pkg
	for name := range names {
		if p := g.get(name); p != nil {
			packages = append(packages, p)
		}
	}
	slices.SortFunc(packages, func(a, b *pkg) int { return cmp.Compare(a.ImportPath, b.ImportPath) })
	return packages
}

// allowance is one line of testdata/allowed.txt.
type allowance struct {
	file, what, reason string
	used               bool
}

func allowances(t *testing.T) []*allowance {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "allowed.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*allowance
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " | ", 3)
		if len(fields) != 3 || strings.TrimSpace(fields[2]) == "" {
			t.Fatalf("testdata/allowed.txt:%d: want file | construct | reason, got %q", i+1, line)
		}
		all = append(all, &allowance{
			file: strings.TrimSpace(fields[0]), what: strings.TrimSpace(fields[1]), reason: strings.TrimSpace(fields[2]),
		})
	}
	return all
}

func TestTimeConcurrencyAndRandomnessPassThroughTheSeam(t *testing.T) {
	allowed := allowances(t)
	fset := token.NewFileSet()
	for _, p := range driven(loaded(t)) {
		dir, ok := ownName(p.ImportPath)
		if !ok {
			t.Fatalf("%s is no package of this module", p.ImportPath)
		}
		for _, name := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			found, err := uses(fset, dir+"/"+name, src)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range found {
				i := slices.IndexFunc(allowed, func(a *allowance) bool { return a.file == u.file && a.what == u.what })
				if i < 0 {
					t.Errorf("%v belongs into internal/seam (or, with a reason, into testdata/allowed.txt)", u)
					continue
				}
				allowed[i].used = true
			}
		}
	}
	for _, a := range allowed {
		if !a.used {
			t.Errorf("testdata/allowed.txt allows %s in %s, which no longer needs it", a.what, a.file)
		}
	}
}

func TestEveryBannedConstructIsSeen(t *testing.T) {
	const src = `package p

import (
	"context"
	_ "crypto/rand"
	"math/rand/v2"
	. "runtime"
	"sync"
	clock "time"
)

type holder struct{ wg sync.WaitGroup }

func f(ctx context.Context, c chan int, seam struct{ Now func() clock.Time }) {
	go f(ctx, c, seam)
	select {
	case <-ctx.Done():
	default:
	}
	c <- rand.Int()
	now := clock.Now
	_, _ = context.WithTimeout(ctx, clock.Second)
	{
		clock := seam
		_ = clock.Now()
	}
	_, _ = now, seam.Now()
}
`
	found, err := uses(token.NewFileSet(), "p.go", src)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range found {
		got = append(got, strconv.Itoa(u.line)+" "+u.what)
	}
	want := []string{
		"5 import crypto/rand", "6 import math/rand/v2", "7 dot import of runtime", "12 sync.WaitGroup",
		"15 go", "16 select", "17 receive", "20 send", "21 time.Now", "22 context.WithTimeout",
	}
	if !slices.Equal(got, want) {
		t.Errorf("saw\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

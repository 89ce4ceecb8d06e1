package archtest

import (
	"bytes"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A map is walked through in another order each time. In the packages that a simulator drives an
// execution must not depend on it: sort the keys, or say in testdata/maps.txt why the order cannot
// be seen.

// mapWalk is one range over a map.
type mapWalk struct {
	file string
	line int
	over string // the expression
}

// walks lists the ranges over maps of a package's files.
func walks(fset *token.FileSet, path string, files []*ast.File, imports types.Importer) ([]mapWalk, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: imports}
	if _, err := config.Check(path, fset, files, info); err != nil {
		return nil, err
	}
	var found []mapWalk
	note := func(n ast.Node, x ast.Expr) {
		at := fset.Position(n.Pos())
		found = append(found, mapWalk{at.Filename, at.Line, types.ExprString(x)})
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			if _, ok := info.TypeOf(loop.X).Underlying().(*types.Map); ok {
				note(loop, loop.X)
			}
			// maps.Keys, maps.Values and maps.All are the same walk, unless they are sorted.
			if call, ok := loop.X.(*ast.CallExpr); ok && strings.HasPrefix(types.ExprString(call.Fun), "maps.") {
				note(loop, loop.X)
			}
			return true
		})
	}
	return found, nil
}

// compiledImports imports packages from what the go command has compiled.
func compiledImports(t *testing.T, fset *token.FileSet, of []*pkg) types.Importer {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	for _, p := range of {
		args = append(args, p.ImportPath)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("not compiled: " + path)
		}
		return os.Open(exports[path])
	})
}

func TestNothingDependsOnTheOrderOfAMap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "maps.txt"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{} // "file | expression", and whether it was needed
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " | ", 3)
		if len(fields) != 3 || fields[2] == "" {
			t.Fatalf("testdata/maps.txt: want file | expression | reason, got %q", line)
		}
		allowed[fields[0]+" | "+fields[1]] = false
	}
	fset := token.NewFileSet()
	packages := driven(loaded(t))
	imports := compiledImports(t, fset, packages)
	for _, p := range packages {
		dir, _ := ownName(p.ImportPath)
		var files []*ast.File
		for _, name := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(fset, dir+"/"+name, src, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		found, err := walks(fset, p.ImportPath, files, imports)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range found {
			k := w.file + " | " + w.over
			if _, ok := allowed[k]; !ok {
				t.Errorf("%s:%d walks through the map %s in another order each time: sort its keys, or say in testdata/maps.txt why nobody can see the order", w.file, w.line, w.over)
				continue
			}
			allowed[k] = true
		}
	}
	for k, needed := range allowed {
		if !needed {
			t.Errorf("testdata/maps.txt allows %s, which is not there any more", k)
		}
	}
}

func TestEveryWalkThroughAMapIsSeen(t *testing.T) {
	const src = `package p

type named map[string]int

func f(a map[int]int, b named, c []int, d struct{ m map[string]bool }) {
	for range a {
	}
	for k := range b {
		_ = k
	}
	for range c {
	}
	for k, v := range d.m {
		_, _ = k, v
	}
}
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", bytes.NewReader([]byte(src)), 0)
	if err != nil {
		t.Fatal(err)
	}
	found, err := walks(fset, "p", []*ast.File{file}, importer.Default())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range found {
		got = append(got, strconv.Itoa(w.line)+" "+w.over)
	}
	if want := []string{"6 a", "8 b", "13 d.m"}; !slices.Equal(got, want) {
		t.Errorf("saw %q, want %q", got, want)
	}
}

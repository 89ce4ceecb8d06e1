package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/fencedrun/fencedrun"

// pkg is what these tests want to know of a package, as go list prints it.
type pkg struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string // of the package itself, without its tests
	Deps       []string // everything it compiles
}

// graph is every package of the module and everything that they compile, by import path.
type graph map[string]*pkg

// own returns the import paths of the module's own packages, sorted, without the module's
// path: "runs", "ledger/memledger".
func (g graph) own() []string {
	var names []string
	for path := range g {
		if name, ok := ownName(path); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// get returns the module's package called name, or nil where it does not exist.
func (g graph) get(name string) *pkg { return g[modulePath+"/"+name] }

// has reports whether there is more to the module's package called name than tests.
func (g graph) has(name string) bool {
	p := g.get(name)
	return p != nil && len(p.GoFiles) > 0
}

// ownName cuts the module's path off an import path; false for packages of other modules.
func ownName(path string) (string, bool) { return strings.CutPrefix(path, modulePath+"/") }

// root is the module's directory as seen from a test of this package.
var root = sync.OnceValue(func() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return dir
})

var load = sync.OnceValues(func() (graph, error) {
	// go test caches a result until a file changes that the test opened. What go list opens is
	// not seen, so every directory is read here too.
	err := filepath.WalkDir(root(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := run(root(), nil, "list", "-e", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,Imports,Deps", "./...")
	if err != nil {
		return nil, err
	}
	g := make(graph)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return g, nil
		} else if err != nil {
			return nil, fmt.Errorf("archtest: reading go list: %w", err)
		}
		g[p.ImportPath] = p
	}
})

// run calls the go command in dir, with env on top of the process's own.
func run(dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("archtest: go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

func loaded(t *testing.T) graph {
	t.Helper()
	g, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The other tests say nothing about a package that is not there. This one makes sure that a
// renamed or deleted package does not take its rules with it.
func TestThePackagesThatTheRulesNameExist(t *testing.T) {
	g := loaded(t)
	for _, name := range []string{
		"fence", "ledger", "ledger/memledger", "ledger/sqliteledger", "ledger/pgledger", "ledger/redisledger", "ledger/ledgertest",
		"runs", "runs/runstest", "adapters/asynq", "adapters/river", "adapters/internal/adaptertest",
		"examples/support-bot", "internal/seam", "internal/sabotage", "internal/services", "internal/services/private",
	} {
		if !g.has(name) {
			t.Errorf("package %s does not exist", name)
		}
	}
}

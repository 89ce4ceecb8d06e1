package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// arrow says which of the module's own packages the packages that match one pattern may import.
type arrow struct {
	from string   // a path.Match pattern, or one ending in "/..." for a whole subtree
	to   []string // the same, for what it may import; its own subtree included only if listed
	why  string
}

// arrows are tried in order; the first whose from matches is the one that counts. Every package
// has one: a new package that has none fails the test, which is when its tier is decided.
var arrows = []arrow{
	{"fence", []string{"internal/sabotage"}, "the rules are pure: no clock, no I/O, no encoding"},

	{"internal/archtest", nil, "it looks at the module from outside"},
	{"internal/sabotage", nil, "every tier imports it, so it imports none"},
	{"internal/seam", []string{"internal/sabotage"}, "every tier above fence imports it, so it imports none"},
	{"internal/...", []string{"internal/..."}, "a helper that knows a tier belongs into that tier"},

	{"ledger/key", []string{"internal/..."}, "keys are frozen: they depend on nothing that changes with the rules"},
	{"ledger", []string{"fence", "ledger/key", "internal/..."}, "the ledger knows the rules and the driver interface, no driver"},
	{"ledger/ledgertest", []string{"fence", "ledger", "ledger/key", "internal/..."}, "the contract is about any store, so it names none"},
	{"ledger/*", []string{"fence", "ledger", "ledger/key", "internal/..."}, "a store keeps rows, and of fence it uses only words: see TestAStoreSeesNoRule"},

	{"runs", []string{"fence", "ledger", "ledger/key", "internal/..."}, "users choose the ledger and the queue, not runs"},
	{"runs/runstest", []string{"runs", "fence", "ledger", "ledger/key", "ledger/memledger", "internal/..."}, "users' tests run on the memory ledger and on no queue"},

	{"adapters/internal/adaptertest", []string{"runs", "runs/runstest", "fence", "ledger", "ledger/...", "internal/...", "adapters/internal/..."},
		"one scenario set plays through every adapter, so it names none"},
	{"adapters/internal/adaptertest/*", []string{"runs", "runs/runstest", "fence", "ledger", "ledger/...", "internal/...", "adapters/*", "adapters/internal/..."},
		"a queue's harness knows its queue and adapter"},
	{"adapters/internal/...", []string{"runs", "fence", "ledger", "ledger/key", "internal/...", "adapters/internal/..."}, "shared by adapters, so it names none"},
	{"adapters/*", []string{"runs", "fence", "ledger", "ledger/key", "internal/...", "adapters/internal/..."}, "one queue each, and the ledger is the user's choice"},

	{"chaos/...", []string{"fence", "ledger", "ledger/...", "runs", "runs/...", "adapters/...", "chaos", "chaos/...", "internal/..."}, "chaos drives everything beneath it, no program"},
	{"cmd/...", []string{"..."}, "programs are the top"},
	{"examples/...", []string{"..."}, "programs are the top"},
}

func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == parent || strings.HasPrefix(name, parent+"/")
	}
	ok, err := path.Match(pattern, name)
	if err != nil {
		panic(err)
	}
	return ok
}

// wrongArrows lists the imports among the module's own packages that point where they must not.
func wrongArrows(g graph) []string {
	var wrong []string
	for _, name := range g.own() {
		i := slices.IndexFunc(arrows, func(a arrow) bool { return matches(a.from, name) })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("%s has no arrow: decide its tier in arrows_test.go and in .golangci.yaml", name))
			continue
		}
		for _, imported := range g.get(name).Imports {
			to, ok := ownName(imported)
			if ok && !slices.ContainsFunc(arrows[i].to, func(p string) bool { return matches(p, to) }) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", name, to, arrows[i].why))
			}
		}
	}
	return wrong
}

func TestImportsPointDownOnly(t *testing.T) {
	for _, w := range wrongArrows(loaded(t)) {
		t.Error(w)
	}
}

// The modules that packages must not compile, by the prefixes of their import paths.
var (
	pgx       = []string{"github.com/jackc/"}
	redis     = []string{"github.com/redis/", "github.com/alicebob/"}
	riverMods = []string{"github.com/riverqueue/"}
	asynqMods = []string{"github.com/hibiken/"}
	sqlite    = []string{"modernc.org/"}
)

// compiled says what the named packages must not compile, however indirectly.
var compiled = []struct {
	from string
	ban  [][]string
	why  string
}{
	{"fence", [][]string{{"github.com/", "go.", "golang.org/", "modernc.org/"}}, "the core is the standard library and internal/sabotage"},
	{"internal/sabotage", [][]string{{"github.com/", "go.", "golang.org/", "modernc.org/"}}, "it is part of the core"},
	{"internal/seam", [][]string{{"github.com/", "go.", "golang.org/", "modernc.org/"}}, "it is the standard library's time and goroutines, wrapped"},
	{"ledger", [][]string{pgx, redis, riverMods, asynqMods, sqlite}, "a user compiles the driver of the ledger chosen, no other"},
	{"runs", [][]string{pgx, redis, riverMods, asynqMods, sqlite}, "a user compiles the queue and the ledger chosen, no other"},
	{"ledger/memledger", [][]string{pgx, redis, riverMods, asynqMods, sqlite}, "the memory ledger has no driver"},
	{"ledger/sqliteledger", [][]string{pgx, redis, riverMods, asynqMods}, "one driver each"},
	{"ledger/pgledger", [][]string{redis, asynqMods, sqlite}, "one driver each"},
	{"ledger/redisledger", [][]string{pgx, riverMods, asynqMods, sqlite}, "one driver each"},
	{"adapters/asynq", [][]string{riverMods, pgx, sqlite}, "one queue each"},
	{"adapters/river", [][]string{asynqMods, redis, sqlite}, "one queue each"},
}

// compiles lists the packages that p compiles, itself excluded, whose import path starts with
// one of the prefixes. The module's own packages never count.
func compiles(p *pkg, prefixes ...string) []string {
	var found []string
	for _, dep := range p.Deps {
		if _, own := ownName(dep); own {
			continue
		}
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(dep, prefix) }) {
			found = append(found, dep)
		}
	}
	return found
}

func TestAUserCompilesNoQueueAndNoDriverThatWasNotChosen(t *testing.T) {
	g := loaded(t)
	for _, rule := range compiled {
		t.Run(rule.from, func(t *testing.T) {
			if !g.has(rule.from) {
				t.Skip("not there yet")
			}
			if found := compiles(g.get(rule.from), slices.Concat(rule.ban...)...); len(found) > 0 {
				t.Errorf("%s compiles %s: %s", rule.from, strings.Join(found, ", "), rule.why)
			}
		})
	}
}

func TestTheCoreIsTheStandardLibraryAndSabotage(t *testing.T) {
	g := loaded(t)
	core := g.get("fence")
	if core == nil {
		t.Fatal("package fence does not exist")
	}
	for _, dep := range core.Deps {
		if d := g[dep]; (d == nil || !d.Standard) && dep != modulePath+"/internal/sabotage" {
			t.Errorf("fence depends on %s", dep)
		}
	}
}

// testers are the packages that are made to be used in tests.
var testers = []string{"*/ledgertest", "*/runstest", "adapters/internal/adaptertest/...", "chaos/..."}

// servers start servers to test against, which no program of a user's does.
const servers = modulePath + "/internal/services"

// testOnly are the modules that are dependencies for the sake of tests.
var testOnly = []string{
	"testing", "github.com/google/go-cmp", "github.com/cockroachdb/datadriven", "github.com/rogpeppe/go-internal", "github.com/anishathalye/porcupine",
	"go.uber.org/goleak", "github.com/stretchr/testify",
}

// wrongTesters lists what drags test helpers into a user's program.
func wrongTesters(g graph) []string {
	var wrong []string
	for _, name := range g.own() {
		ban := testOnly
		switch {
		case slices.ContainsFunc(testers, func(p string) bool { return matches(p, name) }):
			continue
		case !strings.HasPrefix(name, "examples/") && !strings.HasPrefix(name, "cmd/"):
			// An in-process Redis is a dependency of programs that show something.
			ban = append(slices.Clone(ban), "github.com/alicebob/miniredis")
		}
		p := g.get(name)
		if found := compiles(p, ban...); len(found) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s compiles %s: test helpers stay in tests", name, strings.Join(found, ", ")))
		}
		if matches("internal/services/...", name) || name == "cmd/fencedrun" {
			continue // chaos live starts servers of its own, to stop and to kill them
		}
		if i := slices.IndexFunc(p.Deps, func(dep string) bool { return dep == servers || strings.HasPrefix(dep, servers+"/") }); i >= 0 {
			wrong = append(wrong, fmt.Sprintf("%s compiles %s: servers to test against are started by tests", name, p.Deps[i]))
		}
	}
	return wrong
}

func TestNothingAUserImportsPullsInTestHelpers(t *testing.T) {
	for _, w := range wrongTesters(loaded(t)) {
		t.Error(w)
	}
}

// A test of arrows that finds nothing in a good tree proves little. These are bad trees.
func TestBadTreesAreNoticed(t *testing.T) {
	bad := func(name string, imports ...string) graph {
		g := make(graph)
		for _, p := range append([]string{name}, imports...) {
			if !strings.Contains(p, ".") && p != "testing" {
				p = modulePath + "/" + p
			}
			g[p] = &pkg{ImportPath: p}
		}
		p := g.get(name)
		for _, imported := range imports {
			if !strings.Contains(imported, ".") && imported != "testing" {
				imported = modulePath + "/" + imported
			}
			p.Imports = append(p.Imports, imported)
			p.Deps = append(p.Deps, imported)
		}
		return g
	}
	for _, c := range [][2]string{
		{"fence", "ledger"}, {"fence", "internal/seam"}, {"internal/seam", "runs"}, {"ledger/key", "fence"},
		{"ledger", "runs"}, {"ledger", "ledger/memledger"}, {"ledger/memledger", "ledger/sqliteledger"}, {"ledger/sqliteledger", "runs"},
		{"runs", "ledger/memledger"}, {"runs", "adapters/river"}, {"runs", "runs/runstest"}, {"adapters/asynq", "adapters/river"},
		{"adapters/river", "ledger/sqliteledger"}, {"adapters/asynq", "chaos"}, {"chaos", "cmd/fencedrun"}, {"newcomer", "fence"},
	} {
		if len(wrongArrows(bad(c[0], c[1]))) == 0 {
			t.Errorf("%s importing %s went unnoticed", c[0], c[1])
		}
	}
	for _, c := range [][2]string{
		{"runs", "testing"}, {"adapters/asynq", "github.com/alicebob/miniredis/v2"}, {"examples/support-bot", "go.uber.org/goleak"},
		{"ledger/memledger", "github.com/google/go-cmp/cmp"}, {"ledger/pgledger", "internal/services/private"},
	} {
		if len(wrongTesters(bad(c[0], c[1]))) == 0 {
			t.Errorf("%s importing %s went unnoticed", c[0], c[1])
		}
	}
	if got := compiles(bad("runs", "github.com/riverqueue/river").get("runs"), riverMods...); len(got) != 1 {
		t.Errorf("runs compiling River went unnoticed")
	}
}

package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a package of ours compiles inside this module could still differ from what a user's
// module compiles: a require line can be missing, a package can hide behind a replace. So here
// is a user's module.
func TestAUsersModuleWithAsynqCompilesNoRiver(t *testing.T) {
	packages := compiledByUser(t, "adapters/asynq", "ledger/memledger")
	for _, banned := range slices.Concat(riverMods, pgx, sqlite) {
		for _, p := range packages {
			if strings.HasPrefix(p, banned) {
				t.Errorf("a user of adapters/asynq and memledger compiles %s", p)
			}
		}
	}
	if !slices.Contains(packages, "github.com/hibiken/asynq") {
		t.Error("a user of adapters/asynq does not compile asynq: this test looks at the wrong thing")
	}
}

func TestAUsersModuleWithRiverCompilesNoAsynq(t *testing.T) {
	packages := compiledByUser(t, "adapters/river", "ledger/memledger")
	for _, banned := range slices.Concat(asynqMods, redis, sqlite) {
		for _, p := range packages {
			if strings.HasPrefix(p, banned) {
				t.Errorf("a user of adapters/river and memledger compiles %s", p)
			}
		}
	}
	if !slices.Contains(packages, "github.com/riverqueue/river") {
		t.Error("a user of adapters/river does not compile river: this test looks at the wrong thing")
	}
}

// compiledByUser returns what a module outside this one compiles when it imports our packages.
func compiledByUser(t *testing.T, names ...string) []string {
	t.Helper()
	g := loaded(t)
	var imports strings.Builder
	for _, name := range names {
		if !g.has(name) {
			t.Skipf("%s is not there yet", name)
		}
		imports.WriteString("import _ \"" + modulePath + "/" + name + "\"\n")
	}

	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// Our require lines are those that a user's go mod tidy would find. Taking them over keeps
	// the go command from resolving anything, so it needs no network.
	goMod := strings.Replace(read("go.mod"), "module "+modulePath, "module example.com/user", 1)
	goMod += "\nrequire " + modulePath + " v0.0.0\nreplace " + modulePath + " => " + root() + "\n"
	write("go.mod", goMod)
	write("go.sum", read("go.sum"))
	write("user.go", "package user\n\n"+imports.String())

	out, err := run(dir, []string{"GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off"}, "list", "-deps", ".")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

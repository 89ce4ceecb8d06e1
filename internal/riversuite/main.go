// Command riversuite runs River's own test suite twice, without and with the plugin of adapters/river in
// every client, and fails where the results differ:
//
//	go run ./internal/services -only postgres -- go run ./internal/riversuite
//
// It takes the version of River that go.mod names from the module cache, changes two lines of a copy so
// that a plugin can be put into every client, and runs the packages river and rivertest on the Postgres
// that FENCEDRUN_TEST_POSTGRES names. A test whose results differ is played again, alone, up to three
// times: some of River's tests depend on the machine's speed. Four minutes on two idle cores.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	database   = "FENCEDRUN_TEST_POSTGRES" // see internal/services
	repetition = 3                         // of a test whose results differ
)

// expected are the tests whose result is another one with the plugin, and why that is right. One that
// no longer differs is an error too.
var expected = map[string]string{
	validations + "Middleware_can_be_configured_independently":                                                  oneMore,
	validations + "JobInsertMiddleware_and_WorkMiddleware_may_be_configured_together_with_same_middleware":      oneMore,
	validations + "JobInsertMiddleware_and_WorkMiddleware_may_be_configured_together_with_separate_middlewares": oneMore,
}

const (
	validations = "river.Test_NewClient_Validations/"
	oneMore     = "it counts the client's middleware, which is one more"
)

func main() {
	keep := flag.String("keep", "", "make the copy of River in this `folder`, and leave it there")
	only := flag.String("run", "", "run only the tests that match this `pattern`, as for go test")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := compare(ctx, *keep, *only, os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compare(ctx context.Context, keep, only string, out io.Writer) error {
	if os.Getenv(database) == "" {
		return errors.New("riversuite: " + database + " is not set: make river-suite starts a server")
	}
	dir := keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "riversuite"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	version, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "River %s, its packages river and rivertest\n", version)
	s := suite{dir: dir}
	without, _, err := s.play(ctx, "without the plugin", only, out)
	if err != nil {
		return err
	}
	with, outputs, err := s.play(ctx, "with the plugin", only, out)
	if err != nil {
		return err
	}
	events, err := s.events()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the plugin: %s\n", events)
	if events["begun"] == 0 {
		return errors.New("riversuite: the plugin saw no job: it was not put in")
	}
	return s.judge(ctx, without, with, outputs, only == "", out)
}

// judge says of each test whose results differ whether that was expected.
func (s suite) judge(ctx context.Context, without, with results, outputs map[string]string, whole bool, out io.Writer) error {
	wrong, seen := 0, map[string]bool{}
	for _, name := range differing(without, with) {
		why, known := expected[name]
		switch {
		case known:
			seen[name] = true
			fmt.Fprintf(out, "differs as expected: %s: %s\n", name, why)
			continue
		case s.differsAlways(ctx, name):
			wrong++
			fmt.Fprintf(out, "DIFFERS: %s: %q without, %q with the plugin\n%s\n", name, without[name], with[name], outputs[name])
		default:
			fmt.Fprintf(out, "differed once, not when repeated: %s: %q without, %q with the plugin\n", name, without[name], with[name])
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for name := range expected {
		if whole && !seen[name] {
			wrong++
			fmt.Fprintf(out, "NO LONGER DIFFERS: %s: take it out of the list of expected differences\n", name)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("riversuite: %d differences", wrong)
	}
	fmt.Fprintln(out, "the same results")
	return nil
}

// suite is a copy of River that was prepared.
type suite struct{ dir string }

func (s suite) log() string { return filepath.Join(s.dir, "fencedrun-events") }

// play runs everything once, and says how it went.
func (s suite) play(ctx context.Context, how, only string, out io.Writer) (results, map[string]string, error) {
	began := time.Now()
	res, outputs, err := s.run(ctx, how == "with the plugin", only, ".", "./rivertest")
	if err == nil {
		fmt.Fprintf(out, "%s: %v in %.0f s\n", how, res, time.Since(began).Seconds())
	}
	return res, outputs, err
}

// run runs go test in the copy.
func (s suite) run(ctx context.Context, plugin bool, only string, folders ...string) (results, map[string]string, error) {
	args := []string{"test", "-json", "-count=1", "-timeout=20m"}
	if only != "" {
		args = append(args, "-run", only)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, folders...)...) //nolint:gosec // tests of a known module; a pattern is what -run is for
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "TEST_DATABASE_URL="+os.Getenv(database))
	if plugin {
		cmd.Env = append(cmd.Env, "RIVERSUITE_EVENTS="+s.log())
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	printed, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if len(printed) == 0 {
		return nil, nil, fmt.Errorf("riversuite: go test: %w: %s", err, &complaint)
	}
	return read(bytes.NewReader(printed))
}

// differsAlways plays one test again, without and with the plugin.
func (s suite) differsAlways(ctx context.Context, name string) bool {
	folder, top := test(name)
	for range repetition {
		without, _, err1 := s.run(ctx, false, "^"+top+"$", folder)
		with, _, err2 := s.run(ctx, true, "^"+top+"$", folder)
		if err1 != nil || err2 != nil {
			return true
		}
		if without[name] == with[name] {
			return false
		}
	}
	return true
}

// counts says how often something happened.
type counts map[string]int

func (c counts) String() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, c[kind]))
	}
	return strings.Join(parts, ", ")
}

// events counts what the plugin's keeper told.
func (s suite) events() (counts, error) {
	text, err := os.ReadFile(s.log())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	c := counts{}
	for kind := range strings.FieldsSeq(string(text)) {
		c[kind]++
	}
	return c, nil
}

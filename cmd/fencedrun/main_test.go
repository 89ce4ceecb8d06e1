package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencedrun/fencedrun/internal/race"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fencedrun": main, "fill": fill})
}

// The command line, as a process: see testdata.
func TestScripts(t *testing.T) { testscript.Run(t, params("testdata")) }

func params(dir string) testscript.Params {
	return testscript.Params{
		Dir: dir,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"keys":  keys,
			"lines": lines,
			"code":  code,
			"short": short,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "race" {
				return race.Enabled, nil
			}
			return false, fmt.Errorf("no condition is called %q", cond)
		},
	}
}

// keys FILE GOLDEN compares the keys of a JSON file, with the kind of what is under each, to a
// file that lists them.
func keys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keys file.json golden")
	}
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	var v any
	ts.Check(dec.Decode(&v))
	if dec.More() {
		ts.Fatalf("%s holds more than one JSON value", args[0])
	}
	got := map[string]bool{}
	walk("", v, got)
	list := make([]string, 0, len(got))
	for k := range got {
		list = append(list, k)
	}
	slices.Sort(list)
	want := strings.Fields(strings.ReplaceAll(ts.ReadFile(args[1]), " ", "_"))
	if !slices.Equal(list, want) {
		ts.Fatalf("%s has the keys\n%s\n\nand not\n%s", args[0], strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
}

func walk(path string, v any, keys map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			walk(path+"."+strings.ReplaceAll(k, " ", "_"), inner, keys)
		}
	case []any:
		for _, inner := range v {
			walk(path+"[]", inner, keys)
		}
		if len(v) == 0 {
			keys[path+"[]"] = true
		}
	default:
		keys[fmt.Sprintf("%s:%T", path, v)] = true
	}
}

// code N COMMAND… runs a command that must exit with N. What it printed is for the next commands.
func code(ts *testscript.TestScript, neg bool, args []string) {
	var want int
	if len(args) < 2 || neg {
		ts.Fatalf("usage: code n command...")
	}
	if _, err := fmt.Sscan(args[0], &want); err != nil {
		ts.Fatalf("%q is no exit code", args[0])
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("it exits with %d, not %d", got, want)
	}
	for i, l := range strings.Split(ts.ReadFile("stdout"), "\n") {
		if n := utf8.RuneCountInString(l); n > 100 && !strings.Contains(l, "fencedrun ") && !slices.Contains(args, "--json") && !slices.Contains(args, "--print") {
			ts.Fatalf("line %d has %d characters: %s", i+1, n, l)
		}
		if strings.ContainsRune(l, '\x1b') {
			ts.Fatalf("line %d holds what a terminal obeys: %q", i+1, l)
		}
	}
}

// short VARIABLE FIELD sets a variable to a field of the JSON that was printed last, such as
// unknown.0.short.
func short(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &v))
	for step := range strings.SplitSeq(args[1], ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			v = in[int(step[0]-'0')]
		}
	}
	text, ok := v.(string)
	if !ok {
		ts.Fatalf("%s is %v", args[1], v)
	}
	ts.Setenv(args[0], text)
}

// lines FILE MOST fails when a file has more lines, or one that is too long to be read.
func lines(ts *testscript.TestScript, neg bool, args []string) {
	var most int
	if _, err := fmt.Sscan(args[1], &most); err != nil || neg {
		ts.Fatalf("usage: lines file most")
	}
	text := ts.ReadFile(args[0])
	if n := strings.Count(text, "\n"); n > most {
		ts.Fatalf("%s has %d lines:\n%s", args[0], n, text)
	}
}

func TestRunSaysWhichCommandsThereAre(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{{nil, 2}, {[]string{"-h"}, 0}, {[]string{"--help"}, 0}, {[]string{"help"}, 0}} {
		var stdout, stderr bytes.Buffer
		if code := run(c.args, &stdout, &stderr); code != c.code {
			t.Errorf("%q exits with %d", c.args, code)
		}
		out := stdout.String()
		if c.code != 0 {
			out = stderr.String()
		}
		if !strings.Contains(out, "  audit ") || !strings.Contains(out, "  chaos ") {
			t.Errorf("%q: %s", c.args, out)
		}
	}
}

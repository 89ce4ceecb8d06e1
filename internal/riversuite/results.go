package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// results are what became of each test: "pass", "fail" or "skip", by "package.Test/sub".
type results map[string]string

// event is a line of go test -json.
type event struct {
	Action  string `json:"Action"`  //nolint:tagliatelle // go test's own words
	Package string `json:"Package"` //nolint:tagliatelle // the same
	Test    string `json:"Test"`    //nolint:tagliatelle // the same
	Output  string `json:"Output"`  //nolint:tagliatelle // the same
}

// read reads what go test -json printed: what became of each test, and what each one said.
func read(r io.Reader) (res results, outputs map[string]string, err error) {
	res, outputs = results{}, map[string]string{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	var packages []string
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, nil, fmt.Errorf("riversuite: not a line of go test -json: %q", bytes.TrimSpace(lines.Bytes()))
		}
		name := strings.TrimPrefix(e.Package, riverModule)
		name = strings.TrimPrefix(name, "/")
		if name == "" {
			name = "river"
		}
		if e.Test != "" {
			name += "." + e.Test
		}
		switch e.Action {
		case "output", "build-output":
			outputs[name] += e.Output
		case "pass", "fail", "skip":
			if e.Test != "" {
				res[name] = e.Action
			} else {
				packages = append(packages, name)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, err
	}
	for _, p := range packages {
		// A package that failed without a test that failed did not compile, panicked, or leaks.
		failed := func(name string) bool { return strings.HasPrefix(name, p+".") && res[name] == "fail" }
		if strings.Contains(outputs[p], "FAIL") && !slices.ContainsFunc(slices.Collect(maps.Keys(res)), failed) {
			return nil, nil, fmt.Errorf("riversuite: package %s failed as a whole:\n%s", p, outputs[p])
		}
	}
	return res, outputs, nil
}

func (r results) count(what string) int {
	n := 0
	for _, got := range r {
		if got == what {
			n++
		}
	}
	return n
}

func (r results) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.count("pass"), r.count("fail"), r.count("skip"))
}

// differing names the tests whose results differ, without those that differ only because a subtest of
// theirs does.
func differing(without, with results) []string {
	all := maps.Clone(without)
	maps.Copy(all, with)
	var names []string
	for name := range all {
		if without[name] != with[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(outer string) bool {
		return slices.ContainsFunc(names, func(inner string) bool { return strings.HasPrefix(inner, outer+"/") })
	})
}

// test is the top-level test that name is of, and its package's folder.
func test(name string) (folder, top string) {
	pkg, rest, _ := strings.Cut(name, ".")
	top, _, _ = strings.Cut(rest, "/")
	if pkg == "river" {
		return ".", top
	}
	return "./" + pkg, top
}

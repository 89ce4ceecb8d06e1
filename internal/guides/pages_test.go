package guides

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/internal/services/private"
)

const (
	root  = "../.."
	pages = root + "/docs/guides"
)

// code is every line of Go that tests run and that guides may show, without its indentation.
func code(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"internal/guides", "adapters", "runs", "examples", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			b.WriteString(unindented(string(text)) + "\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

var (
	goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")
	link    = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
)

// TestGuidesShowTestedCode: what a guide shows in Go is in a file that the tests compile, line for
// line; its links lead somewhere; and every guide is in the list.
func TestGuidesShowTestedCode(t *testing.T) {
	list, err := filepath.Glob(pages + "/*.md")
	if err != nil || len(list) < 5 {
		t.Fatal(list, err)
	}
	tested, blocks := code(t), 0
	index, err := os.ReadFile(pages + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range list {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(page)
		if name != "README.md" && !bytes.Contains(index, []byte("("+name+")")) {
			t.Errorf("%s is not in README.md", name)
		}
		for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
			blocks++
			if !strings.Contains(tested, unindented(m[1])) {
				t.Errorf("%s shows what no test compiles:\n%s", name, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(pages, m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
	if blocks < 8 {
		t.Errorf("only %d blocks of Go were found", blocks)
	}
}

// TestTheScriptComputesTheSameKeys runs docs/guides/key.mjs on the frozen list of effects.
func TestTheScriptComputesTheSameKeys(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		private.Unavailable(t, "node is not installed (Debian: nodejs)")
	}
	const script = `
import { readFileSync } from "node:fs";
import { effectID } from "./key.mjs";
const list = readFileSync("../../ledger/key/testdata/effects.golden", "utf8").trim().split("\n\n").slice(1);
for (const effect of list) {
  const [about, hashed, id, key] = effect.split("\n");
  // JSON.parse would round integers beyond 2^53.
  const exact = hashed.replace(/([:,[])(-?\d{16,})(?=[,\]}])/g, '$1"exactly $2"');
  const revive = (_, v) => typeof v === "string" && v.startsWith("exactly ") ? BigInt(v.slice(8)) : v;
  const [, namespace, conversation, intent, name] = JSON.parse(exact, revive);
  const got = effectID(conversation, intent, name, namespace);
  if (got !== id || "fr1_" + got !== key) console.log(about + ": " + got + ", want " + id);
}
console.log(list.length > 5 ? "compared" : "nothing to compare");
`
	run := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", script)
	run.Dir = pages
	out, err := run.CombinedOutput()
	if err != nil || string(out) != "compared\n" {
		t.Errorf("%v\n%s", err, out)
	}
	run = exec.CommandContext(t.Context(), node, "key.mjs", "thread-7", "reply", `"m1"`)
	run.Dir = pages
	page, _ := os.ReadFile(pages + "/keys.md")
	if out, err := run.CombinedOutput(); err != nil || !bytes.Contains(page, out) {
		t.Errorf("keys.md does not show what the script prints: %v\n%s", err, out)
	}
}

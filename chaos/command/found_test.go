package command

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
)

var rewrite = flag.Bool("rewrite", false, "write the stories of the finds that are still there anew")

const storyMark = "\nstory:\n\n"

// What chaos found is kept as a story. One that is still there must still be told in the same
// words, so that whoever changes the code sees what changes; one that is fixed must not come
// back when its world is played again.
func TestFound(t *testing.T) {
	files, err := filepath.Glob("../testdata/found/*.txt")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d finds, %v", len(files), err)
	}
	e := &sim.Engine{}
	defer e.Close()
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, story, ok := strings.Cut(string(text), storyMark)
		if !ok {
			t.Errorf("%s has no story", name)
			continue
		}
		fields := map[string]string{}
		for _, field := range []string{"symptom", "cause", "fix", "replay"} {
			_, after, ok := strings.Cut(head, "\n"+field+":")
			value, _, _ := strings.Cut(after, "\n")
			if fields[field] = strings.TrimSpace(value); !ok || fields[field] == "" {
				t.Errorf("%s does not say its %s", name, field)
			}
		}
		file := filepath.Join(t.TempDir(), "world.json")
		if err := os.WriteFile(file, []byte(fields["replay"]), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := readReplay(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cfg, err := again.config()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var r sim.Result
		if again.Seed != nil {
			r = e.Seed(cfg, *again.Seed, true)
		} else {
			r = e.Replay(cfg, again.Choices, true)
		}
		if !strings.HasPrefix(fields["fix"], "none") {
			if r.Violation != "" {
				t.Errorf("%s is back: %s", name, r.Violation)
			}
			continue
		}
		var told bytes.Buffer
		if err := r.Terminal(&told); err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(name, []byte(head+storyMark+told.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if r.Violation == "" {
			t.Errorf("%s: the world of this find breaks nothing any more: if it is fixed, say so in its file", name)
		} else if told.String() != story {
			t.Errorf("%s is told otherwise now (go test -rewrite keeps it):\n%s", name, told.String())
		}
	}
}

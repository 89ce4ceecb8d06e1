package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
)

const demoIntro = `Plays support conversations in which customers write in bursts, workers crash, freeze and
lose their connection, the queue delivers jobs twice, and the provider's answers get lost.
Every conversation is played with the library and without it, for five kinds of provider: in
the same settings, each with faults of its own draw. Without it a handler sends the same key
whenever it makes the same effect, as a careful one does by itself.
What the provider did decides what is a duplicate, not the library's own books.

It prints a table. The same seed prints the same on every machine; the speed goes to stderr.
It exits with 1 if something was done twice, or another promise was broken, with the library.

Example:
  fencedrun demo -seed 8 -conversations 1000
`

var demonstrate = (*sim.Engine).Demonstrate

// Demo plays conversations with and without the library and prints a table, or JSON. It
// returns the process's exit code: 1 when the library let something happen that it must not.
func Demo(args []string, stdout, stderr io.Writer) int {
	var seed uint64
	var conversations int
	var asJSON bool
	f := newFlags("fencedrun demo", demoIntro)
	f.uint64Var(&seed, "seed", 7, "a whole number, 0 or more", "which conversations")
	f.intVar(&conversations, "conversations", 100, "a whole number, 1 to 10000000", "how many for each kind of provider")
	f.boolVar(&asJSON, "json", "print JSON instead of a table")
	if code, ok := f.parse(args, stdout, stderr); !ok {
		return code
	}
	if conversations < 1 || conversations > 10_000_000 {
		return f.refuse(stderr, f.bad("conversations", conversations))
	}
	defer collectLess()()
	e := &sim.Engine{}
	defer e.Close()
	start := time.Now()
	d := demonstrate(e, seed, conversations)
	elapsed := time.Since(start)
	var out bytes.Buffer
	if asJSON {
		_ = encode(&out, d)
	} else {
		table(&out, d)
	}
	if _, err := stdout.Write(out.Bytes()); err != nil {
		fmt.Fprintln(stderr, "fencedrun demo:", err)
		return exitFound
	}
	played := 2 * len(d.Providers) * conversations
	fmt.Fprintf(stderr, "%d conversations in %v: %.0f a second\n", played, elapsed.Round(time.Millisecond), float64(played)/elapsed.Seconds())
	if d.First != nil {
		fmt.Fprintf(stderr, "fencedrun demo: with the library, provider %s: %s: %s\n", d.First.Config.Provider, d.First.Kind, d.First.Violation)
		return exitFound
	}
	return exitOK
}

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func table(w io.Writer, d sim.Demonstration) {
	fmt.Fprintf(w, "%d conversations for each kind of provider, seed %d\n\n", d.Conversations, d.Seed)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "provider\t\tmessages\tanswers\tduplicates\tunanswered\tparked\tfalsely\t")
	for _, p := range d.Providers {
		for _, a := range []struct {
			name string
			arm  sim.Arm
		}{{"without", p.Without}, {"with", p.With}} {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", p.Provider, a.name, a.arm.Messages, a.arm.Answers, a.arm.Duplicates, a.arm.Unanswered, a.arm.Parked, a.arm.FalselyParked)
		}
	}
	_ = t.Flush()
	fmt.Fprint(w, `
with and without: the same settings, each with faults of its own draw. naive: does whatever
reaches it. honours: recognises the idempotency key, which without the library handlers send
by themselves. fences: refuses smaller fence numbers than it has seen; without a ledger nobody
hands them out. lasting: can be asked what it did, and does nothing for old requests. early:
can be asked, and may do it after it was asked, so that its "not found" is no answer.
duplicates: messages answered, orders refunded or tags set again. unanswered: waiting for a
person who decides what became of a call, or for their next delivery; after that none is.
parked: jobs stopped for such a person. falsely: effects of unknown outcome that did not
happen.

faults: `)
	for i, name := range slices.Sorted(maps.Keys(d.Faults)) {
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%s %d", name, d.Faults[name])
	}
	fmt.Fprintf(w, "\ntrace %s\n", d.Trace)
}

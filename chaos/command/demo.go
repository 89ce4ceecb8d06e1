package command

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
)

// Demo plays conversations with and without the library and prints a table, or JSON. It
// returns the process's exit code: 1 when the library let something happen that it must not.
func Demo(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("fencedrun demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	seed := flags.Uint64("seed", 7, "which conversations: the same seed plays the same ones on every machine")
	conversations := flags.Int("conversations", 100, "how many for each kind of provider, with the library and without")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	flags.Usage = func() {
		fmt.Fprint(stderr, `usage: fencedrun demo [flags]

Plays support conversations in which customers write in bursts, workers crash, freeze and
lose their connection, the queue delivers jobs twice, and the provider's answers get lost.
Every conversation is played twice on the same faults: with the library and without it.

The answers are counted at the provider, not in the library's own books.

`)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if *conversations <= 0 {
		fmt.Fprintln(stderr, "fencedrun demo: -conversations must be positive")
		return 2
	}
	e := &sim.Engine{}
	defer e.Close()
	start := time.Now()
	d := e.Demonstrate(*seed, *conversations)
	elapsed := time.Since(start)
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(d); err != nil {
			fmt.Fprintln(stderr, "fencedrun demo:", err)
			return 1
		}
	} else {
		table(stdout, d)
	}
	played := 2 * len(d.Providers) * *conversations
	fmt.Fprintf(stderr, "%d conversations in %v: %.0f a second\n", played, elapsed.Round(time.Millisecond), float64(played)/elapsed.Seconds())
	if d.First != nil {
		fmt.Fprintf(stderr, "fencedrun demo: with the library: %s: %s\n", d.First.Kind, d.First.Violation)
		return 1
	}
	return 0
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
naive: does whatever reaches it. honours: recognises the idempotency key. fences: refuses
smaller fence numbers than it has seen. duplicates: messages answered, orders refunded or
tags set again. unanswered: waiting for a person who decides what became of a call, or for
their next delivery; after that none is. parked: jobs stopped for such a person. falsely:
effects of unknown outcome that did not happen.

faults: `)
	for i, name := range slices.Sorted(maps.Keys(d.Faults)) {
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%s %d", name, d.Faults[name])
	}
	fmt.Fprintf(w, "\ntrace %s\n", d.Trace)
}

package command

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// options are the flags of `fencedrun chaos`.
type options struct {
	seeds, workers         int
	from                   uint64
	handler                string
	exhaustive, off        string
	selftest, json, strict bool
	replay, html, mermaid  string
	stdout, stderr         io.Writer
}

// file is what -replay reads: which world, and whose choices.
type file struct {
	Seed     *uint64 `json:"seed,omitempty"`
	Choices  []int   `json:"choices,omitempty"`
	Handler  string  `json:"handler,omitempty"`
	Sabotage string  `json:"sabotage,omitempty"`
	Rate     int     `json:"rate"`
	Strict   bool    `json:"strict,omitempty"`
	PCT      bool    `json:"pct,omitempty"`
}

// Chaos runs campaigns, self-tests, exhaustive searches and replays. It returns the process's
// exit code: 1 for a violation, a gap in what a campaign has seen, or a sabotage that nothing
// noticed.
func Chaos(args []string, stdout, stderr io.Writer) int {
	o := options{stdout: stdout, stderr: stderr}
	flags := flag.NewFlagSet("fencedrun chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.seeds, "seeds", 10_000, "how many worlds to play; for -selftest and -sabotage, how many at most for each rule")
	flags.Uint64Var(&o.from, "from", 1, "the first seed")
	flags.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "how many at a time")
	flags.StringVar(&o.handler, "handler", "", "only this kind of handler")
	flags.StringVar(&o.exhaustive, "exhaustive", "", "play every order of steps and faults of a small world: "+strings.Join(sim.ScopeNames(), ", "))
	flags.BoolVar(&o.selftest, "selftest", false, "switch every rule of the library off in turn; each must be noticed")
	flags.StringVar(&o.off, "sabotage", "", "switch this rule off, and show the shortest world that notices")
	flags.StringVar(&o.replay, "replay", "", "play the world in this file, or the seed of this number, and show it")
	flags.StringVar(&o.html, "html", "", "write the shown world to this file, as one page with a lane for each worker")
	flags.StringVar(&o.mermaid, "mermaid", "", "write the shown world to this file, as a Mermaid diagram")
	flags.BoolVar(&o.strict, "strict", false, "also count what docs/found-by-chaos.md lists as known and accepted")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	flags.Usage = func() {
		fmt.Fprint(stderr, `usage: fencedrun chaos [flags]

Plays the library on simulated time: worlds of one conversation each, with a queue, workers,
a ledger and a provider, and everything that goes wrong with them. The same seed is the same
world on every machine. A world in which a promise is broken is made as short as possible and
shown step by step.

`)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	var err error
	var code int
	switch {
	case o.replay != "":
		code, err = o.runReplay()
	case o.selftest:
		code = o.runSelftest()
	case o.off != "":
		code, err = o.runSabotage()
	case o.exhaustive != "":
		code, err = o.runExhaustive()
	default:
		code, err = o.runCampaign()
	}
	if err != nil {
		fmt.Fprintln(stderr, "fencedrun chaos:", err)
		return 1
	}
	return code
}

func (o *options) runCampaign() (int, error) {
	last := time.Now()
	c := sim.Campaign{Config: sim.Config{Handler: o.handler, Strict: o.strict}, From: o.from, Seeds: o.seeds, Workers: o.workers}
	c.Progress = func(done int) {
		if time.Since(last) > 2*time.Second {
			last = time.Now()
			fmt.Fprintf(o.stderr, "%d of %d\n", done, o.seeds)
		}
	}
	r := c.Run()
	gaps := r.Coverage.Gaps()
	fmt.Fprintf(o.stderr, "%v, %.0f conversations a second\n", r.Elapsed.Round(time.Millisecond), float64(r.Seeds)/r.Elapsed.Seconds())
	if o.json {
		enc := json.NewEncoder(o.stdout)
		enc.SetIndent("", "  ")
		type found struct {
			Seed      uint64
			Times     int
			Kind      string
			Violation string
			Handler   string
		}
		list := []found{}
		for _, f := range r.Violations {
			list = append(list, found{f.Seed, f.Times, f.Kind, f.Violation, f.Config.Handler})
		}
		if err := enc.Encode(map[string]any{"seeds": r.Seeds, "from": o.from, "tally": r.Tally, "violations": list, "gaps": gaps}); err != nil {
			return 1, err
		}
	} else {
		o.printCampaign(r, gaps)
	}
	if len(r.Violations) > 0 {
		f := r.Violations[0]
		e := &sim.Engine{}
		defer e.Close()
		cfg := c.Vary(f.Seed)
		short := e.Shrink(cfg, f.Result, 3*time.Second)
		return 1, o.show(e, cfg, short)
	}
	if len(gaps) > 0 && o.handler == "" && o.seeds >= 5000 {
		return 1, nil
	}
	return 0, nil
}

func (o *options) printCampaign(r sim.Report, gaps []string) {
	t := r.Tally
	fmt.Fprintf(o.stdout, "%d worlds: %d messages, %d answers, %d duplicates; parked %d, needlessly %d, falsely %d; %.2f model calls a message\n",
		r.Seeds, t.Messages, t.Answers, t.Duplicates, t.Parked, t.Needless, t.FalselyParked, float64(t.Thoughts)/float64(max(t.Messages, 1)))
	fmt.Fprint(o.stdout, r.Coverage.Matrix())
	for _, g := range gaps {
		if r.Seeds < 5000 {
			break // too few to mean anything
		}
		fmt.Fprintln(o.stdout, "never seen:", g)
	}
	for _, f := range r.Violations {
		fmt.Fprintf(o.stdout, "seed %d (%d times) %s: %s [%s]\n", f.Seed, f.Times, f.Kind, f.Violation, f.Config.Handler)
	}
}

func (o *options) runSelftest() int {
	e := &sim.Engine{}
	defer e.Close()
	code := 0
	for _, name := range sabotage.All() {
		c := e.Noticed(name, o.seeds)
		if c.Seed == 0 {
			reason := sim.OutOfReach[name.String()]
			if reason == "" {
				code = 1
				reason = "NOT NOTICED"
			}
			fmt.Fprintf(o.stdout, "%-6s %-26s %s\n", name.Rule(), name, reason)
			continue
		}
		fmt.Fprintf(o.stdout, "%-6s %-26s seed %-5d %-24s %s\n", name.Rule(), name, c.Seed, c.Config.Handler, c.Kind)
	}
	return code
}

func (o *options) runSabotage() (int, error) {
	name, err := sabotage.Parse(o.off)
	if err != nil {
		return 1, err
	}
	e := &sim.Engine{}
	defer e.Close()
	c := e.Noticed(name, o.seeds)
	if c.Seed == 0 {
		return 1, fmt.Errorf("%s was not noticed in %d worlds", name, c.Seeds)
	}
	cfg := sim.Focused(name).Vary(c.Seed)
	short := e.Shrink(cfg, c.Result, 3*time.Second)
	fmt.Fprintf(o.stdout, "%s: %s (rule %s), noticed by seed %d\n\n", name, name.Does(), name.Rule(), c.Seed)
	return 0, o.show(e, cfg, short)
}

func (o *options) runExhaustive() (int, error) {
	cfg, err := sim.Scope(o.exhaustive)
	if err != nil {
		return 1, err
	}
	e := &sim.Engine{}
	defer e.Close()
	start := time.Now()
	out := e.Exhaust(cfg, 0)
	fmt.Fprintf(o.stderr, "%v\n", time.Since(start).Round(time.Millisecond))
	fmt.Fprintf(o.stdout, "%s: %d states, %d worlds\n", o.exhaustive, out.States, out.Worlds)
	if out.Found == nil {
		return 0, nil
	}
	cfg.Frozen = true
	return 1, o.show(e, cfg, *out.Found)
}

func (o *options) runReplay() (int, error) {
	e := &sim.Engine{}
	defer e.Close()
	var seed uint64
	if n, err := fmt.Sscanf(o.replay, "%d", &seed); n == 1 && err == nil {
		cfg := sim.Campaign{Config: sim.Config{Handler: o.handler}}.Vary(seed)
		r := e.Seed(cfg, seed, true)
		return exitOf(r), o.show(e, cfg, r)
	}
	text, err := os.ReadFile(o.replay)
	if err != nil {
		return 1, err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return 1, fmt.Errorf("%s: %w", o.replay, err)
	}
	cfg := sim.Config{Handler: f.Handler, Rate: f.Rate, PCT: f.PCT, Strict: f.Strict}
	if f.Sabotage != "" {
		name, err := sabotage.Parse(f.Sabotage)
		if err != nil {
			return 1, err
		}
		cfg.Off = sabotage.Of(name)
	}
	r := sim.Result{Choices: f.Choices}
	if f.Seed != nil {
		r = e.Seed(cfg, *f.Seed, false)
	}
	r = e.Replay(cfg, r.Choices, true)
	return exitOf(r), o.show(e, cfg, r)
}

func exitOf(r sim.Result) int {
	if r.Violation != "" {
		return 1
	}
	return 0
}

// show plays a world again, step by step.
func (o *options) show(e *sim.Engine, cfg sim.Config, found sim.Result) error {
	r := e.Replay(cfg, found.Choices, true)
	if !o.json {
		fmt.Fprintln(o.stdout)
		if err := r.Terminal(o.stdout); err != nil {
			return err
		}
		again, err := json.Marshal(file{Choices: found.Choices, Handler: o.handler, Sabotage: o.off, Rate: cfg.Rate, PCT: cfg.PCT, Strict: cfg.Strict})
		if err != nil {
			return err
		}
		fmt.Fprintf(o.stdout, "\nto play it again: write this into a file and give it to -replay\n%s\n", again)
	}
	if o.mermaid != "" {
		if err := write(o.mermaid, r.Mermaid); err != nil {
			return err
		}
	}
	if o.html == "" {
		return nil
	}
	cfg.Without = true
	without := e.Replay(cfg, found.Choices, true)
	return write(o.html, func(w io.Writer) error { return sim.HTML(w, &r, &without) })
}

func write(name string, to func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := to(f); err != nil {
		return err
	}
	return f.Close()
}

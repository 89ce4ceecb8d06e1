package command

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// enough is how many worlds a campaign needs before what it has never seen means something.
const enough = 20_000

const mostSeeds = 1_000_000_000

const chaosIntro = `Looks for a world in which the library breaks a promise. A world is one conversation on
simulated time, with customers, a queue, workers, a ledger, a provider, and everything that
goes wrong with them; the library in it is the real one. The same seed is the same world on
every machine. A world in which a promise is broken is made as short as possible and shown
step by step.

Without one of -exhaustive, -selftest, -sabotage and -replay it plays a campaign of random
worlds, and prints which fault struck where and what the library answered.

Examples:
  fencedrun chaos -seeds 100000                a campaign of random worlds
  fencedrun chaos -for 5m                      as many as five minutes hold
  fencedrun chaos -exhaustive one-run          every order and fault of a small world
  fencedrun chaos -sabotage answers-ignored    switch a rule off: what happens then?
  fencedrun chaos -sabotage no-fence -html w.html    … as a page for the browser
  fencedrun chaos -replay 4711                 one world, step by step
  fencedrun chaos -selftest                    is every rule's absence noticed?
  fencedrun chaos live -h                      the same on real processes and servers

It exits with 1 if a promise is broken, if a campaign of at least 20000 worlds never met a
fault where it can strike or never had one of the library's answers (a gap; with -gaps in a
campaign of any size), or if a rule's absence is not noticed; with 2 if the command line is
wrong; else with 0.
`

// options are the flags of `fencedrun chaos`.
type options struct {
	seeds, workers         int
	limit                  time.Duration
	from                   uint64
	handler                string
	exhaustive, off        string
	selftest, json, strict bool
	gaps, matrix           bool
	replay, html, mermaid  string
	out                    *bufio.Writer
	stderr                 io.Writer
	flags                  *flags
	name                   sabotage.Name // of off
}

// Chaos runs campaigns, self-tests, exhaustive searches and replays. It returns the process's
// exit code: 1 for a violation, a gap in what a campaign has seen, or a sabotage that nothing
// noticed.
func Chaos(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "live" {
		return Live(args[1:], stdout, stderr)
	}
	o := options{out: bufio.NewWriter(stdout), stderr: stderr}
	defer tuned()()
	f := newFlags("fencedrun chaos", chaosIntro+scopesHelp())
	o.flags = f
	f.intVar(&o.seeds, "seeds", 10_000, "a whole number, 1 to 1000000000", "how many worlds to play; with -selftest and -sabotage, how many at most for a rule")
	f.durationVar(&o.limit, "for", "a duration such as 90s or 5m", "end a campaign after so long, however many worlds are left; without -seeds there is no other end")
	f.uint64Var(&o.from, "from", 1, "a whole number, 0 or more", "the first seed of a campaign")
	f.intVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "a whole number, 1 to 1024", "how many worlds to play at a time")
	f.stringVar(&o.handler, "handler", "one of "+strings.Join(handlerNames(), ", "), "only this kind of handler: "+strings.Join(handlerNames(), ", "))
	f.stringVar(&o.exhaustive, "exhaustive", "one of "+strings.Join(sim.ScopeNames(), ", "), "play every order of steps and faults of a small world: "+strings.Join(sim.ScopeNames(), ", "))
	f.boolVar(&o.selftest, "selftest", "switch every rule of the library off in turn: each must be noticed")
	f.stringVar(&o.off, "sabotage", "one of "+strings.Join(sabotageNames(), ", "), "switch this rule off, and show the shortest world that notices; -selftest lists the names")
	f.stringVar(&o.replay, "replay", "the file that an earlier world was written to, or a seed's number", "play the world in this file, or the one of this seed, and show it")
	f.stringVar(&o.html, "html", "a file to be written", "also write the shown world to this file, as one page with a lane for each worker, with and without the library")
	f.stringVar(&o.mermaid, "mermaid", "a file to be written", "also write the shown world to this file, as a Mermaid diagram")
	f.boolVar(&o.strict, "strict", "also count as broken what docs/found-by-chaos.md lists as known and accepted")
	f.boolVar(&o.gaps, "gaps", "count what a campaign has never seen, however small it is")
	f.boolVar(&o.matrix, "matrix", "with -selftest: which kind of search, which fault when it is the only one, and which handler notices; it takes some minutes")
	f.boolVar(&o.json, "json", "print JSON")
	if code, ok := f.parse(args, stdout, stderr); !ok {
		return code
	}
	if wrong := o.check(); wrong != "" {
		return f.refuse(stderr, wrong)
	}
	for _, name := range []string{o.html, o.mermaid} {
		if name == "" {
			continue
		}
		if err := writable(name); err != nil {
			fmt.Fprintln(stderr, "fencedrun chaos:", err)
			return exitFound
		}
	}
	if f.set("for") && !f.set("seeds") {
		o.seeds = mostSeeds
	}
	var code int
	var err error
	switch {
	case o.replay != "":
		code, err = o.runReplay()
	case o.matrix:
		code, err = o.runMatrix()
	case o.selftest:
		code, err = o.runSelftest()
	case o.off != "":
		code, err = o.runSabotage()
	case o.exhaustive != "":
		code, err = o.runExhaustive()
	default:
		code, err = o.runCampaign()
	}
	if flushed := o.out.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		fmt.Fprintln(stderr, "fencedrun chaos:", err)
		return max(code, exitFound)
	}
	return code
}

// check says what is wrong with the flags, or "".
func (o *options) check() string {
	f := o.flags
	switch {
	case o.seeds < 1 || o.seeds > mostSeeds:
		return f.bad("seeds", o.seeds)
	case f.set("for") && o.limit <= 0:
		return f.bad("for", o.limit)
	case o.workers < 1 || o.workers > 1024:
		return f.bad("workers", o.workers)
	case f.set("handler") && !known(o.handler):
		return f.bad("handler", quote(o.handler))
	case f.set("exhaustive") && !slices.Contains(sim.ScopeNames(), o.exhaustive):
		return f.bad("exhaustive", quote(o.exhaustive))
	case f.set("replay") && o.replay == "", f.set("html") && o.html == "", f.set("mermaid") && o.mermaid == "":
		return "-replay, -html and -mermaid take the name of a file"
	}
	if f.set("sabotage") {
		name, err := sabotage.Parse(o.off)
		if err != nil {
			return f.bad("sabotage", quote(o.off))
		}
		o.name = name
	}
	var modes []string
	for _, name := range []string{"exhaustive", "selftest", "sabotage", "replay"} {
		if f.set(name) {
			modes = append(modes, "-"+name)
		}
	}
	if len(modes) > 1 {
		return strings.Join(modes, " and ") + " exclude each other: give one of them"
	}
	mode := strings.Join(modes, "")
	for name, only := range map[string][]string{
		"seeds": {"", "-selftest", "-sabotage"}, "from": {""}, "for": {""}, "workers": {"", "-exhaustive"}, "handler": {"", "-replay"},
		"html": {"", "-exhaustive", "-sabotage", "-replay"}, "mermaid": {"", "-exhaustive", "-sabotage", "-replay"}, "strict": {"", "-replay"}, "gaps": {""}, "matrix": {"-selftest"},
	} {
		if f.set(name) && !slices.Contains(only, mode) {
			if mode == "" {
				return "-" + name + " means nothing without " + strings.Join(only, ", ")
			}
			return "-" + name + " means nothing with " + mode
		}
	}
	return ""
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func handlerNames() []string {
	var names []string
	for i := range sim.Handlers {
		names = append(names, sim.Handlers[i].Name)
	}
	return names
}

func known(handler string) bool { return slices.Contains(handlerNames(), handler) }

func sabotageNames() []string {
	var names []string
	for _, n := range sabotage.All() {
		names = append(names, n.String())
	}
	slices.Sort(names)
	return names
}

func (o *options) runSabotage() (int, error) {
	e := &sim.Engine{}
	defer e.Close()
	if reason := sim.OutOfReach[o.off]; reason != "" {
		return exitFound, fmt.Errorf("-sabotage %s: %s", o.off, reason)
	}
	c := e.Noticed(o.name, o.seeds)
	if c.Seed == 0 {
		return exitFound, fmt.Errorf("%s was not noticed in %d worlds: -seeds can be larger", o.name, c.Seeds)
	}
	cfg := sim.Focused(o.name).Vary(c.Seed)
	short := e.Shrink(cfg, c.Result, 3*time.Second)
	if !o.json {
		fmt.Fprintf(o.out, "%s: %s (rule %s), noticed by seed %d\n", o.name, o.name.Does(), o.name.Rule(), c.Seed)
	}
	w, err := o.show(e, cfg, replay{Choices: short.Choices, Sabotage: o.off, Rate: cfg.Rate, PCT: cfg.PCT, Focused: true})
	if err == nil && o.json {
		err = encode(o.out, map[string]any{"sabotage": o.off, "rule": o.name.Rule(), "does": o.name.Does(), "seed": c.Seed, "world": w})
	}
	return exitOK, err
}

func (o *options) runExhaustive() (int, error) {
	cfg, err := sim.Scope(o.exhaustive)
	if err != nil {
		return exitFound, err
	}
	e := &sim.Engine{Workers: o.workers}
	defer e.Close()
	start := time.Now()
	out := e.Exhaust(cfg, 0)
	fmt.Fprintf(o.stderr, "%v\n", time.Since(start).Round(time.Millisecond))
	if !o.json {
		fmt.Fprintf(o.out, "%s: %d states, %d worlds\n", o.exhaustive, out.States, out.Worlds)
	}
	var w *world
	if out.Found != nil {
		cfg.Frozen = true
		if w, err = o.show(e, cfg, replay{Choices: out.Found.Choices, Scope: o.exhaustive}); err != nil {
			return exitFound, err
		}
	}
	if o.json {
		err = encode(o.out, map[string]any{"scope": o.exhaustive, "states": out.States, "worlds": out.Worlds, "world": w})
	}
	if out.Found != nil {
		return exitFound, err
	}
	return exitOK, err
}

func (o *options) runReplay() (int, error) {
	again, err := readReplay(o.replay)
	if err != nil {
		return exitUsage, fmt.Errorf("-replay: %w", err)
	}
	if o.handler != "" {
		again.Handler = o.handler
	}
	again.Strict = again.Strict || o.strict
	cfg, err := again.config()
	if err != nil {
		return exitUsage, fmt.Errorf("-replay %s: %w", o.replay, err)
	}
	e := &sim.Engine{}
	defer e.Close()
	if again.Seed != nil {
		again.Choices = e.Seed(cfg, *again.Seed, false).Choices
	}
	w, err := o.show(e, cfg, again)
	if err == nil && o.json {
		err = encode(o.out, map[string]any{"world": w})
	}
	if w != nil && w.Violation != "" {
		return exitFound, err
	}
	return exitOK, err
}

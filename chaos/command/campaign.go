package command

import (
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// tally is a campaign's in the form of -json.
type tally struct {
	Messages      int `json:"messages"`
	Answers       int `json:"answers"`
	Duplicates    int `json:"duplicates"`
	Unanswered    int `json:"unanswered"`
	Parked        int `json:"parked"`
	FalselyParked int `json:"falsely_parked"`
	Needless      int `json:"needlessly_parked"`
	Thoughts      int `json:"model_calls"`
}

type violation struct {
	Seed      uint64 `json:"seed"`
	Times     int    `json:"times"`
	Kind      string `json:"kind"`
	Violation string `json:"violation"`
	Handler   string `json:"handler"`
}

type campaign struct {
	Seeds      int          `json:"seeds"`
	From       uint64       `json:"from"`
	Tally      tally        `json:"tally"`
	Struck     []sim.Strike `json:"struck"`
	Violations []violation  `json:"violations"`
	Gaps       []string     `json:"gaps"`
	World      *world       `json:"world"` // the first violation's, shortened; null if there is none
}

func (o *options) runCampaign() (int, error) {
	defer collectLess()()
	c := sim.Campaign{Config: sim.Config{Handler: o.handler, Strict: o.strict}, From: o.from, Seeds: o.seeds, Workers: o.workers, For: o.limit}
	last := time.Now()
	c.Progress = func(done int) {
		if time.Since(last) > 2*time.Second {
			last = time.Now()
			if o.limit > 0 {
				fmt.Fprintf(o.stderr, "%d worlds\n", done)
			} else {
				fmt.Fprintf(o.stderr, "%d of %d worlds\n", done, o.seeds)
			}
		}
	}
	r := c.Run()
	fmt.Fprintf(o.stderr, "%d worlds in %v: %.0f a second\n", r.Seeds, r.Elapsed.Round(time.Millisecond), float64(r.Seeds)/r.Elapsed.Seconds())
	t := r.Tally
	out := campaign{
		Seeds: r.Seeds, From: o.from, Struck: r.Coverage.Strikes(), Violations: []violation{}, Gaps: []string{},
		Tally: tally{t.Messages, t.Answers, t.Duplicates, t.Unanswered, t.Parked, t.FalselyParked, t.Needless, t.Thoughts},
	}
	for i := range r.Violations {
		f := &r.Violations[i]
		out.Violations = append(out.Violations, violation{f.Seed, f.Times, f.Kind, f.Violation, f.Config.Handler})
	}
	code := exitOK
	if o.gaps || o.handler == "" && r.Seeds >= enough {
		out.Gaps = append(out.Gaps, r.Coverage.Gaps()...)
	} else if o.limit > 0 && o.handler == "" {
		fmt.Fprintf(o.stderr, "too few worlds to judge what was never seen: %d, and it takes %d, or -gaps\n", r.Seeds, enough)
	}
	if len(out.Violations) > 0 || len(out.Gaps) > 0 {
		code = exitFound
	}
	if !o.json {
		o.printCampaign(&out, &r)
	}
	if o.html+o.mermaid != "" && len(r.Violations) == 0 {
		fmt.Fprintln(o.stderr, "no promise was broken, so there is no world to write")
	}
	if len(r.Violations) > 0 {
		first := &r.Violations[0]
		e := &sim.Engine{}
		defer e.Close()
		cfg := c.Vary(first.Seed)
		short := e.Shrink(cfg, first.Result, 3*time.Second)
		w, err := o.show(e, cfg, replay{Choices: short.Choices, Handler: o.handler, Rate: cfg.Rate, PCT: cfg.PCT, Strict: o.strict})
		if err != nil {
			return code, err
		}
		out.World = w
	}
	if o.json {
		return code, encode(o.out, out)
	}
	return code, nil
}

func (o *options) printCampaign(c *campaign, r *sim.Report) {
	t := c.Tally
	fmt.Fprintf(o.out, "%d worlds: %d messages, %d answers, %d duplicates; parked %d, needlessly %d, falsely %d; %.2f model calls a message\n\n",
		c.Seeds, t.Messages, t.Answers, t.Duplicates, t.Parked, t.Needless, t.FalselyParked, float64(t.Thoughts)/float64(max(t.Messages, 1)))
	fmt.Fprint(o.out, r.Coverage.Matrix())
	for _, g := range c.Gaps {
		fmt.Fprintln(o.out, "never seen:", g)
	}
	if len(c.Violations) == 0 {
		fmt.Fprintln(o.out, "\nno promise was broken")
	}
	for _, v := range c.Violations {
		fmt.Fprintf(o.out, "BROKEN by seed %d (%d times), %s: %s [handler %s]\n", v.Seed, v.Times, v.Kind, v.Violation, v.Handler)
	}
}

type noticed struct {
	Rule     string `json:"rule"`
	Sabotage string `json:"sabotage"`
	Does     string `json:"does"`
	Seed     uint64 `json:"seed"` // of the first world that noticed, 0: none did
	Handler  string `json:"handler"`
	Kind     string `json:"kind"`
	Reason   string `json:"out_of_reach"` // why no world can notice, "" one can
}

func (o *options) runSelftest() (int, error) {
	e := &sim.Engine{}
	defer e.Close()
	list := []noticed{}
	missed, reached := []string{}, 0
	last := time.Now()
	for i, name := range sabotage.All() {
		if time.Since(last) > 2*time.Second {
			last = time.Now()
			fmt.Fprintf(o.stderr, "%d of %d rules, now %s\n", i, len(sabotage.All()), name)
		}
		n := noticed{Rule: name.Rule(), Sabotage: name.String(), Does: name.Does(), Reason: sim.OutOfReach[name.String()]}
		says := n.Reason
		if n.Reason == "" {
			c := e.Noticed(name, o.seeds)
			n.Seed, n.Kind = c.Seed, c.Kind
			if c.Seed == 0 {
				missed = append(missed, n.Sabotage)
				says = fmt.Sprintf("NOT NOTICED in %d worlds", c.Seeds)
			} else {
				reached++
				n.Handler = c.Config.Handler
				says = fmt.Sprintf("seed %-5d %-24s %s", n.Seed, n.Handler, n.Kind)
			}
		}
		list = append(list, n)
		if !o.json {
			fmt.Fprintf(o.out, "%-6s %-26s %s\n", n.Rule, n.Sabotage, says)
			_ = o.out.Flush() // it takes a while: show what is known
		}
	}
	code := exitOK
	if len(missed) > 0 {
		code = exitFound
	}
	if o.json {
		return code, encode(o.out, map[string]any{"noticed": list, "missed": missed})
	}
	fmt.Fprintf(o.out, "\n%d of %d noticed, %d out of reach, %d missed\n", reached, len(list), len(list)-reached-len(missed), len(missed))
	return code, nil
}

// cell is one way in which a rule's absence was noticed.
type cell struct {
	Rule     string `json:"rule"`
	Sabotage string `json:"sabotage"`
	Driver   string `json:"driver"`
	What     string `json:"what"` // the scope, the fault or the handler, "-" for other drivers
	Seed     uint64 `json:"seed"`
	Kind     string `json:"kind"`
}

// runMatrix asks who notices what. Each cell of the table may cost some worlds, as many as
// -seeds allows a rule, shared out among them.
func (o *options) runMatrix() (int, error) {
	e := &sim.Engine{}
	defer e.Close()
	narrow := max(o.seeds/400, 1)
	start := time.Now()
	s, err := e.Selftest(sim.Effort{Broad: 5 * narrow, Narrow: narrow, Exhaustive: 10 * narrow}, func(done string) {
		fmt.Fprintf(o.stderr, "%v %s\n", time.Since(start).Round(time.Second), done)
	})
	if err != nil {
		return exitFound, err
	}
	code := exitOK
	missed := []string{}
	for _, name := range s.Survivors() {
		missed = append(missed, name.String())
		code = exitFound
	}
	if !o.json {
		return code, s.Table(o.out)
	}
	cells := []cell{}
	for _, c := range s.Cells {
		cells = append(cells, cell{c.Name.Rule(), c.Name.String(), c.Driver, c.What, c.Seed, c.Kind})
	}
	return code, encode(o.out, map[string]any{"cells": cells, "missed": missed})
}

package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/fencedrun/fencedrun/chaos/internal/sim"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// replay is what -replay reads: which world, and whose choices.
type replay struct {
	Seed     *uint64 `json:"seed,omitempty"`
	Choices  []int   `json:"choices,omitempty"`
	Handler  string  `json:"handler,omitempty"`
	Sabotage string  `json:"sabotage,omitempty"`
	Scope    string  `json:"scope,omitempty"`
	Rate     int     `json:"rate,omitempty"`
	Strict   bool    `json:"strict"`
	PCT      bool    `json:"pct"`
	Focused  bool    `json:"focused"`
}

// readReplay reads a file, or takes a number for a seed.
func readReplay(name string) (replay, error) {
	if seed, err := strconv.ParseUint(name, 10, 64); err == nil {
		return replay{Seed: &seed}, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return replay{}, err
	}
	// What chaos prints with -json holds the world to play again inside.
	var whole struct {
		World *struct {
			Replay json.RawMessage `json:"replay"`
		} `json:"world"`
	}
	if json.Unmarshal(text, &whole) == nil && whole.World != nil {
		text = whole.World.Replay
	}
	var r replay
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	if r.Seed == nil && r.Choices == nil {
		return r, fmt.Errorf(`%s: neither "seed" nor "choices" is in it`, name)
	}
	return r, nil
}

// config returns the world's configuration.
func (r *replay) config() (sim.Config, error) {
	cfg := sim.Config{Handler: r.Handler, Rate: r.Rate, PCT: r.PCT, Strict: r.Strict}
	if r.Scope != "" {
		scope, err := sim.Scope(r.Scope)
		if err != nil {
			return cfg, err
		}
		cfg = scope
		cfg.Frozen, cfg.Strict = true, r.Strict
	}
	if r.Handler != "" && !known(r.Handler) {
		return cfg, fmt.Errorf("no handler is called %q", r.Handler)
	}
	if r.Sabotage != "" {
		name, err := sabotage.Parse(r.Sabotage)
		if err != nil {
			return cfg, err
		}
		if r.Focused {
			cfg = sim.Focused(name).Config
			cfg.PCT, cfg.Strict = r.PCT, r.Strict
			if cfg.Rate == 0 {
				cfg.Rate = r.Rate
			}
		}
		cfg.Off = sabotage.Of(name)
	}
	if cfg.Rate == 0 && r.Scope == "" {
		if r.Seed == nil {
			return cfg, errors.New(`"rate" is missing`)
		}
		cfg = sim.Campaign{Config: cfg}.Vary(*r.Seed)
	}
	return cfg, nil
}

// world is a world in the form of -json.
type world struct {
	Kind      string `json:"kind"`      // of violation, "" none
	Violation string `json:"violation"` // "" none
	Would     string `json:"would_say"` // what the rule that is switched off would have said
	Events    int    `json:"events"`
	Messages  int    `json:"messages"`
	Answers   int    `json:"answers"`
	Handler   string `json:"handler"`
	Provider  string `json:"provider"`
	Queue     string `json:"queue"`
	Mode      string `json:"mode"`
	Trace     string `json:"trace"`
	Steps     []step `json:"steps"`
	Replay    replay `json:"replay"`
}

type step struct {
	AtMS  int64  `json:"at_ms"`
	Lane  string `json:"lane"`
	Who   string `json:"who"`
	Text  string `json:"text"`
	Fault string `json:"fault"`
	Bad   bool   `json:"bad"`
}

// show plays a world again, step by step.
func (o *options) show(e *sim.Engine, cfg sim.Config, again replay) (*world, error) {
	r := e.Replay(cfg, again.Choices, true)
	would := ""
	if again.Sabotage != "" && r.Violation != "" {
		would = e.WouldSay(cfg, &r)
	}
	if o.mermaid != "" {
		if err := write(o.mermaid, r.Mermaid); err != nil {
			return nil, err
		}
	}
	if o.html != "" {
		without, title := e.Bare(cfg, &r)
		if err := write(o.html, func(w io.Writer) error { return sim.HTML(w, &r, &without, title, would) }); err != nil {
			return nil, err
		}
	}
	if !o.json {
		fmt.Fprintln(o.out)
		if err := r.Terminal(o.out); err != nil {
			return nil, err
		}
		if would != "" {
			fmt.Fprintf(o.out, "\nWith the rule on, the same world goes another way:\n%10s\n", would)
		}
		text, err := json.Marshal(again)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(o.out, "\nTo play it again, write this into a file and give it to -replay:\n%s\n", text)
	}
	c := &r.Config
	w := &world{
		Kind: r.Kind, Violation: r.Violation, Would: would, Events: r.Events(), Messages: r.Tally.Messages, Answers: r.Tally.Answers,
		Handler: c.Handler, Provider: c.Provider, Queue: c.Queue, Mode: string(c.Mode), Trace: r.Trail(), Replay: again, Steps: []step{},
	}
	for _, l := range r.Lines() {
		w.Steps = append(w.Steps, step{AtMS: time.Duration(l.At).Milliseconds(), Lane: l.Lane, Who: l.Who, Text: l.Text, Fault: l.Fault, Bad: l.Bad})
	}
	return w, nil
}

// writable returns the error that writing to a file would end with, so that nobody finds out after
// minutes of search. It leaves what is there as it is.
func writable(name string) error {
	_, missing := os.Lstat(name)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o666) //nolint:gosec // as os.Create does
	if err != nil {
		return err
	}
	err = f.Close()
	if errors.Is(missing, os.ErrNotExist) {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

func write(name string, to func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := to(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

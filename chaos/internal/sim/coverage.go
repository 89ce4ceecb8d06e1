package sim

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

type counter uint8

const (
	covCrash counter = iota
	covQuiet
	covCount
)

// Coverage counts what a campaign has seen, so that one with a gap can be told.
type Coverage struct {
	Worlds  int
	Struck  [faults][kinds + 1]int
	Events  map[runs.EventKind]int
	Reasons map[runs.Reason]int // of refused effects
	Actions map[string]int      // verdicts with their reason
	Counts  [covCount]int
	Edges   map[edge]int // arrows of docs/states.md
}

func (w *World) struck(f Fault, k kind) {
	w.cov.Struck[f][k]++
	w.tally.Struck++
	if k == atStore || k == atBeat {
		w.storeHits++
	}
	if f == BigResult {
		w.tally.big = true
	}
}

func (w *World) count(c counter) { w.cov.Counts[c]++ }

func (w *World) observe(_ context.Context, e runs.Event) {
	c := w.cov
	if c.Events == nil {
		c.Events = map[runs.EventKind]int{}
	}
	c.Events[e.Kind]++
	if e.Kind == "committed" {
		call := e.Effect.ID + "#" + strconv.Itoa(e.Call)
		if slices.Contains(w.committed, call) && w.tally.Lost == 0 {
			w.fail("committed twice", "call %d of %s %s is settled twice", e.Call, e.Effect.Intent, e.Effect.Key)
		}
		w.committed = append(w.committed, call)
	}
	if e.Kind == "ambiguous" || e.Kind == "lapsed" || e.Kind == "probed" {
		w.sweepLater()
	}
	if e.Kind == "resolved" && strings.HasSuffix(e.Text, " to failed") {
		idem := key.IdempotencyKey(e.Effect.ID) // an unknown that turned out not to have happened is no news
		w.landings = slices.DeleteFunc(w.landings, func(l landing) bool { return l.s != nil && l.s.idem == idem })
	}
	if e.Kind == "reopened" {
		w.presses++
	}
	if e.Kind == "released" || e.Kind == "lease_lost" {
		for _, j := range w.jobs {
			if j.id == e.Run.ID {
				j.released = j.released || e.Kind == "released"
				j.leaseLost = j.leaseLost || e.Kind == "lease_lost"
			}
		}
	}
	if w.cfg.User != nil && w.cur != nil {
		switch e.Kind { //nolint:exhaustive // only these begin and end an effect's call
		case "claimed":
			w.cur.effect = e.Effect.ID
		case "committed", "failed", "ambiguous", "not_recorded":
			w.cur.effect = ""
		}
	}
	if w.keep {
		name, proc := "", ""
		if w.cur != nil {
			name, proc = w.cur.name, w.cur.p.name
		}
		text := string(e.Kind)
		if e.Effect.Intent != "" {
			text += " " + e.Effect.Intent + " " + e.Effect.Key
		}
		if e.Reason != "" {
			text += " " + string(e.Reason)
		}
		if e.Run.ID != "" {
			text += " of " + e.Run.ID
		}
		if e.Inbound != "" {
			text += " " + e.Inbound
		}
		if e.Text != "" {
			text += " (" + e.Text + ")"
		}
		w.trace = append(w.trace, Step{At: w.now, Lane: "ledger", Task: name, What: text, Event: &e, Proc: proc})
	}
	if e.Kind == "duplicate" && w.tally.Words == 0 {
		w.fail("duplicate event", "the library itself reports a duplicate: %s %s", e.Effect.Intent, e.Effect.Key)
	}
}

func (c *Coverage) verdict(v runs.Verdict) {
	if c.Actions == nil {
		c.Actions = map[string]int{}
	}
	c.Actions[string(v.Action)+" "+string(v.Reason)]++
}

func (c *Coverage) outcome(called bool, err error) {
	if c.Reasons == nil {
		c.Reasons = map[runs.Reason]int{}
	}
	var refused *runs.RefusedError
	var outcome *runs.OutcomeError
	switch {
	case errors.As(err, &refused):
		c.Reasons[refused.Reason]++
	case errors.As(err, &outcome):
		c.Reasons["outcome "+runs.Reason(outcome.Outcome)]++
	case err != nil:
		c.Reasons["error"]++
	case called:
		c.Reasons["executed"]++
	default:
		c.Reasons["replayed"]++
	}
}

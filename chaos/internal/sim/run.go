package sim

import (
	"context"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

// Tally counts what happened in a world.
type Tally struct {
	Messages, Answers, Duplicates, Unanswered int
	Parked, FalselyParked, Needless           int
	Thoughts, Steps, Lost, Words              int
	Struck                                    int // faults

	fences   []int64
	executed []*send
	big      bool
}

// Result is what became of a world.
type Result struct {
	Kind, Violation string // "" none
	Choices         []int
	Setup           int // how many of them say what the world is made of, before its first step
	Hash            uint64
	Tally           Tally
	Trace           []Step
	Config          Config
}

// Engine executes worlds, one at a time.
type Engine struct {
	Workers int // of an exhaustive search; 0: one
	pool    pool
	Cov     Coverage
	log     []int // of the last world's choices
}

// Close gives the engine's coroutines back.
func (e *Engine) Close() { e.pool.close() }

// Seed executes the world of a seed.
func (e *Engine) Seed(cfg Config, seed uint64, keep bool) Result {
	return e.execute(cfg, seeded(seed), keep)
}

// Replay executes the world of a list of choices; after the list everything is dull.
func (e *Engine) Replay(cfg Config, list []int, keep bool) Result {
	return e.execute(cfg, &replayed{list: list}, keep)
}

func (e *Engine) execute(cfg Config, src source, keep bool) Result {
	w := newWorld(cfg, &choices{source: src, log: e.log[:0]}, &e.pool, &e.Cov, keep)
	defer w.close()
	setup := len(w.c.log)
	w.execute()
	e.log = w.c.log
	w.tally.Steps = w.steps
	w.mix(uint64(w.now))
	shown := w.cfg
	shown.Handler = w.kinds[0].Name
	if w.kinds[1] != w.kinds[0] {
		shown.Handler += "+" + w.kinds[1].Name
	}
	shown.Tag, shown.Messages, shown.Faults = w.tag, w.messages, w.on
	return Result{Kind: w.badKind, Violation: w.bad, Choices: slices.Clone(w.c.log), Setup: setup, Hash: w.hash, Tally: w.tally, Trace: w.trace, Config: shown}
}

// execute plays the world to its end: with faults, then without, then with operators.
func (w *World) execute() {
	w.loop()
	if w.bad != "" {
		return
	}
	w.quiet()
	w.count(covQuiet)
	w.countEnd()
	if w.cfg.Without {
		return
	}
	if w.cfg.User != nil {
		for range 3 {
			if w.bad != "" || !w.operate() {
				return
			}
			w.loop()
		}
		return
	}
	w.truthful()
	w.eventually()
	if w.bad != "" {
		return
	}
	operated := false
	for range 6 {
		if !w.operate() {
			break
		}
		operated, w.calmed = true, true
		w.loop()
		if w.bad != "" {
			return
		}
	}
	if operated {
		w.quiet()
		w.truthful()
	}
	w.answered()
}

// quiet lets so much time pass that whatever is pending has lapsed.
func (w *World) quiet() {
	w.calm = true
	w.downUntil = 0
	w.now += 2000 * second
	w.loop()
}

func (w *World) countEnd() {
	w.tally.Messages = w.arrived
	for i := range w.arrived {
		w.tally.Answers += w.prov.agent[i]
		if w.prov.agent[i] == 0 && w.prov.human[i] == 0 {
			w.tally.Unanswered++
		}
	}
	if w.cfg.Without {
		return
	}
	hist, err := w.look().History(context.Background(), "c")
	if err != nil {
		return
	}
	unknown := false
	for _, e := range hist.Effects {
		if e.State() == fence.Ambiguous {
			unknown = true
			if !w.happened(e.ID) {
				w.tally.FalselyParked++
			}
		}
	}
	for _, j := range w.jobs {
		if j.state == parked {
			w.tally.Parked++
			if !unknown {
				w.tally.Needless++
			}
		}
	}
}

func (w *World) happened(effect string) bool {
	idem := key.IdempotencyKey(effect)
	return slices.ContainsFunc(w.prov.done, func(s *send) bool { return s.idem == idem || s.effect == effect })
}

// operate is what people do: decide every unknown truthfully, and run again what was stopped.
func (w *World) operate() bool {
	w.calm = true
	did := false
	if v, ok := w.peek(); w.prov.unanswered() == 0 && (!ok || len(v.Head.Unresolved) == 0) && !w.chooseNone(func(j *job) bool { return j.state == parked || j.state == discarded }) {
		return false
	}
	hist, ok := w.history()
	if !ok {
		return false
	}
	for _, e := range hist.Effects {
		if e.State() != fence.Ambiguous {
			continue
		}
		did = true
		happened := w.happened(e.ID)
		w.say("operator", "%s", decides(e.Intent, e.Key, happened))
		w.spawn(w.api, "resolve", func(*task) {
			w.presses++
			if !happened {
				w.denied++
			}
			if _, _, err := w.api.keeper.Resolve(context.Background(), "c", e.ID, runs.Resolution{Happened: happened, By: "operator"}); err != nil {
				w.fail("resolve", "%s %s: %v", e.Intent, e.Key, err)
			}
		})
	}
	w.loop()
	for _, j := range w.jobs {
		if j.state != parked && j.state != discarded {
			continue
		}
		did = true
		w.say("operator", "runs %s again, which was stopped: %s", j.id, reasonText(runs.Reason(j.reason)))
		if j.h.Payload && j.reason != string(fence.ReasonExhausted) || j.reason == string(fence.ReasonRefusedTwice) && j.pressed && w.prov.unanswered()>>j.msg&1 == 1 {
			// A job that is refused whenever it runs, because its handler never looks: its
			// messages need another job.
			j.end(dropped, "replaced")
			w.produce(j.msg, j.h)
			continue
		}
		j.tries, j.snoozes, j.pressed = 0, 0, true
		w.presses++
		j.again(w.now, "pressed")
	}
	if w.cfg.User != nil {
		return did // whether a message needs an answer is the user's to say
	}
	// What the ledger lists as open and nobody works on is enqueued anew.
	for _, in := range hist.Inbound {
		for i, name := range messageNames {
			if name == in.ID && !in.Closed() && w.prov.agent[i] == 0 && w.prov.human[i] == 0 && !w.isPending(i) {
				w.say("operator", "enqueues %s, which is listed as open, anew", name)
				w.produce(i, w.kinds[i%2])
				did = true
			}
		}
	}
	return did
}

func (w *World) isPending(i int) bool {
	return len(w.jobs) > 40 || slices.ContainsFunc(w.jobs, func(j *job) bool { return j.msg == i && (j.state <= running || j.exempt) })
}

// answered: after operators no message is unanswered.
func (w *World) answered() {
	for i := range w.arrived {
		if w.prov.agent[i] > 0 || w.prov.human[i] > 0 || w.excused(i) {
			continue
		}
		w.fail("unanswered", "message %s is unanswered after operators did their part: %s", messageID(i), w.busy())
	}
}

func (w *World) excused(i int) bool {
	for _, k := range w.kinds {
		if k.Ignores && i%2 == 1 || k.NoInbound {
			return true
		}
	}
	return slices.ContainsFunc(w.jobs, func(j *job) bool { return j.msg == i && j.exempt })
}

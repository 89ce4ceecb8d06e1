package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/fencedrun/fencedrun/runs"
)

// Two classes of provider can be asked what became of a call (rule S8). Both tell the truth.
// "lasting" does nothing for requests that are older than claim deadline and quiet period together,
// so that what it does not show by then never happens; its intents say ReadYourWrites. "early" does
// whatever reaches it at whatever time: what it does not show may be on its way still, so that its
// "not found" is no answer.

const (
	lasting = "lasting"
	early   = "early"
)

// stale is the age at which a request of a world with a lasting provider is too old: it left at
// most a minute after its claim, whose deadline and quiet period are four minutes.
const stale = 180 * second

var errStale = errors.New("sim: the provider does nothing for a request that old")

// tooOld reports whether the provider refuses s for its age.
func (p *provider) tooOld(s *send) bool {
	return p.w.cfg.Provider == lasting && p.w.now-s.left > stale
}

func (w *World) canAsk() bool { return w.cfg.Provider == lasting || w.cfg.Provider == early }

// asking is a probe under way.
type asking struct {
	idem  string
	since int64
}

// exclusively is how long nobody else may ask once somebody has begun to: the effect's timeout. Then
// the ctx of the question is done, and an answer is not waited for.
const exclusively = 60 * second

// asked gives an intent its probe, if its provider can be asked.
func (w *World) asked(in runs.Intent[string]) runs.Intent[string] {
	if w.canAsk() {
		in.Probe, in.ReadYourWrites = w.probe, w.cfg.Provider == lasting
	}
	return in
}

// intents are what every keeper of the world is told of.
func (w *World) intents() []runs.Declared {
	if !w.canAsk() {
		return nil
	}
	list := []runs.Declared{}
	for _, name := range []string{"reply", "refund", "tag", "line"} {
		list = append(list, w.asked(runs.Intent[string]{Name: name, Distinct: distinct(name)}))
	}
	return list
}

func distinct(intent string) bool { return intent == "tag" || intent == "line" }

// probe asks the provider what it did.
func (w *World) probe(_ context.Context, q runs.Question) (runs.Found[string], error) {
	t := w.cur
	mine := &asking{idem: q.IdempotencyKey, since: w.now}
	for _, other := range w.askings {
		if other.idem == mine.idem && w.now-other.since < exclusively-3*second && w.tally.Lost == 0 {
			w.fail("two probers", "%s is asked about twice at a time", effectText(q.Effect.Intent, q.Effect.Key))
		}
	}
	w.askings = append(w.askings, mine)
	defer func() {
		w.askings = slices.DeleteFunc(w.askings, func(a *asking) bool { return a == mine })
	}()
	for _, s := range w.sent {
		if s.idem == mine.idem && w.now-s.left < stale-3*second {
			w.fail("early probe", "%s is asked about while a request may be on its way", s)
		}
	}
	what := ""
	if w.keep {
		what = "asks the provider about " + effectText(q.Effect.Intent, q.Effect.Key)
	}
	t.point(atRead, what)
	if w.grumpy > w.now {
		return runs.Found[string]{}, errRefused
	}
	found := runs.NotFound[string]()
	for _, s := range w.prov.done {
		if s.idem == mine.idem {
			found = runs.Applied(s.value, s.value)
			break
		}
	}
	if w.keep {
		what = "hears that it shows " + string(found.What)
	}
	t.point(atRead, what)
	return found, nil
}

// mostSweeps bounds the sweeps of a world.
const mostSweeps = 30

// sweepLater lets two processes sweep when what has become unknown is due.
func (w *World) sweepLater() {
	if !w.canAsk() || w.sweeps == mostSweeps {
		return
	}
	w.sweeps++
	w.after(nil, 250*second, func() {
		n := 0
		for i := len(w.procs) - 1; i >= 0 && n < 2; i-- {
			if p := w.procs[i]; !p.dead && !p.stopping {
				n++
				w.spawn(p, "sweep", func(*task) { _, _ = p.keeper.Sweep(context.Background()) })
			}
		}
	})
}

package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Config says what a world is made of. Fields that are zero are drawn from the choices.
type Config struct {
	Handler  string // "" any of the kinds that keep the promise
	Provider string // "", "naive", "honours", "fences", "lasting", "early"
	Queue    string // "", "river", "asynq"
	Mode     runs.Mode
	Order    string // "", "seq", "stamp", "peers", "mixed"
	Tag      string // "", "none", "first", "last"
	Messages int    // 0: 1 to 4
	Budget   int    // faults; 0: 1 to 5; -1: none
	Rate     int    // one fault in so many yields of a kind; 0: asks at every yield (exhaustive)
	Attempts int    // of the queue; 0: 5
	Steps    int    // after so many the world is a runaway; 0: 6000
	Faults   FaultSet
	// Coarse lets nobody in between the steps of one load-decide-write: it writes by
	// compare-and-swap, so whoever comes in between only makes it start again. See ScopeNotes.
	Coarse bool
	Frozen bool // time passes only when nothing else can happen; no jitter
	PCT    bool // priorities instead of uniform picks
	// Strict also counts as violations what is known and accepted: see docs/found-by-chaos.md.
	Strict     bool
	Adapted    bool // always through the adapters' own code; else every other world
	Twice      bool // each job is delivered a second time while the first delivery is at work
	TwiceFirst bool // Twice, and only the first job
	Twin       bool // the first message may come under a second job's id, at any time
	// Without leaves the library out: the same handlers, queue and faults.
	Without bool
	Off     sabotage.Set
	// User is a handler of somebody else's; only the provider's record is judged then.
	User *Handler
}

func (c *Config) most() int {
	if c.Steps > 0 {
		return c.Steps
	}
	return 6000
}

// World is one conversation with everything around it.
type World struct {
	cfg   Config
	c     *choices
	pool  *pool
	noise random

	now   int64
	steps int
	cur   *task
	tasks []*task
	taskN int
	procs []*proc
	api   *proc

	timers    []*timer
	timerN    int
	nextTimer int64

	on         FaultSet // the faults of this world
	budget     int
	calmed     bool // operators have been at work
	calm       bool // no more faults: operators are at work
	downUntil  int64
	db         *database
	spy        *runs.Keeper
	glass      *ledger.Ledger
	glimpse    glimpse
	prov       provider
	jobs       []*job
	lates      []*send
	landings   []landing
	committed  []string
	confirmed  []*send // by a webhook that was told so
	begins     []*hand
	inside     []*hand
	refusals   map[string]int // of the provider, by idempotency key
	denied     int            // of operators
	presses    int            // verdicts and re-runs that grant further calls
	grumpy     int64
	sent       []*send // to a provider that can be asked
	askings    []*asking
	sweeps     int
	echoed     int
	crashes    int
	storeHits  int      // faults of the store
	revived    []string // nonces of leases that were renewed after they had lapsed
	notStarted map[string]int
	reuse      *job // the next message comes under this job's id
	arrived    int
	nextMsg    int64
	human      humanState
	kinds      [2]*Handler
	tag        string
	attempts   int
	messages   int
	asynq      bool
	adapted    bool // jobs go through the adapters' own code
	priority   []int

	bad     string // the violation, "" none
	badKind string
	prune   func(w *World) bool
	// tracking: the world can be hashed; known is state's scratch.
	tracking bool
	known    map[unsafe.Pointer]uint64
	keep     bool
	trace    []Step
	hash     uint64
	cov      *Coverage
	fates    fates
	tally    Tally
}

func (w *World) mix(v uint64) {
	w.hash = (w.hash ^ v ^ uint64(w.now)<<20) * 0x9e3779b97f4a7c15
	w.hash ^= w.hash >> 29
}

// newWorld draws a world.
func newWorld(cfg Config, c *choices, p *pool, cov *Coverage, keep bool) *World {
	w := &World{cfg: cfg, c: c, pool: p, cov: cov, keep: keep, nextTimer: never, refusals: map[string]int{}, notStarted: map[string]int{}}
	if cfg.Frozen {
		w.tracking, w.known = true, map[unsafe.Pointer]uint64{}
	}
	w.on = cfg.Faults
	if w.on == 0 {
		w.on = AllFaults
	}
	if cfg.Rate > 0 {
		w.noise.state = uint64(w.c.choose(1 << 20))
		if cfg.Faults == 0 && w.c.choose(3) > 0 {
			// Swarm: some kinds are off, so that others meet more often.
			some, half := w.noise.next(), w.noise.next()
			w.on &^= FaultSet(some & half)
			if w.c.choose(4) == 1 {
				w.on &^= FaultSet(w.noise.next())
			}
		}
	}
	w.messages = cfg.Messages
	if w.messages == 0 {
		w.messages = 1 + w.c.choose(4)
	}
	w.budget = cfg.Budget
	switch {
	case cfg.Budget == 0:
		w.budget = 1 + w.c.choose(5)
	case cfg.Budget < 0:
		w.budget = 0
	}
	w.attempts = cfg.Attempts
	if w.attempts == 0 {
		w.attempts = 5
	}
	if w.cfg.Provider == "" {
		w.cfg.Provider = []string{"naive", "honours", "fences"}[w.c.choose(3)]
	}
	if cfg.Provider == "" && w.cfg.Provider == "naive" && cfg.Rate > 0 && !cfg.Without {
		// One in two of these can be asked. Drawn from the noise, so that it is one choice less.
		w.cfg.Provider = [...]string{"naive", lasting, early, "naive"}[w.noise.state>>18&3]
	}
	if w.cfg.Queue == "" {
		w.cfg.Queue = []string{"river", "asynq"}[w.c.choose(2)]
	}
	w.asynq = w.cfg.Queue == "asynq"
	w.adapted = cfg.Rate > 0 && (cfg.Adapted || w.c.choose(2) == 1) && !cfg.Without
	if w.cfg.Mode == "" {
		w.cfg.Mode = []runs.Mode{runs.Supersede, runs.Supersede, runs.Exclusive}[w.c.choose(3)]
	}
	if w.cfg.Order == "" {
		w.cfg.Order = []string{"seq", "stamp", "peers", "mixed"}[w.c.choose(4)]
	}
	w.tag = cfg.Tag
	if w.tag == "" {
		w.tag = []string{"none", "first", "last"}[w.c.choose(3)]
	}
	w.kinds[0] = w.pickHandler(cfg.Handler)
	w.kinds[1] = w.kinds[0]
	if w.cfg.Handler == "" && w.cfg.User == nil && w.c.choose(5) == 1 {
		w.kinds[1] = w.pickHandler("")
	}
	if w.kinds[1].Careless || w.kinds[1].Alone {
		w.kinds[0] = w.kinds[1]
	}
	if w.kinds[0].Careless || w.kinds[0].Alone {
		w.kinds[1] = w.kinds[0]
	}
	if w.kinds[0].Name == "swallow" || w.kinds[1].Name == "swallow" {
		w.on &^= Faults(Grumpy) // who hides that an effect is exhausted is never granted another call
	}
	if w.kinds[0].Careless {
		w.on &^= Faults(Twin, Human, HumanTwice, ClosedRow, EditedJob)
	}
	w.prov.w = w
	w.db = w.newDatabase()
	w.api = w.newProc("api")
	w.keeper(w.api)
	for range 2 {
		p := w.newProc(fmt.Sprintf("w%d", len(w.procs)))
		if w.on.Has(ClockStep) && cfg.Rate > 0 {
			p.skew = int64(w.c.choose(5)) * 150 * second
			p.drift = int64(w.c.choose(3)) * 200
		}
		w.keeper(p)
	}
	return w
}

func (w *World) pickHandler(name string) *Handler {
	if w.cfg.User != nil {
		return w.cfg.User
	}
	if name == "" {
		return &Handlers[w.c.choose(len(Handlers))]
	}
	for i := range Handlers {
		if Handlers[i].Name == name {
			return &Handlers[i]
		}
	}
	panic("sim: no handler is called " + name)
}

// keeper gives a process its keeper.
func (w *World) keeper(p *proc) {
	if w.cfg.Without {
		return
	}
	k, err := runs.NewSeamed(&connection{p: p}, &runs.Config{Worker: p.name, Observer: w.observe, Intents: w.intents()}, p.seam)
	if err != nil {
		panic(err)
	}
	p.keeper = k
}

// died gives a crashed process's jobs back to the queue and starts another process.
func (w *World) died(p *proc) {
	for _, j := range w.jobs {
		for _, d := range j.at {
			if d.p == p && !d.gone {
				d.gone = true
				w.rescue(j, d)
			}
		}
	}
	if w.say("world", "%s dies", p.name); len(w.procs) < 8 {
		w.keeper(w.newProc(fmt.Sprintf("w%d", len(w.procs))))
	}
}

// event is one thing that could happen next.
type event struct {
	what eventKind
	t    *task
	j    *job
}

type eventKind uint8

const (
	evStep eventKind = iota
	evDeliver
	evArrive
	evLate
	evHuman
	evTwin
)

// loop lets things happen until nothing can any more.
func (w *World) loop() {
	var list [64]event
	last := (*task)(nil)
	for w.bad == "" {
		if w.steps++; w.steps > w.cfg.most() {
			w.fail("runaway", "nothing settles: %s", w.busy())
			return
		}
		w.fireTimers()
		events := list[:0]
		w.compact()
		if w.cfg.Coarse {
			// The events of a state are the same list on whatever way it was reached.
			last = nil
			slices.SortFunc(w.tasks, func(a, b *task) int { return cmp.Compare(a.key, b.key) })
		}
		if last != nil && last.status != finished && last.isReady() {
			events = append(events, event{what: evStep, t: last})
		}
		for _, t := range w.tasks {
			if t != last && t.status != finished && t.isReady() && len(events) < 40 {
				events = append(events, event{what: evStep, t: t})
			}
		}
		for _, j := range w.jobs {
			if w.cfg.Twice && (j.index == 0 || !w.cfg.TwiceFirst) && !w.calm && j.state == running && j.deliveries == 1 && j.live() == 1 {
				events = append(events, event{what: evDeliver, j: j})
			}
			if j.state == queued && j.notBefore <= w.now && len(events) < 56 {
				events = append(events, event{what: evDeliver, j: j})
			}
		}
		if w.arrived < w.messages && w.nextMsg <= w.now {
			events = append(events, event{what: evArrive})
		}
		if len(w.lates) > 0 && w.lates[0].due <= w.now {
			events = append(events, event{what: evLate})
		}
		if w.human.unreported() {
			events = append(events, event{what: evHuman})
		}
		if w.cfg.Twin && !w.calm && len(events) > 0 && w.arrived > 0 && len(w.jobs) == w.arrived {
			events = append(events, event{what: evTwin})
		}
		if len(events) == 0 {
			if !w.advance() {
				w.seen()
				return
			}
			continue
		}
		if w.cfg.Coarse && !w.calm {
			events = unseen(events)
		}
		if w.seen() {
			return
		}
		if w.mayStrike() && w.strike() || w.bad != "" {
			continue
		}
		e := events[w.pick(events)]
		last = nil
		if !w.cfg.Frozen {
			w.now += millisecond
		}
		switch e.what {
		case evStep:
			last = e.t
			w.resume(e.t)
		case evDeliver:
			last = w.deliver(e.j)
		case evArrive:
			w.arrive()
			if w.cfg.User != nil { // a newer job overtakes at once, or it is no deviation
				last = w.deliver(w.jobs[len(w.jobs)-1])
			}
		case evTwin:
			w.say("customer", "the webhook of %s comes again", messageID(0))
			w.produce(0, w.kinds[0])
			last = w.deliver(w.jobs[len(w.jobs)-1])
		case evLate:
			s := w.lates[0]
			w.lates = w.lates[1:]
			w.say("provider", "does it late: %s", s)
			_, _ = w.prov.apply(s)
		case evHuman:
			w.report()
		}
	}
}

// pick chooses the next event.
func (w *World) pick(events []event) int {
	if len(events) == 1 || w.cfg.Frozen && w.calm {
		return 0
	}
	if !w.cfg.PCT || w.calm {
		return w.c.choose(len(events))
	}
	// PCT: the task with the highest priority goes on; now and then it loses it.
	best, at := -1, 0
	for i, e := range events {
		p := 1
		if e.t != nil {
			p = w.priorityOf(e.t)
		}
		if p > best {
			best, at = p, i
		}
	}
	if events[at].t != nil && w.c.choose(40) == 1 {
		w.priority[events[at].t.id] = 0
	}
	return at
}

func (w *World) priorityOf(t *task) int {
	for len(w.priority) <= t.id {
		w.priority = append(w.priority, 1+w.c.choose(16))
	}
	return w.priority[t.id]
}

// compact forgets finished tasks.
func (w *World) compact() {
	n := 0
	for _, t := range w.tasks {
		if t.status == finished {
			n++
		}
	}
	if n < 4 {
		return
	}
	kept := w.tasks[:0]
	for _, t := range w.tasks {
		if t.status != finished {
			kept = append(kept, t)
		}
	}
	for i := len(kept); i < len(w.tasks); i++ {
		w.tasks[i] = nil
	}
	w.tasks = kept
}

// advance moves time to the next thing that waits for it; false when nothing does.
func (w *World) advance() bool {
	at := int64(never)
	for _, t := range w.tasks {
		if t.status != finished {
			at = min(at, t.nextAt())
		}
	}
	for _, t := range w.timers {
		if t.p == nil || !t.p.dead {
			at = min(at, t.due())
		}
	}
	for _, j := range w.jobs {
		if j.state == queued {
			at = min(at, j.notBefore)
		}
	}
	if w.arrived < w.messages {
		at = min(at, w.nextMsg)
	}
	if len(w.lates) > 0 {
		at = min(at, w.lates[0].due)
	}
	if at == never {
		return false
	}
	if at <= w.now {
		w.fail("stuck", "nothing can happen and nothing is waited for: %s", w.busy())
		return false
	}
	w.now = at
	return true
}

func (w *World) busy() string {
	var b strings.Builder
	for _, j := range w.jobs {
		fmt.Fprintf(&b, "%s %s %s tries %d deliveries %d; ", j.id, j.state, j.reason, j.tries, j.deliveries)
	}
	for _, t := range w.tasks {
		if t.status != finished {
			fmt.Fprintf(&b, "%s status %d; ", t.name, t.status)
		}
	}
	return b.String()
}

func (w *World) close() {
	for _, p := range w.procs {
		if p.dead {
			continue
		}
		p.dead = true
		for _, t := range w.tasks {
			if t.p != p || t.status == finished {
				continue
			}
			if !t.started {
				t.c.body = nil
				w.pool.put(t.c)
				t.status = finished
				continue
			}
			bad := w.bad
			w.resume(t)
			w.bad = bad
		}
	}
}

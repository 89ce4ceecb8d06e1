package sim

// pruned is the kind of a world that was given up because its state had been seen.
const pruned = "pruned"

// Exhausted is what an exhaustive search found.
type Exhausted struct {
	States, Worlds int
	Found          *Result // the first violation, nil if none
	Complete       bool
}

// Exhaust executes every world of a configuration: every order of steps and every fault at
// every yield, within the configuration's budget. A state that was seen before is not
// explored again: what can happen next is a function of the state.
func (e *Engine) Exhaust(cfg Config, maxWorlds int) Exhausted {
	cfg.Frozen, cfg.Rate = true, 0
	seen := map[uint64]struct{}{}
	d := &depthFirst{}
	var out Exhausted
	for {
		d.at = 0
		w := newWorld(cfg, d, &e.pool, &e.Cov, false)
		w.prune = func() bool {
			if d.at < len(d.path) {
				return false // still on the way that was taken before
			}
			h := w.state()
			if _, ok := seen[h]; ok {
				return true
			}
			seen[h] = struct{}{}
			return false
		}
		w.execute()
		w.close()
		out.Worlds++
		if w.bad != "" && w.badKind != pruned {
			r := Result{Kind: w.badKind, Violation: w.bad, Choices: w.c.log, Config: cfg, Tally: w.tally}
			out.Found = &r
			break
		}
		if !d.advance() {
			out.Complete = true
			break
		}
		if maxWorlds > 0 && out.Worlds >= maxWorlds {
			break
		}
	}
	out.States = len(seen)
	return out
}

// state hashes everything on which the future depends.
func (w *World) state() uint64 {
	h := uint64(0x51ed270b)
	add := func(v uint64) {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	add(w.db.hash)
	add(uint64(w.now))
	add(uint64(w.budget)<<32 | uint64(w.arrived))
	for _, p := range w.procs {
		add(p.obs)
		v := uint64(p.pausedUntil)
		if p.dead {
			v = 1
		}
		add(v ^ uint64(p.cutUntil)<<1)
	}
	for _, j := range w.jobs {
		add(uint64(j.state)<<40 | uint64(j.tries)<<32 | uint64(j.deliveries)<<16 | uint64(j.snoozes))
		add(uint64(j.notBefore))
		for _, d := range j.at {
			v := uint64(d.n) << 2
			if d.gone {
				v |= 1
			}
			if d.over {
				v |= 2
			}
			add(v)
		}
	}
	var tasks uint64 // in any order
	for _, t := range w.tasks {
		if t.status == finished {
			continue
		}
		v := t.key<<8 | uint64(t.status)
		if t.started {
			v |= 1 << 7
		}
		v = (v ^ uint64(t.wake)) * 0xbf58476d1ce4e5b9
		tasks += v ^ v>>31
	}
	add(tasks)
	for _, s := range w.prov.done {
		add(hashString(s.intent+s.name) ^ uint64(s.real))
	}
	for _, s := range w.lates {
		add(hashString(s.intent+s.name) ^ uint64(s.real) ^ uint64(s.due))
	}
	return h
}

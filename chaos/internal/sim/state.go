package sim

import (
	"slices"
	"unsafe"

	"github.com/fencedrun/fencedrun/ledger"
)

// An exhaustive search gives up a way that leads to a state it has seen. So equal hashes must
// mean equal futures: of what a world can do, and of what its oracles will say of it. A state is
// made of four parts: the ledger's rows, what the model itself keeps, what the library holds in
// a process's memory, and where each task stands. The library's memory is read by reflection,
// so that nothing is forgotten when the library changes; where a task stands is what it has
// observed since the last point at which its handler's own variables were all known (fold).

// fold says that what t does from here on depends on the given values alone, beside what its
// process holds in memory: what it has observed before is forgotten.
func (t *task) fold(where string, values ...any) {
	if !t.w.tracking {
		return
	}
	d := digger{h: hashString(where), w: t.w, known: map[unsafe.Pointer]uint64{}}
	for _, v := range values {
		d.any(v)
	}
	t.obs = d.h
	t.enter(false)
}

// saw mixes what a task observed into where it stands.
func (t *task) saw(v uint64) {
	if !t.w.tracking {
		return
	}
	t.obs = (t.obs ^ v) * 0x9e3779b97f4a7c15
	t.obs ^= t.obs >> 31
	if t.w.cfg.User != nil {
		// Somebody else's handler may remember whatever it saw, also after its end.
		t.p.obs = (t.p.obs ^ v ^ t.key<<40) * 0x9e3779b97f4a7c15
		t.p.obs ^= t.p.obs >> 31
	}
}

// enter marks the beginning and the end of what a task does with the lock of its process's copy
// of a conversation in hand: one load-decide-write.
func (t *task) enter(holds bool) {
	t.base, t.errs = t.obs, 0
	t.holds, t.asks = holds, 0
}

// within reports whether nobody else needs to come in between at t's next yield: see
// Config.Coarse.
func (t *task) within() bool {
	if !t.w.cfg.Coarse {
		return false
	}
	if t.beats {
		return true
	}
	if !t.holds {
		return false
	}
	t.asks++
	if t.hand != nil && t.hand.over {
		t.hand.asks++
		return t.hand.asks > 1
	}
	return t.asks > 1
}

// told is saw for an answer of the store. The library decides on the newest answer alone: it
// starts from the copy that the answer made, so an older answer to the same question counts
// no more.
func (t *task) told(v uint64) {
	if t.w.tracking && t.w.cfg.User == nil {
		t.obs = t.base ^ t.errs*0xbf58476d1ce4e5b9
	}
	t.saw(v)
}

// asked adds what the question was: the library asks for more than before once it knows that it
// needs more.
func (t *task) asked(q *ledger.Query) {
	if !t.w.tracking {
		return
	}
	for _, k := range q.Keys {
		t.saw(hashString(k))
	}
	t.saw(hashString(q.Run) ^ uint64(q.Since)<<8)
	if q.Tail {
		t.saw(1)
	}
	if q.Open {
		t.saw(2)
	}
}

func (t *task) sawError(v uint64) {
	t.errs = t.errs*31 + v
	t.saw(v)
}

// fold is task.fold with what every handler keeps. Handlers with variables of their own that
// are not named do not fold.
func (h *hand) fold(where string, values ...any) {
	if h.t.w.tracking && h.j.h.Folds {
		h.t.fold(where, h.round, h.open, h.refusal, values)
	}
}

// state hashes everything on which the future depends.
func (w *World) state() uint64 {
	d := digger{h: 0x51ed270b, w: w, known: w.known}
	clear(w.known)
	d.add(w.db.hash)
	d.add(uint64(w.now))
	d.add(uint64(w.budget)<<32 | uint64(w.arrived))
	for _, p := range w.procs {
		if p.dead {
			d.add(1)
			continue
		}
		d.add(uint64(max(p.pausedUntil, w.now)))
		d.add(uint64(max(p.cutUntil, w.now)))
		d.add(p.obs)
		d.any(p.keeper)
		for _, t := range w.tasks {
			if t.p == p && t.status != finished && t.hand != nil {
				d.add(t.key)
				d.any(t.hand.run)
			}
		}
	}
	for _, j := range w.jobs {
		d.add(uint64(j.state)<<40 | uint64(j.tries)<<32 | uint64(j.deliveries)<<16 | uint64(j.snoozes))
		d.add(uint64(j.msg)<<32 | uint64(j.index))
		if j.state == queued {
			d.add(uint64(max(j.notBefore, w.now)))
		}
		for _, at := range j.at {
			if at.over || at.p.dead {
				continue
			}
			v := uint64(at.n)<<8 | uint64(at.p.id)<<2
			if at.gone {
				v |= 1
			}
			if at.cancelled {
				v |= 2
			}
			d.add(v)
		}
	}
	var sum uint64 // in any order
	part := func(fill func()) {
		before := d.h
		d.h = 0
		fill()
		sum += d.h ^ d.h>>32
		d.h = before
	}
	for _, t := range w.tasks {
		if t.status == finished {
			continue
		}
		part(func() {
			d.add(t.key<<8 | uint64(t.status))
			d.add(t.obs)
			if t.started {
				d.add(uint64(t.p.id))
			}
			if t.status == sleeping {
				d.add(uint64(t.wake))
			}
			if t.ctx != nil && t.ctx.Err() != nil {
				d.add(3)
			}
			if t.acks { // a later delivery of the job does not change it any more
				d.add(4)
			}
		})
	}
	for _, t := range w.timers {
		if t.p == nil || !t.p.dead {
			part(func() {
				d.add(uint64(t.at))
				d.add(t.what)
				if t.p != nil {
					d.add(uint64(t.p.id))
				}
			})
		}
	}
	for _, s := range w.prov.done {
		part(func() { s.dig(&d, 5) })
	}
	d.add(sum)
	for _, s := range w.lates {
		s.dig(&d, 6)
		d.add(uint64(s.due))
	}
	w.remembered(&d)
	return d.h
}

func (s *send) dig(d *digger, v uint64) {
	d.add(v)
	d.text(s.intent)
	d.text(s.name)
	d.text(s.idem)
	d.add(uint64(s.real))
	if s.done {
		d.add(1)
	}
}

// remembered hashes what the oracles will compare with.
func (w *World) remembered(d *digger) {
	for _, t := range w.tasks {
		if h := t.hand; h != nil && t.status != finished && !h.over {
			d.add(t.key)
			for i := range w.landings {
				l := &w.landings[i]
				if l.step > h.view {
					l.s.dig(d, 7)
				}
				if l.step < h.began {
					l.s.dig(d, 10)
				}
			}
			for _, s := range *h.replays {
				s.dig(d, 8)
			}
		}
	}
	for i := range w.landings {
		l := &w.landings[i]
		l.s.dig(d, 9)
		if l.h != nil {
			d.add(uint64(l.h.j.index)<<16 | uint64(l.h.delivery))
		}
	}
	for _, j := range w.jobs {
		d.add(uint64(j.calls)<<32 | uint64(j.overlaps))
		for _, n := range j.entries {
			d.add(uint64(n))
		}
		if j.state > running { // until then another reason takes its place
			d.text(j.reason)
		}
		d.text(j.refusal)
		d.add(uint64(j.blind))
		d.text(j.succeeded)
		for _, wait := range j.waits {
			d.text(wait.idem)
			d.add(uint64(wait.deadline))
		}
	}
	d.any(w.refusals)
	d.any(w.notStarted)
	d.add(uint64(w.presses))
	if w.storeHits > 0 {
		d.add(1)
	}
	var sum uint64 // in any order
	for _, s := range w.tally.executed {
		sum += hashString(s.idem)
	}
	for _, call := range w.committed {
		sum += hashString(call) * 3
	}
	for i, nonce := range w.revived {
		if !slices.Contains(w.revived[:i], nonce) {
			sum += hashString(nonce) * 5
		}
	}
	d.add(sum)
}

package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// arrive lets a customer write the next message.
func (w *World) arrive() {
	i := w.arrived
	w.arrived++
	w.mix(uint64(i) + 77)
	w.nextMsg = w.now
	if !w.cfg.Frozen && w.arrived < w.messages {
		w.nextMsg += [...]int64{0, 2 * second, 70 * second, 300 * second}[w.c.choose(4)]
	}
	w.say("customer", "writes %s", messageID(i))
	w.produce(i, w.kinds[i%2])
}

// produce makes a job of a message, as the API does that receives it.
func (w *World) produce(i int, h *Handler) {
	order := w.cfg.Order
	if order == "mixed" {
		order = [...]string{"seq", "stamp"}[i%2]
	}
	j := &job{msg: i, h: h}
	switch order {
	case "seq":
		j.order = runs.Order{Source: "seq", Number: int64(i + 1)}
	case "peers":
		j.order = runs.Order{}
	}
	// Whoever enqueues a stopped job anew does it with a stamp: without one nothing would ever
	// count as seen.
	snapshot := h.Payload && (h.Stamped || w.calm)
	stamped := order == "stamp" || snapshot
	if w.cfg.Without || !stamped {
		j.seen = w.prov.unanswered()
		w.put(j)
		return
	}
	w.spawn(w.api, "enqueue", func(t *task) {
		for {
			n, err := w.api.keeper.Stamp(context.Background(), "c")
			if err != nil {
				_ = t.sleep(context.Background(), 3*second)
				continue
			}
			if order == "stamp" {
				j.order = runs.Order{Source: runs.StampSource, Number: n}
			}
			if snapshot {
				j.stamp, j.stampedAt = n, w.steps
			}
			break
		}
		t.point(atRead, "takes a snapshot")
		j.seen = w.prov.unanswered()
		w.put(j)
	})
}

// humanState is what a person did in the conversation.
type humanState struct {
	answered uint32
	reports  int    // to be sent
	told     uint32 // what the library has been told, and when
	toldAt   int    // step
}

func (h *humanState) unreported() bool { return h.reports > 0 }

// answerByHand lets a person answer what is unanswered.
func (w *World) answerByHand(times int) {
	open := w.prov.unanswered()
	w.human.answered = open
	w.human.reports = times
	for i := range w.prov.human {
		if open>>i&1 == 1 {
			w.prov.human[i]++
		}
	}
	w.say("agent", "a person answers %v", ids(open))
}

// report tells the library what the person did.
func (w *World) report() {
	w.human.reports--
	if w.cfg.Without {
		return
	}
	answered := w.human.answered
	w.spawn(w.api, "webhook", func(t *task) {
		for {
			r, err := w.api.keeper.Report(context.Background(), "c", runs.Write{ID: "h1", Intent: "reply", Answers: ids(answered), By: "agent"})
			if err == nil {
				if w.human.toldAt == 0 {
					w.human.told, w.human.toldAt = answered, w.steps
					w.landings = append(w.landings, landing{s: &send{intent: "reply", name: "by a person", real: answered}, step: t.stored})
				} else if !r.Known {
					w.fail("report", "the same webhook is taken for another report")
				}
				w.say("api", "reports the person's answer, known %v", r.Known)
				return
			}
			_ = t.sleep(context.Background(), 3*second)
		}
	})
}

// mayStrike reports whether a fault could come by itself now.
func (w *World) mayStrike() bool {
	return w.budget > 0 && !w.calm && w.cfg.Rate > 0
}

// strike lets one of the faults happen that need no yield; false when none does.
func (w *World) strike() bool {
	x := w.c.choose(w.cfg.Rate * 2)
	if x == 0 || x > len(happening) || !w.on.Has(happening[x-1]) {
		return false
	}
	f := happening[x-1]
	if !w.happen(f) {
		return false
	}
	w.budget--
	w.struck(f, kinds)
	w.mix(uint64(f) + 991)
	return true
}

// happen does it, if there is something to do it to.
func (w *World) happen(f Fault) bool {
	switch f {
	case Duplicate:
		if j := w.chooseJob(func(j *job) bool { return j.state == running && j.live() > 0 && j.live() < 3 && j.tries < w.attempts }); j != nil {
			w.say("queue", "delivers %s again while it is at work", j.id)
			w.deliver(j)
			return true
		}
	case Twin:
		if w.arrived > 0 && len(w.jobs) < w.messages+2 && len(w.jobs) > 0 {
			w.say("customer", "the webhook of %s comes again", messageID(w.jobs[0].msg))
			w.produce(w.jobs[w.c.choose(len(w.jobs))].msg, w.jobs[0].h)
			return true
		}
	case JobTimeout:
		if j := w.chooseJob((*job).atWork); j != nil {
			d := j.at[len(j.at)-1]
			w.say("queue", "%s times out", j.id)
			d.cancel(context.DeadlineExceeded)
			d.gone, d.cancelled = true, true
			if j.tries >= w.attempts {
				j.end(discarded, "timed out on the last attempt")
			} else {
				j.again(w.now+20*second, "timed out")
			}
			return true
		}
	case Shutdown:
		if p := w.chooseProc(); p != nil {
			w.shutdown(p)
			return true
		}
	case CrashIdle:
		if p := w.chooseProc(); p != nil {
			w.crash(p)
			return true
		}
	case ClockStep:
		if p := w.chooseProc(); p != nil {
			p.skew += [...]int64{-100, 100, -3000, 3000}[w.c.choose(4)] * second
			w.say(p.name, "its clock jumps to %v off", clock(p.skew))
			return true
		}
	case LoseWrites:
		if n := len(w.db.log) - w.db.safe; n > 0 && !w.cfg.Without {
			n -= w.c.choose(n)
			w.say("ledger", "crashes and loses the last %d writes", n)
			w.db.crash(n)
			w.tally.Lost += n
			return true
		}
	case Human, HumanTwice:
		if w.human.answered == 0 && w.prov.unanswered() != 0 {
			w.answerByHand(1 + int(f-Human))
			return true
		}
	case Cancel:
		if j := w.chooseJob(func(j *job) bool { return j.state <= running && !j.exempt }); j != nil && !w.cfg.Without {
			w.cancelJob(j)
			return true
		}
	case ClosedRow:
		if j := w.chooseJob(func(j *job) bool { return j.state == acked && !j.reused }); j != nil {
			w.say("queue", "%s is delivered again although it was acknowledged", j.id)
			j.again(w.now, "again")
			j.tries = max(0, min(j.tries, w.attempts-1))
			return true
		}
	case EditedJob:
		if j := w.chooseJob(func(j *job) bool { return j.state == queued && !j.edited }); j != nil {
			w.say("queue", "somebody edits the waiting %s", j.id)
			j.digest += "'"
			j.edited = true
			return true
		}
	case Lookup:
		if w.cfg.Without {
			return false
		}
		w.spawn(w.api, "purge", func(*task) { _, _ = w.api.keeper.Purge(context.Background(), 10) })
		return true
	case Moved:
		if j := w.chooseJob(func(j *job) bool { return j.state == queued && len(j.entries) > 0 && !j.moved }); j != nil && !w.cfg.Without {
			w.say("queue", "somebody moves %s to another conversation", j.id)
			j.moved, j.exempt = true, true
			return true
		}
	case ReusedID:
		if j := w.chooseJob(func(j *job) bool { return j.state == acked && !j.reused }); j != nil && w.arrived < w.messages && (w.asynq || !w.adapted) {
			w.reuse = j
			return true
		}
	case Echo:
		if len(w.prov.done) > 0 && !w.cfg.Without {
			w.echo(w.prov.done[w.c.choose(len(w.prov.done))])
			return true
		}
	case EarlyWord:
		return !w.cfg.Without && w.earlyWord()
	case Grumpy:
		w.grumpy = w.now + int64(100+w.c.choose(3)*400)*second
		w.say("provider", "says no to everything for %.0f s", time.Duration(w.grumpy-w.now).Seconds())
		return true
	}
	return false
}

// echo reports our own write, as the provider's webhook does.
func (w *World) echo(s *send) {
	if s.idem == "" {
		return
	}
	w.echoed++
	s.echoed = true
	id := fmt.Sprintf("echo%d", w.echoed)
	w.say("provider", "its webhook reports %s", s)
	w.spawn(w.api, "webhook", func(t *task) {
		for {
			r, err := w.api.keeper.Report(context.Background(), "c", runs.Write{ID: id, Intent: s.intent, Answers: ids(s.real), IdempotencyKey: s.idem})
			if err == nil {
				if r.Echo == "" && w.tally.Lost == 0 && w.cfg.Provider != "" && !w.moved() {
					w.fail("echo", "the echo of %s is not recognised", s)
				}
				return
			}
			_ = t.sleep(context.Background(), 3*second)
		}
	})
}

func (w *World) moved() bool {
	return w.chooseNone(func(j *job) bool { return j.moved })
}

func (w *World) chooseNone(ok func(*job) bool) bool {
	return slices.ContainsFunc(w.jobs, ok)
}

// earlyWord lets a person decide, wrongly, about a call that is under way: it must be refused.
func (w *World) earlyWord() bool {
	hist, ok := w.history()
	if !ok {
		return false
	}
	for _, e := range hist.Effects {
		if e.State() != fence.Pending {
			continue
		}
		deadline := e.Deciding().Deadline
		w.say("operator", "says of %s, which is under way, that it did not happen", effectText(e.Intent, e.Key))
		w.spawn(w.api, "early word", func(t *task) {
			before := w.db.clock().UnixMilli()
			was, _, err := w.api.keeper.Resolve(context.Background(), "c", e.ID, runs.Resolution{By: "operator"})
			if err == nil && was.State() == fence.Pending && before < int64(deadline) && w.db.clock().UnixMilli() < int64(deadline) && t.applied != 0 {
				w.fail("early word", "a person's word about %s %s is taken while its call is under way", e.Intent, e.Key)
			} else if err == nil {
				w.tally.Words++
			}
		})
		return true
	}
	return false
}

func (w *World) cancelJob(j *job) {
	j.exempt = true
	dismiss := w.c.choose(2) == 1
	digest := j.digest
	w.say("operator", "cancels %s", j.id)
	w.spawn(w.api, "cancel", func(t *task) {
		for {
			done, err := w.api.keeper.Cancel(context.Background(), runs.RunKey{Queue: w.queueKey(), ID: j.id}, runs.CancelOptions{By: "operator", Dismiss: dismiss})
			if err == nil {
				if done { // else it had ended before
					j.cancelled, j.cancelStep = digest, w.steps
				}
				return
			}
			_ = t.sleep(context.Background(), 3*second)
		}
	})
}

// shutdown asks a process to stop: its jobs go back to the queue, its handlers live on for a
// while and are then cut off.
func (w *World) shutdown(p *proc) {
	w.say(p.name, "is told to stop")
	p.stopping = true
	for _, j := range w.jobs {
		for _, d := range j.at {
			if d.p == p && !d.over && !d.gone {
				d.gone = true
				if j.state == running {
					j.tries--
					j.again(w.now+second/3, "shutdown")
				}
				if d.cancel != nil {
					d.cancel(context.Canceled)
					d.cancelled = true
				}
			}
		}
	}
	if len(w.procs) < 8 {
		w.keeper(w.newProc(fmt.Sprintf("w%d", len(w.procs))))
	}
	w.after(nil, int64(5+w.c.choose(3)*60)*second, func() { w.crash(p) })
}

func (j *job) live() int {
	n := 0
	for _, d := range j.at {
		if !d.over && !d.p.dead {
			n++
		}
	}
	return n
}

func (j *job) atWork() bool {
	if j.state != running || len(j.at) == 0 {
		return false
	}
	d := j.at[len(j.at)-1]
	return !d.over && !d.gone && !d.p.dead && d.cancel != nil
}

func (w *World) chooseJob(ok func(*job) bool) *job {
	var found [16]*job
	n := 0
	for _, j := range w.jobs {
		if ok(j) && n < len(found) {
			found[n] = j
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return found[w.c.choose(n)]
}

func (w *World) chooseProc() *proc {
	var found [8]*proc
	n := 0
	for _, p := range w.procs {
		if p != w.api && !p.dead && !p.stopping && n < len(found) {
			found[n] = p
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return found[w.c.choose(n)]
}

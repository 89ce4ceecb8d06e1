package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

type jobState uint8

const (
	queued jobState = iota
	running
	acked
	parked
	discarded
	dropped
)

var jobStates = [...]string{"queued", "running", "acked", "parked", "discarded", "dropped"}

func (s jobState) String() string { return jobStates[s] }

// job is the queue's row.
type job struct {
	index      int
	id         string
	msg        int
	h          *Handler
	order      runs.Order
	digest     string
	seen       uint32 // what the payload's snapshot shows as unanswered
	stamp      int64
	envelope   envelope
	state      jobState
	notBefore  int64
	tries      int
	deliveries int
	snoozes    int
	reason     string
	at         []*delivery
	exempt     bool // an operator cancelled it
	edited     bool
	pressed    bool // an operator ran it again
	reused     bool // its id was given to other work
	moved      bool // to another conversation
	// What the oracles remember.
	entries     []int64 // delivery numbers of the handlers entered
	calls       int     // of Deliver
	blind       int
	refusal     string // of its last delivery
	progress    int
	handled     []string // digests whose handler was entered
	succeededAt int
	succeeded   string
	cancelled   string // the digest at the cancel
	cancelStep  int
	waits       []wait
	released    bool // since its handler was entered
	stampedAt   int
	overlaps    int // deliveries while another was at work
	leaseLost   bool
	overtaken   int // the step at which a delivery that was not entered was done
}

// delivery is one execution of a job by a worker.
type delivery struct {
	j         *job
	n         int
	p         *proc
	cancel    context.CancelCauseFunc
	gone      bool // the queue no longer waits for its result
	over      bool
	cancelled bool // its ctx is done
}

// put enqueues a job.
func (w *World) put(j *job) {
	j.index = len(w.jobs)
	j.id = fmt.Sprintf("j%d", j.index)
	if w.adapted && !w.asynq {
		j.id = fmt.Sprint(j.index + 1) // River's ids are numbers
	}
	if old := w.reuse; old != nil && old.state == acked && !w.calm {
		// The queue's ids may be used again once their job is done.
		w.reuse = nil
		old.reused = true
		j.id = old.id
		j.digest = fmt.Sprintf("%s for %s", old.id, messageID(j.msg))
		j.entries, j.calls, j.handled, j.overlaps, j.reused = old.entries, old.calls, old.handled, old.overlaps, true
	}
	if w.adapted && j.order == (runs.Order{}) {
		switch {
		case !w.asynq: // the adapter orders by the job's id
			j.order = runs.Order{Source: w.queueKey(), Number: int64(j.index + 1)}
		case j.stamp != 0: // and by the stamp
			j.order = runs.Order{Source: runs.StampSource, Number: j.stamp}
		}
	}
	if j.digest == "" {
		j.digest = j.id
	}
	w.jobs = append(w.jobs, j)
	w.say("queue", "%s is enqueued for %s", j.id, messageID(j.msg))
}

// deliver hands a job to one of the living workers.
func (j *job) conv() string {
	if j.moved {
		return "c2"
	}
	return "c"
}

func (w *World) deliver(j *job) *task {
	var alive [8]*proc
	n := 0
	for _, p := range w.procs {
		if p != w.api && !p.dead && !p.stopping {
			alive[n] = p
			n++
		}
	}
	if n == 0 {
		// All are gone; the last one was not replaced. Somebody starts one.
		p := w.newProc(fmt.Sprintf("w%d", len(w.procs)))
		w.keeper(p)
		alive[0], n = p, 1
	}
	p := alive[0]
	if w.cfg.Frozen {
		p = alive[(len(j.at)+j.msg)%n]
	} else if n > 1 {
		p = alive[w.c.choose(n)]
	}
	return w.deliverTo(j, p)
}

func (w *World) deliverTo(j *job, p *proc) *task {
	j.state = running
	if j.live() > 0 {
		j.overlaps++
	}
	j.tries++
	j.deliveries++
	d := &delivery{j: j, n: j.deliveries, p: p}
	live := j.at[:0]
	for _, old := range j.at {
		if !old.over && !old.p.dead {
			live = append(live, old)
		}
	}
	live = append(live, d)
	j.at = live
	w.mix(uint64(len(j.id))<<32 | uint64(j.deliveries)<<8 | uint64(p.id))
	if w.keep {
		w.say("queue", "delivers %s to %s, delivery %d", j.id, p.name, d.n)
	}
	name := ""
	if w.keep {
		name = fmt.Sprintf("%s#%d", j.id, d.n)
	}
	t := w.spawn(p, name, func(t *task) { w.work(t, d) })
	t.d = d
	t.key = uint64(j.index+1)<<12 | uint64(d.n)
	return t
}

// work is what a worker process does with a job: the adapter's part.
func (w *World) work(t *task, d *delivery) {
	defer func() { d.over = true }()
	j := d.j
	queue, cancel := context.WithCancelCause(context.Background())
	d.cancel = cancel
	if w.cfg.Without {
		h := &hand{t: t, w: w, ctx: queue, j: j, delivery: int64(d.n), replays: new([]*send)}
		err := protect(func() error { return j.h.run(h) })
		w.settleBare(t, d, err)
		return
	}
	if w.adapted {
		w.adaptedWork(queue, t, d)
		return
	}
	for {
		v := w.deliverFenced(queue, t, d)
		if v.Action == runs.ActionStale {
			w.stale(queue, t, d)
			return
		}
		if v.Action == runs.ActionComeBack && w.asynq && j.tries >= w.attempts && queue.Err() == nil {
			// Asynq would archive it: wait inside instead.
			if t.sleep(queue, int64(v.After)) == nil {
				j.snoozes++
				continue
			}
		}
		w.verdict(t, d, v)
		return
	}
}

type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

// protect is the queue's own recover. A crash passes through.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killedPanic); ok {
				panic(r)
			}
			err = panicked{r}
		}
	}()
	return f()
}

func (w *World) deliverFenced(queue context.Context, t *task, d *delivery) (v runs.Verdict) {
	j := d.j
	job := runs.Job{
		Queue: w.queueKey(), ID: j.id, Conversation: j.conv(), Order: j.order, Digest: j.digest, Mode: w.cfg.Mode, Reads: runs.AfterBegin,
		Inbound: messageNames[j.msg : j.msg+1],
	}
	if j.h.NoInbound {
		job.Inbound, job.NoInbound = nil, true
	}
	if j.h.Payload {
		job.Reads, job.AsOf = runs.FromPayload, j.stamp
	}
	last := j.tries >= w.attempts
	options := runs.Delivery{
		Permanent:  func(error) bool { return last },
		ReplayOnly: j.h.ReplayOnly,
	}
	j.calls++
	var h *hand
	err := protect(func() error {
		v = d.p.keeper.Deliver(queue, job, options, func(ctx context.Context) error {
			h = &hand{t: t, w: w, ctx: ctx, run: runs.FromContext(ctx), j: j, digest: job.Digest, conv: job.Conversation, replays: new([]*send)}
			h.delivery = h.run.Delivery()
			t.hand = h
			w.entered(h)
			h.fold("entered")
			if job.Conversation != "c" {
				return nil
			}
			defer func() { h.over = true }() // also by a panic: its frames are gone before the run is released
			err := j.h.run(h)
			h.over = true
			h.fold("left", err)
			return err
		})
		return nil
	})
	if err != nil {
		v = runs.Verdict{Action: runs.ActionReturn, Err: err}
	}
	if v.Reason == fence.ReasonSuperseded && v.Action != runs.ActionStale && !w.rightlySuperseded(j) && w.tally.Lost == 0 {
		w.fail("peers", "%s is superseded and no newer job of its source exists", j.id)
	}
	w.cov.verdict(v)
	w.concluded(t, j, h, job.Digest, v)
	t.hand = nil
	if w.cfg.User == nil {
		t.fold("verdict", string(v.Action), string(v.Reason), v.After, v.Err == nil)
	}
	return v
}

// verdict tells the queue.
func (w *World) verdict(t *task, d *delivery, v runs.Verdict) {
	j := d.j
	reason := string(v.Reason)
	switch v.Action {
	case runs.ActionDone:
		w.ack(t, d, "done", func() { j.end(acked, reason) })
	case runs.ActionDrop:
		w.ack(t, d, "drop", func() { j.end(dropped, reason) })
	case runs.ActionComeBack:
		w.ack(t, d, "come back", func() {
			j.tries--
			j.snoozes++
			j.again(w.now+int64(v.After), reason)
			if j.snoozes > 400 {
				w.fail("runaway", "%s has been sent back %d times: %s", j.id, j.snoozes, reason)
			}
		})
	case runs.ActionPark:
		w.ack(t, d, "park", func() { j.end(parked, reason) })
	case runs.ActionDiscard:
		w.ack(t, d, "discard", func() { j.end(discarded, reason) })
	case runs.ActionReturn, runs.ActionRetry:
		if v.Err == nil {
			w.ack(t, d, "done", func() { j.end(acked, reason) })
			return
		}
		if reason == "" {
			reason = "the handler's own error"
		}
		w.retry(t, d, reason)
	default:
		w.fail("verdict", "no action in %+v", v)
	}
}

func (w *World) settleBare(t *task, d *delivery, err error) {
	if err == nil {
		w.ack(t, d, "done", func() { d.j.end(acked, "") })
		return
	}
	w.retry(t, d, err.Error())
}

func (w *World) retry(t *task, d *delivery, reason string) {
	j := d.j
	w.ack(t, d, "retry", func() {
		if j.tries >= w.attempts {
			j.end(discarded, reason)
			return
		}
		j.again(w.now+30*second, reason)
	})
}

func (j *job) end(s jobState, reason string) { j.state, j.reason = s, reason }

func (j *job) again(at int64, reason string) {
	j.state, j.notBefore, j.reason = queued, at, reason
}

// ack changes the queue's row, if the queue still listens and the message gets through. Like
// both queues it looks at the row's state and not at which delivery speaks.
func (w *World) ack(t *task, d *delivery, what string, change func()) {
	text := ""
	if w.keep {
		text = "tells the queue: " + what
	}
	t.acks = !w.cfg.Twice || d.j.deliveries > 1 || w.cfg.TwiceFirst && d.j.index > 0
	f := t.point(atAck, text)
	t.acks = false
	if f == Cut {
		d.p.cutUntil = w.now + 60*second
	}
	if d.p.cutUntil > w.now {
		w.rescue(d.j, d)
		return
	}
	ignored := d.gone && w.asynq // asynq ignores what comes after ctx is done
	if d.j.state == running && !ignored {
		change()
		w.mix(uint64(d.j.state))
	}
	d.gone = true
	t.after(f)
}

// rescue lets the queue find out, later, that nobody works on a job.
func (w *World) rescue(j *job, d *delivery) {
	n := d.n
	wait := 100 * second
	if !w.asynq {
		wait = 3700 * second // River's rescuer waits for an hour
	}
	t := w.after(nil, wait, func() {
		if j.state != running || j.deliveries != n {
			return
		}
		if j.tries >= w.attempts {
			j.end(discarded, "crashed on the last attempt")
			return
		}
		j.again(w.now, "rescued")
	})
	t.what = 1<<62 | uint64(j.index)<<32 | uint64(n)
}

// stale is what an adapter does when a newer delivery of the job holds the right to write.
func (w *World) stale(queue context.Context, t *task, d *delivery) {
	if !w.asynq {
		d.gone = true // leave the row alone
		w.rescue(d.j, d)
		return
	}
	job := runs.Job{Queue: w.queueKey(), ID: d.j.id, Conversation: "c"}
	wait, cancel := d.p.withTimeout(queue, 10*time.Minute)
	defer cancel()
	_ = d.p.keeper.WaitStale(wait, job)
	// Whatever is returned now is an error: the job is retried if the row still waits for it.
	w.retry(t, d, "stale")
}

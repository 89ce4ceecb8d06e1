package cases

import (
	"context"
	"runtime"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// delivery is one delivery of a job whose handler does, in its own goroutine, what the story
// tells it to, one step after the other. That makes every interleaving exact.
type delivery struct {
	w   *world
	by  *worker
	job runs.Job
	ctx context.Context // the handler's, once it is entered
	run *runs.Run

	entered chan struct{}
	steps   chan *step
	over    chan struct{} // Deliver has returned, or was left

	verdict   runs.Verdict
	returned  bool // Deliver returned, rather than panicked or exited
	recovered any  // what a panic carried through Deliver
}

// step is something that a handler is told to do.
type step struct {
	f    func(ctx context.Context) error
	err  error
	done chan struct{} // closed when f has returned; never when it panics

	leave bool // the handler returns err
}

// deliver has k take the job from its queue, and returns when the handler was entered or the
// delivery is over without.
func (w *world) deliver(k *worker, j runs.Job) *delivery {
	w.Helper()
	return w.deliverIn(w.Context(), k, j)
}

// deliverIn is deliver with the ctx that the queue gives this delivery. It goes on after the
// handler has returned, as a server's does.
func (w *world) deliverIn(ctx context.Context, k *worker, j runs.Job) *delivery {
	w.Helper()
	d := &delivery{
		w: w, by: k, job: j,
		entered: make(chan struct{}), steps: make(chan *step), over: make(chan struct{}),
	}
	w.spawn(func() {
		defer close(d.over)
		defer func() { d.recovered = recover() }()
		d.verdict = k.Deliver(ctx, j, runs.Delivery{}, d.handle)
		d.returned = true
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-d.entered:
	case <-d.over:
	case <-timer.C:
		w.Fatalf("delivery of %s neither entered nor came back", j.ID)
	}
	return d
}

func (d *delivery) handle(ctx context.Context) error {
	d.ctx, d.run = ctx, runs.FromContext(ctx)
	close(d.entered)
	for {
		select {
		case s := <-d.steps:
			if s.leave {
				return s.err
			}
			s.err = s.f(ctx)
			close(s.done)
		case <-d.w.quit:
			return context.Canceled
		}
	}
}

// in reports whether the handler was entered.
func (d *delivery) in() bool {
	select {
	case <-d.entered:
		return true
	default:
		return false
	}
}

// must insists that the handler was entered.
func (d *delivery) must() *delivery {
	d.w.Helper()
	if !d.in() {
		d.w.Fatalf("%s: the handler was not entered: %+v", d.job.ID, d.verdict)
	}
	return d
}

// start has the handler do f and goes on at once.
func (d *delivery) start(f func(ctx context.Context) error) *step {
	d.w.Helper()
	d.must()
	s := &step{f: f, done: make(chan struct{})}
	select {
	case d.steps <- s:
	case <-d.over:
		d.w.Fatalf("%s: the handler has returned already", d.job.ID)
	}
	return s
}

// do has the handler do f and waits for it.
func (d *delivery) do(f func(ctx context.Context) error) error {
	d.w.Helper()
	return d.wait(d.start(f))
}

// wait waits for a step that was started.
func (d *delivery) wait(s *step) error {
	d.w.Helper()
	d.w.await(s.done, "a step of %s's handler", d.job.ID)
	return s.err
}

// once has the handler ask for an effect and waits for the answer.
func (d *delivery) once(e runs.Effect) error {
	d.w.Helper()
	return d.do(d.w.asking(e))
}

// catchUp has the handler look at what happened.
func (d *delivery) catchUp() runs.View {
	d.w.Helper()
	var view runs.View
	err := d.do(func(ctx context.Context) (err error) {
		view, err = runs.FromContext(ctx).CatchUp(ctx)
		return err
	})
	if err != nil {
		d.w.Fatalf("%s: catch up: %v", d.job.ID, err)
	}
	return view
}

// end has the handler return err, and gives the verdict.
func (d *delivery) end(err error) runs.Verdict {
	d.w.Helper()
	d.must()
	select {
	case d.steps <- &step{leave: true, err: err}:
	case <-d.over:
	}
	return d.ended()
}

// ended waits until the delivery is over, and gives the verdict.
func (d *delivery) ended() runs.Verdict {
	d.w.Helper()
	d.w.await(d.over, "delivery of %s to end", d.job.ID)
	if !d.returned {
		d.w.Fatalf("%s: Deliver did not return: %v", d.job.ID, d.recovered)
	}
	return d.verdict
}

// asking is a handler's step that asks for an effect.
func (w *world) asking(e runs.Effect) func(ctx context.Context) error {
	return func(ctx context.Context) error { return w.once(ctx, e) }
}

// once asks for an effect with this ctx; the provider is called if the library says so.
func (w *world) once(ctx context.Context, e runs.Effect) error {
	return runs.FromContext(ctx).Once(ctx, e, func(ctx context.Context, call *runs.Call) error {
		return w.prov.do(ctx, call, e)
	})
}

// exit leaves the handler's goroutine, as t.FailNow in a handler would.
func exit(context.Context) error {
	runtime.Goexit()
	return nil
}

// reply is the effect "answer these messages with one reply", keyed by the last of them.
func reply(text string, messages ...string) runs.Effect {
	return runs.Effect{Intent: "reply", Key: runs.ID(messages[len(messages)-1]), Answers: messages, Summary: text}
}

// runRow is how the ledger names the run of a job.
func runRow(jobID string) string { return fence.RunRow(runs.RunKey{Queue: "support", ID: jobID}) }

// worked is how a queue's job went: what its deliveries came to, and how often it was entered.
type worked struct {
	verdicts []runs.Verdict
	entered  int
}

func (h worked) last() runs.Verdict { return h.verdicts[len(h.verdicts)-1] }

// enough is how many deliveries of one job are too many: it is refused and retried for ever.
const enough = 60

// work does what a queue does with a job: deliver it, come back when told to, try again after
// an error, until it is done or stopped.
func (w *world) work(k *worker, j runs.Job, handler func(ctx context.Context) error) worked {
	w.Helper()
	var h worked
	for len(h.verdicts) < enough {
		v := k.Deliver(w.Context(), j, runs.Delivery{}, func(ctx context.Context) error {
			h.entered++
			return handler(ctx)
		})
		h.verdicts = append(h.verdicts, v)
		pause := v.After
		switch v.Action {
		case runs.ActionComeBack:
		case runs.ActionRetry, runs.ActionReturn:
			pause = 15 * time.Second
		default:
			return h
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.quit:
			timer.Stop()
			return h
		}
	}
	w.Errorf("%s: still not done after %d deliveries; the last one: %+v", j.ID, enough, h.last())
	return h
}

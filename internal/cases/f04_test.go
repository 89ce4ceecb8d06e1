package cases

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// A customer sends two short messages within the time that the model needs for one. Each is a
// job of its own, both runs read the same history, and each posts an answer.
//
// https://github.com/chatwoot/chatwoot/issues/14545
// https://github.com/openclaw/openclaw/issues/967

// The model takes 13 s; the second message comes at t5. The first run's answer is refused: a
// newer run has begun that knows more. The newer one answers both.
func burstOfTwo(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	j1, j2 := job("J1", 1, "m1"), job("J2", 2, "m2")

	d1 := w.deliver(w1, j1).must()
	if got := d1.catchUp().OpenIDs(); !slices.Equal(got, []string{"m1"}) {
		w.Errorf("J1 reads %v", got)
	}
	w.at(5 * time.Second)
	d2 := w.deliver(w2, j2).must()
	both := d2.catchUp().OpenIDs()
	if !slices.Equal(both, []string{"m1", "m2"}) {
		w.Errorf("J2 reads %v", both)
	}

	w.at(13 * time.Second)
	err := d1.once(reply("Hi! How can I help?", "m1"))
	w.refused(err, runs.ErrSuperseded)
	// For now: should J2 die, J1 is needed again.
	w.verdict(d1.end(err), runs.ActionComeBack, fence.ReasonSuperseded)
	w.at(15 * time.Second)
	w.notEntered(w.deliver(w1, j1), runs.ActionComeBack, fence.ReasonSuperseded)

	// That J1 came back and named m1 again does not make it the newer message.
	if again := d2.catchUp().OpenIDs(); !slices.Equal(again, both) {
		w.Errorf("the open messages, oldest first: %v, want %v", again, both)
	}

	w.at(18 * time.Second)
	w.ok(d2.once(reply("Hi! About your order: …", both...)))
	w.verdict(d2.end(nil), runs.ActionDone, "")

	w.at(20 * time.Second)
	w.notEntered(w.deliver(w1, j1), runs.ActionDrop, fence.ReasonSuperseded)
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF04BurstOfTwoIsAnsweredOnce(t *testing.T) { replay(t, burstOfTwo) }

// J2 dies before it answers. J1, which was refused for its sake, comes back and answers both.
func newerRunDies(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	j1 := job("J1", 1, "m1")
	d1 := w.deliver(w1, j1).must()
	w.at(5 * time.Second)
	d2 := w.deliver(w2, job("J2", 2, "m2")).must()
	w.at(13 * time.Second)
	err := d1.once(reply("Hi!", "m1"))
	w.verdict(d1.end(w.refused(err, runs.ErrSuperseded)), runs.ActionComeBack, fence.ReasonSuperseded)
	w2.proc.kill()
	h := w.work(w1, j1, w.answerAll(13*time.Second))
	w.verdict(h.last(), runs.ActionDone, "")
	if h.entered != 1 {
		w.Errorf("J1's model was called %d more times, want once", h.entered)
	}
	d2.end(nil) // a dead process can say what it likes
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF04OlderRunTakesOverFromADeadNewerOne(t *testing.T) { replay(t, newerRunDies) }

// answerAll is the handler of a support bot: look, think, answer everything that is open, and do
// it again if something happened meanwhile. Its model does not listen to the ctx.
func (w *world) answerAll(think time.Duration) func(ctx context.Context) error {
	return w.answerWhen(func() { time.Sleep(think) })
}

func (w *world) answerWhen(thought func()) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
			open := view.OpenIDs()
			if len(open) == 0 {
				return nil
			}
			thought()
			return w.once(ctx, reply(fmt.Sprintf("About your %d messages: …", len(open)), open...))
		})
	}
}

// stream sends messages at the given pace, each as a job of its own, in turn to three workers,
// and returns how each job went once all are done.
func (w *world) stream(messages int, pace, think time.Duration) []worked {
	workers := []*worker{w.worker("W1"), w.worker("W2"), w.worker("W3")}
	went := make([]worked, messages)
	var all sync.WaitGroup
	for i := range messages {
		w.at(time.Duration(i) * pace)
		all.Add(1)
		w.spawn(func() {
			defer all.Done()
			id := fmt.Sprint(i + 1)
			went[i] = w.work(workers[i%3], job("J"+id, int64(i+1), "m"+id), w.answerAll(think))
		})
	}
	all.Wait()
	return went
}

func allAnswered(messages int) map[string]string {
	want := map[string]string{}
	for i := range messages {
		want[fmt.Sprint("m", i+1)] = answered
	}
	return want
}

func burstOfThree(w *world) {
	went := w.stream(3, 3*time.Second, 13*time.Second)
	w.verdict(went[0].last(), runs.ActionDrop, fence.ReasonSuperseded)
	w.verdict(went[1].last(), runs.ActionDrop, fence.ReasonSuperseded)
	w.verdict(went[2].last(), runs.ActionDone, "")
	if s := w.calls("reply", 1)[0]; s.at != 19*time.Second {
		w.Errorf("answered at %v, want t19: by the last run, at once", s.at)
	}
	w.messages(allAnswered(3))
}

func TestF04BurstOfThreeIsAnsweredByTheLast(t *testing.T) { replay(t, burstOfThree) }

// Ten messages, one per second, and a model that takes four: every run but the last is overtaken
// before it can answer. When the stream stops the last run must answer. Nobody livelocks: a run
// that waits is not entered, so no further model call is paid for.
func streamOfTen(w *world) {
	went := w.stream(10, time.Second, 4*time.Second)
	for i, h := range went {
		want := runs.Verdict{Action: runs.ActionDrop, Reason: fence.ReasonSuperseded}
		if i == 9 {
			want = runs.Verdict{Action: runs.ActionDone}
		}
		w.verdict(h.last(), want.Action, want.Reason)
		if h.entered != 1 || len(h.verdicts) > 10 {
			w.Errorf("J%d: entered %d times in %d deliveries", i+1, h.entered, len(h.verdicts))
		}
	}
	if s := w.calls("reply", 1)[0]; s.at != 13*time.Second {
		w.Errorf("answered at %v, want t13: the last message was sent at t9", s.at)
	}
	w.messages(allAnswered(10))
}

func TestF04StreamOfTenIsAnsweredWhenItStops(t *testing.T) { replay(t, streamOfTen) }

// Two messages in the same millisecond: whoever begins first, whoever has thought first, and
// whether or not the chat could tell which message is newer, none is answered twice or not at
// all.
func sameMillisecond(beginFirst, answerFirst int, tie bool) story {
	return func(w *world) {
		workers := []*worker{w.worker("W1"), w.worker("W2")}
		jobs := []runs.Job{job("J1", 1, "m1"), job("J2", 2, "m2")}
		if tie {
			jobs[1].Order = jobs[0].Order
		}
		var thought [2]chan struct{}
		var all sync.WaitGroup
		begin := func(i int) {
			thought[i] = make(chan struct{})
			all.Add(1)
			w.spawn(func() {
				defer all.Done()
				h := w.work(workers[i], jobs[i], w.answerWhen(func() {
					select {
					case <-thought[i]:
					case <-w.quit:
					}
				}))
				if end := h.last().Action; end != runs.ActionDone && end != runs.ActionDrop {
					w.Errorf("%s: %+v", jobs[i].ID, h.last())
				}
			})
			synctest.Wait()
		}
		begin(beginFirst)
		begin(1 - beginFirst)
		close(thought[answerFirst])
		synctest.Wait()
		close(thought[1-answerFirst])
		all.Wait()

		if n := len(w.prov.saw("reply")); n > 2 {
			w.Errorf("%d replies to two messages", n)
		}
		w.messages(map[string]string{"m1": answered, "m2": answered})
	}
}

func TestF04SameMillisecondNeverAnswersTwice(t *testing.T) {
	for _, tie := range []bool{false, true} {
		for begin := range 2 {
			for first := range 2 {
				t.Run(fmt.Sprintf("tie=%v/J%d begins/J%d answers", tie, begin+1, first+1), func(t *testing.T) {
					replay(t, sameMillisecond(begin, first, tie))
				})
			}
		}
	}
}

// The queue is not first in, first out: J2 starts, and J1 five seconds later. An old job that
// begins last is still the old job: its handler is not entered while the newer one is at work.
// Had J2 looked before m1 was known, J1 answers m1 afterwards.
func oldJobBeginsLast(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	j1 := job("J1", 1, "m1")
	d2 := w.deliver(w2, job("J2", 2, "m2")).must()
	seen := d2.catchUp().OpenIDs()
	w.at(5 * time.Second)
	w.notEntered(w.deliver(w1, j1), runs.ActionComeBack, fence.ReasonSuperseded)
	w.at(13 * time.Second)
	w.ok(d2.once(reply("Your order has shipped.", seen...)))
	w.verdict(d2.end(nil), runs.ActionDone, "")
	w.messages(map[string]string{"m1": open, "m2": answered})

	h := w.work(w1, j1, w.answerAll(13*time.Second))
	w.verdict(h.last(), runs.ActionDone, "")
	for i, want := range []string{"m2", "m1"} {
		if got := w.calls("reply", 2)[i].answers; !slices.Equal(got, []string{want}) {
			w.Errorf("reply %d answers %v, want %s", i+1, got, want)
		}
	}
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF04OldJobThatBeginsLastAnswersWhatIsLeft(t *testing.T) { replay(t, oldJobBeginsLast) }

// The same, but J2 looks after J1 has been to the door: m1 is known, and J2 answers both.
func oldJobKnocksFirst(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	j1 := job("J1", 1, "m1")
	d2 := w.deliver(w2, job("J2", 2, "m2")).must()
	w.at(5 * time.Second)
	w.notEntered(w.deliver(w1, j1), runs.ActionComeBack, fence.ReasonSuperseded)
	w.at(6 * time.Second)
	both := d2.catchUp().OpenIDs()
	w.at(18 * time.Second)
	w.ok(d2.once(reply("About both: …", both...)))
	w.verdict(d2.end(nil), runs.ActionDone, "")
	h := w.work(w1, j1, w.answerAll(13*time.Second))
	w.verdict(h.last(), runs.ActionDrop, fence.ReasonSuperseded)
	if h.entered != 0 {
		w.Errorf("J1 paid for %d model calls", h.entered)
	}
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF04OldJobThatBeginsLastIsDroppedWhenItsMessageIsAnswered(t *testing.T) {
	replay(t, oldJobKnocksFirst)
}

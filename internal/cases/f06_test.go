package cases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// One customer message becomes two jobs with different ids: the webhook was redelivered, or
// delivered under a new event id, in the same second or after a restart. Keying anything by the
// job does not help.
//
// https://github.com/slackapi/node-slack-sdk/issues/2141 (one message, up to 11 events with ids of their own)
// https://github.com/rmyndharis/OpenWA/issues/464 (two deliveries in the same second beat a dedupe store)

var theAnswer = reply("We are open until six.", "m1")

// The second job comes 30 ms after the first, on another worker, while the first one's reply is
// at the provider. It is told so, comes back, gets the result replayed, and is done.
func oneMessageTwoJobs(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	// The message is the same, so its number in the chat is too: the jobs are peers.
	a, b := job("a", 1, "m1"), job("b", 1, "m1")
	atProvider := w.prov.hang("reply", succeed)
	da := w.deliver(w1, a).must()
	sending := da.start(w.asking(theAnswer))
	atProvider.wait()

	w.at(30 * time.Millisecond)
	db := w.deliver(w2, b).must()
	err := db.once(theAnswer)
	w.refused(err, runs.ErrInFlight)
	w.verdict(db.end(err), runs.ActionComeBack, fence.ReasonInFlight)
	w.notEntered(w.deliver(w2, b), runs.ActionComeBack, fence.ReasonInFlight)

	w.at(time.Second)
	atProvider.open()
	w.ok(da.wait(sending))
	w.verdict(da.end(nil), runs.ActionDone, "")

	w.at(5 * time.Second)
	db = w.deliver(w2, b).must()
	w.ok(db.once(theAnswer))
	w.verdict(db.end(nil), runs.ActionDone, "")
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF06OneMessageAsTwoJobsIsAnsweredOnce(t *testing.T) { replay(t, oneMessageTwoJobs) }

// A handler that swallows the refusal and returns nil does not get its job acknowledged while
// the answer is still on its way: should that fail, nobody would be left to answer.
func secondJobSwallowsTheRefusal(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	a, b := job("a", 1, "m1"), job("b", 1, "m1")
	atProvider := w.prov.hang("reply", refuse)
	da := w.deliver(w1, a).must()
	sending := da.start(w.asking(theAnswer))
	atProvider.wait()
	db := w.deliver(w2, b).must()
	w.refused(db.once(theAnswer), runs.ErrInFlight)
	w.verdict(db.end(nil), runs.ActionComeBack, fence.ReasonInFlight)

	atProvider.open()
	failed := w.outcome(da.wait(sending), runs.OutcomeFailed)
	w.verdict(da.end(failed), runs.ActionReturn, "")
	h := w.work(w2, b, w.asking(theAnswer))
	w.verdict(h.last(), runs.ActionDone, "")
	if calls := w.calls("reply", 2); calls[0].idem != calls[1].idem || calls[1].number != 2 {
		w.Errorf("two calls of one effect should carry one idempotency key: %+v", calls)
	}
	w.messages(map[string]string{"m1": answered})
}

func TestF06SecondJobAnswersIfTheFirstCouldNot(t *testing.T) { replay(t, secondJobSwallowsTheRefusal) }

// The second job comes five minutes later, after both processes were restarted: nothing may
// depend on a process's memory.
func secondJobAfterRestart(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	da := w.deliver(w1, job("a", 1, "m1")).must()
	w.ok(da.once(theAnswer))
	w.verdict(da.end(nil), runs.ActionDone, "")

	w.restart(w1)
	w2 = w.restart(w2)
	w.at(300 * time.Second)
	db := w.deliver(w2, job("b", 1, "m1")).must()
	w.ok(db.once(theAnswer))
	w.verdict(db.end(nil), runs.ActionDone, "")
	w.calls("reply", 1)

	// A handler that looks first does not even ask.
	h := w.work(w2, job("c", 1, "m1"), w.answerAll(13*time.Second))
	w.verdict(h.last(), runs.ActionDone, "")
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF06SecondJobAfterRestartIsAReplay(t *testing.T) { replay(t, secondJobAfterRestart) }

// Eleven jobs for one message, over five minutes or all at once; they are peers, or numbered by
// the queue so that each supersedes the one before; the handler looks first, or blindly answers
// its message.
func elevenJobs(pace time.Duration, numbered, looks bool) story {
	return func(w *world) {
		workers := []*worker{w.worker("W1"), w.worker("W2")}
		think := 13 * time.Second
		handler := w.answerAll(think)
		if !looks {
			handler = func(ctx context.Context) error {
				time.Sleep(think)
				return w.once(ctx, theAnswer)
			}
		}
		var all sync.WaitGroup
		for i := range 11 {
			w.at(time.Duration(i) * pace)
			number := int64(1)
			if numbered {
				number = int64(i + 1)
			}
			all.Add(1)
			w.spawn(func() {
				defer all.Done()
				j := job(fmt.Sprint("event-", i), number, "m1")
				h := w.work(workers[i%2], j, handler)
				if end := h.last().Action; end != runs.ActionDone && end != runs.ActionDrop {
					w.Errorf("%s: %+v", j.ID, h.last())
				}
				if len(h.verdicts) > 8 {
					w.Errorf("%s took %d deliveries: refused and retried without end", j.ID, len(h.verdicts))
				}
			})
		}
		all.Wait()
		w.calls("reply", 1)
		w.messages(map[string]string{"m1": answered})
	}
}

func TestF06ElevenJobsForOneMessageAnswerOnce(t *testing.T) {
	for _, pace := range []time.Duration{0, 30 * time.Second} {
		for _, numbered := range []bool{false, true} {
			for _, looks := range []bool{false, true} {
				t.Run(fmt.Sprintf("pace=%v/numbered=%v/looks=%v", pace, numbered, looks), func(t *testing.T) {
					replay(t, elevenJobs(pace, numbered, looks))
				})
			}
		}
	}
}

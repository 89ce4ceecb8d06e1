package cases

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// A long answer goes out in parts. A later part fails, and the retry starts from the first: the
// customer reads the beginning twice.
//
// https://github.com/fazer-ai/agents/issues/429
// https://github.com/NousResearch/hermes-agent/issues/68713

// part is one part of the answer to m1. Only the last one names the message: before that, m1 is
// not answered.
func part(n, of int, text string) runs.Effect {
	e := runs.Effect{Intent: "reply", Key: runs.Key("message", "m1", "part", n), Summary: text}
	if n == of {
		e.Answers = []string{"m1"}
	}
	return e
}

// texts are what the customer has, in order.
func (w *world) texts() []string {
	var has []string
	for _, s := range w.prov.saw("reply") {
		if s.applied {
			has = append(has, s.text)
		}
	}
	return has
}

func (w *world) customerHas(want ...string) {
	w.Helper()
	if got := w.texts(); !slices.Equal(got, want) {
		w.Fatalf("the customer has %q, want %q", got, want)
	}
}

// brokenOff has the first part go out and the second come to what is given. It returns the error.
func brokenOff(w *world, k *worker, theJob runs.Job, second act) (*delivery, error) {
	w.Helper()
	d := w.deliver(k, theJob).must()
	w.prov.next("reply", succeed, second)
	w.ok(d.once(part(1, 3, "one")))
	// A run's own earlier part is no change of the conversation for itself.
	err := d.once(part(2, 3, "two"))
	return d, err
}

// The second part certainly failed. The next delivery goes on from there, however many parts the
// regenerated answer has.
func partFails(parts int) story {
	return func(w *world) {
		w1, w2 := w.worker("W1"), w.worker("W2")
		theJob := job("J", 1, "m1")
		d1, err := brokenOff(w, w1, theJob, refuse)
		w.verdict(d1.end(w.outcome(err, runs.OutcomeFailed)), runs.ActionReturn, "")
		w.customerHas("one")
		w.messages(map[string]string{"m1": open})

		d2 := w.deliver(w2, theJob).must()
		want := []string{"one"}
		for n := 1; n <= parts; n++ {
			text := fmt.Sprint("regenerated ", n)
			w.ok(d2.once(part(n, parts, text)))
			if n > 1 {
				want = append(want, text)
			}
			w.customerHas(want...)
		}
		w.verdict(d2.end(nil), runs.ActionDone, "")
		w.calls("reply", 1+parts)
		w.messages(map[string]string{"m1": answered})
	}
}

func TestF11RetryGoesOnFromThePartThatFailed(t *testing.T) {
	for _, parts := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(parts, " parts"), func(t *testing.T) { replay(t, partFails(parts)) })
	}
}

// A trap: the number of parts is in the key. Regenerated with another number, every part is a new
// effect; the retry is caught because it has not looked at what went out.
func partCountInTheKey(w *world) {
	counted := func(n, of int) runs.Effect {
		return runs.Effect{Intent: "reply", Key: runs.Key("message", "m1", "part", n, "of", of), Summary: fmt.Sprint(n, "/", of)}
	}
	w1 := w.worker("W1")
	theJob := job("J", 1, "m1")
	d1 := w.deliver(w1, theJob).must()
	w.prov.next("reply", succeed, refuse)
	w.ok(d1.once(counted(1, 3)))
	w.verdict(d1.end(w.outcome(d1.once(counted(2, 3)), runs.OutcomeFailed)), runs.ActionReturn, "")

	d2 := w.deliver(w1, theJob).must()
	err := d2.once(counted(1, 4))
	w.refused(err, runs.ErrConversationChanged)
	w.verdict(d2.end(err), runs.ActionRetry, fence.ReasonConversationChanged)
	w.customerHas("1/3")
	w.messages(map[string]string{"m1": open})
}

func TestF11PartCountInTheKeyIsCaughtInTheRetry(t *testing.T) { replay(t, partCountInTheKey) }

// Nobody knows whether the second part went out. It is not sent again, and the third is not sent
// ahead of it, unless the handler says that it may.
func partUnknown(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")
	d1, err := brokenOff(w, w1, theJob, timeOut)
	w.outcome(err, runs.OutcomeAmbiguous)
	w.refused(d1.once(part(3, 3, "three")), runs.ErrUnresolved)
	w.verdict(d1.end(err), runs.ActionComeBack, fence.ReasonUnresolved)
	w.state(part(2, 3, ""), fence.Ambiguous)

	w.at(time.Minute)
	d2 := w.deliver(w2, theJob).must()
	w.ok(d2.once(part(1, 3, "one, regenerated")))
	unknownPart := d2.once(part(2, 3, "two, regenerated"))
	w.refused(unknownPart, runs.ErrAmbiguous)
	w.refused(d2.once(part(3, 3, "three")), runs.ErrUnresolved)
	w.verdict(d2.end(unknownPart), runs.ActionComeBack, fence.ReasonAmbiguous)
	w.customerHas("one")
	w.calls("reply", 2)

	// When no late evidence can arrive any more, the job stops visibly, for a person.
	w.at(5 * time.Minute)
	d3 := w.deliver(w2, theJob).must()
	err = d3.once(part(2, 3, "two"))
	w.verdict(d3.end(w.refused(err, runs.ErrAmbiguous)), runs.ActionPark, fence.ReasonAmbiguous)
	w.visible(w.state(part(2, 3, ""), fence.Ambiguous).Effect.ID)
	w.messages(map[string]string{"m1": open})

	// The person has looked: it did not go out. The job goes on from there.
	w.resolve(part(2, 3, ""), false)
	d4 := w.deliver(w1, theJob).must()
	for n, text := range []string{"one", "two", "three"} {
		w.ok(d4.once(part(n+1, 3, text)))
	}
	w.verdict(d4.end(nil), runs.ActionDone, "")
	w.customerHas("one", "two", "three")
	w.messages(map[string]string{"m1": answered})
}

func TestF11UnknownPartIsNotRepeatedAndHoldsUpTheNext(t *testing.T) { replay(t, partUnknown) }

// The handler prefers a gap to a pause: it says that part three may go out although part two is
// unknown. The run still does not end as done, because nobody knows about part two.
func partUnknownGoesOn(w *world) {
	w1 := w.worker("W1")
	d1, err := brokenOff(w, w1, job("J", 1, "m1"), actThenTimeOut)
	w.outcome(err, runs.OutcomeAmbiguous)
	anyway := part(3, 3, "three")
	anyway.AfterUnresolved = true
	w.ok(d1.once(anyway))
	w.customerHas("one", "two", "three")
	w.verdict(d1.end(nil), runs.ActionComeBack, fence.ReasonUnresolved)
	w.visible(w.state(part(2, 3, ""), fence.Ambiguous).Effect.ID)

	w.at(10 * time.Minute)
	w.resolve(part(2, 3, ""), true)
	d2 := w.deliver(w1, job("J", 1, "m1")).must()
	for n := 1; n <= 3; n++ {
		w.ok(d2.once(part(n, 3, "again")))
	}
	w.verdict(d2.end(nil), runs.ActionDone, "")
	w.customerHas("one", "two", "three")
	w.messages(map[string]string{"m1": answered})
}

func TestF11HandlerMaySendTheNextPartAfterAnUnknown(t *testing.T) { replay(t, partUnknownGoesOn) }

// A new message arrives when part one is out. Part two is refused; the newer run reads part one
// and answers both messages in its light.
func messageBetweenParts(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	j1 := job("J1", 1, "m1")
	d1 := w.deliver(w1, j1).must()
	sending := w.prov.hang("reply", succeed)
	one := d1.start(w.asking(part(1, 3, "one")))
	sending.wait()

	w.at(time.Second)
	d2 := w.deliver(w2, job("J2", 2, "m2")).must()
	if both := d2.catchUp().OpenIDs(); !slices.Equal(both, []string{"m1", "m2"}) {
		w.Errorf("open: %v; a part answers nothing yet", both)
	}
	sending.open()
	w.ok(d1.wait(one))

	w.at(2 * time.Second)
	err := d1.once(part(2, 3, "two"))
	w.refused(err, runs.ErrSuperseded)
	w.verdict(d1.end(err), runs.ActionComeBack, fence.ReasonSuperseded)

	// J2 does not write over it unseen, and is told what went out.
	told := w.refused(d2.once(reply("About both: …", "m1", "m2")), runs.ErrConversationChanged)
	if len(told.Conflicts) != 1 || told.Conflicts[0].Summary != "one" || told.Conflicts[0].Run.ID != "J1" {
		w.Errorf("J2 should be told that part one went out: %+v", told.Conflicts)
	}
	view := d2.catchUp()
	if len(view.Happened) != 1 || view.Happened[0].Summary != "one" {
		w.Errorf("J2 should read that part one went out: %+v", view.Happened)
	}
	w.ok(d2.once(reply("About both: …", view.OpenIDs()...)))
	w.verdict(d2.end(nil), runs.ActionDone, "")

	w.at(10 * time.Second)
	w.notEntered(w.deliver(w1, j1), runs.ActionDrop, fence.ReasonSuperseded)
	w.customerHas("one", "About both: …")
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF11MessageBetweenPartsStopsTheRest(t *testing.T) { replay(t, messageBetweenParts) }

// The same, but the newer run begins after part one is out: its handler reads the conversation
// after it was entered, so it has seen it.
func messageAfterAPart(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	d1 := w.deliver(w1, job("J1", 1, "m1")).must()
	w.ok(d1.once(part(1, 3, "one")))
	w.at(time.Second)
	d2 := w.deliver(w2, job("J2", 2, "m2")).must()
	w.verdict(d1.end(w.refused(d1.once(part(2, 3, "two")), runs.ErrSuperseded)), runs.ActionComeBack, fence.ReasonSuperseded)
	w.ok(d2.once(reply("About both: …", d2.catchUp().OpenIDs()...)))
	w.verdict(d2.end(nil), runs.ActionDone, "")
	w.customerHas("one", "About both: …")
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF11NewerRunThatBeginsAfterAPartHasSeenIt(t *testing.T) { replay(t, messageAfterAPart) }

package cases

import (
	"slices"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// A newer message is to interrupt a run whose reply is already on its way out. The newer run
// does not know of it and produces nearly the same text again.
//
// https://github.com/openclaw/openclaw/issues/19426
// https://github.com/openclaw/openclaw/issues/50145

// interrupted is the situation at t11: J1's reply to m1 is at the provider since t10, and J2,
// which brings m2, has begun and read the conversation.
type interrupted struct {
	w1, w2  *worker
	j1      runs.Job
	d1, d2  *delivery
	sending *step
	flying  *gate
}

var firstReply = reply("Your refund is being processed.", "m1")

func interrupt(w *world, first runs.Effect, then act) *interrupted {
	s := &interrupted{w1: w.worker("W1"), w2: w.worker("W2"), j1: job("J1", 1, "m1")}
	s.d1 = w.deliver(s.w1, s.j1).must()
	w.at(10 * time.Second)
	s.flying = w.prov.hang("reply", then)
	s.sending = s.d1.start(w.asking(first))
	s.flying.wait()
	w.at(11 * time.Second)
	s.d2 = w.deliver(s.w2, job("J2", 2, "m2")).must()
	return s
}

// takenBy insists that a refusal names J1's reply and how it stands; while it is not settled also
// its key and its text, and whose it is.
func (w *world) takenBy(e *runs.RefusedError, state runs.State) {
	w.Helper()
	by := w.oneAnswer(e)
	shown := by.Run.ID == "J1" && by.Key == `"m1"` && by.Summary == firstReply.Summary || state == fence.Committed
	if by.State != state || !shown || by.ID != w.state(firstReply, state).Effect.ID || !slices.Equal(by.Inbound, []string{"m1"}) {
		w.Errorf("the refusal should say that m1 is answered by J1's reply (%s): %+v", state, by)
	}
	if !slices.Equal(e.Open, []string{"m2"}) {
		w.Errorf("still open: %v, want m2", e.Open)
	}
}

// J1's call comes back with success. J2 may answer m2, once it has looked again; J1 may write no
// more.
func interruptTooLate(w *world) {
	s := interrupt(w, firstReply, succeed)
	view := s.d2.catchUp()
	if !slices.Equal(view.OpenIDs(), []string{"m2"}) {
		w.Errorf("J2 reads the open messages %v, want m2: m1 is taken", view.OpenIDs())
	}
	if len(view.Taken) != 1 || view.Taken[0].Summary != firstReply.Summary || view.Taken[0].State != fence.Pending {
		w.Errorf("J2 should read what is on its way: %+v", view.Taken)
	}
	w.takenBy(w.refused(s.d2.once(reply("Your refund is on its way.", "m1", "m2")), runs.ErrAlreadyAnswered), fence.Pending)
	w.calls("reply", 1)

	w.at(12 * time.Second)
	s.flying.open()
	w.ok(s.d1.wait(s.sending))

	w.at(13 * time.Second)
	// It has not looked since: refused, whatever it wants to say.
	blind := w.refused(s.d2.once(reply("Your refund is on its way.", "m1", "m2")), runs.ErrConversationChanged)
	if len(blind.Conflicts) != 1 || blind.Conflicts[0].Summary != firstReply.Summary {
		w.Errorf("the refusal should say what happened: %+v", blind.Conflicts)
	}
	tag := runs.Effect{Intent: "tag", Key: runs.Key("tag", "refund")}
	w.refused(s.d1.once(tag), runs.ErrSuperseded)
	w.calls("tag", 0)

	w.at(14 * time.Second)
	view = s.d2.catchUp()
	if len(view.Happened) != 1 || view.Happened[0].Summary != firstReply.Summary {
		w.Errorf("J2 looks, and should read J1's reply: %+v", view.Happened)
	}
	w.takenBy(w.refused(s.d2.once(reply("Your refund is on its way.", "m1", "m2")), runs.ErrAlreadyAnswered), fence.Committed)
	w.ok(s.d2.once(reply("It will take three days.", "m2")))

	// J1 has nothing left to do: its message is answered.
	w.verdict(s.d1.end(nil), runs.ActionDone, "")
	w.verdict(s.d2.end(nil), runs.ActionDone, "")
	w.calls("reply", 2)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF05ReplyOnItsWayIsNotSentAgainByTheNewerRun(t *testing.T) { replay(t, interruptTooLate) }

// J1's reply names no messages, so nobody can tell what it answers besides its key. J2's is
// refused as unresolved until it has come back, and J2 is not entered meanwhile.
func interruptUnnamed(w *world) {
	unnamed := runs.Effect{Intent: "reply", Key: runs.ID("m1"), Summary: firstReply.Summary}
	s := interrupt(w, unnamed, succeed)
	err := s.d2.once(reply("Your refund is on its way.", "m1", "m2"))
	refused := w.refused(err, runs.ErrUnresolved)
	if len(refused.Conflicts) != 1 || refused.Conflicts[0].State != fence.Pending || refused.Conflicts[0].Key != `"m1"` || refused.Conflicts[0].Summary != firstReply.Summary {
		w.Errorf("the refusal should say what J1 is doing: %+v", refused.Conflicts)
	}
	// Looking does not help: it proves nothing about a send that is on its way.
	s.d2.catchUp()
	w.refused(s.d2.once(reply("Your refund is on its way.", "m1", "m2")), runs.ErrUnresolved)
	w.verdict(s.d2.end(err), runs.ActionComeBack, fence.ReasonUnresolved)
	j2 := s.d2.job
	w.notEntered(w.deliver(s.w2, j2), runs.ActionComeBack, fence.ReasonInFlight)

	w.at(12 * time.Second)
	s.flying.open()
	w.ok(s.d1.wait(s.sending))
	w.verdict(s.d1.end(nil), runs.ActionDone, "")

	w.at(14 * time.Second)
	again := w.deliver(s.w2, j2).must()
	if got := again.catchUp().OpenIDs(); !slices.Equal(got, []string{"m2"}) {
		w.Errorf("open: %v, want m2", got)
	}
	w.ok(again.once(reply("It will take three days.", "m2")))
	w.verdict(again.end(nil), runs.ActionDone, "")
	w.calls("reply", 2)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF05ReplyThatNamesNothingHoldsUpTheNewerRun(t *testing.T) { replay(t, interruptUnnamed) }

// J1's call fails, and certainly did not happen: J2 may answer both.
func interruptedCallFails(w *world) {
	s := interrupt(w, firstReply, refuse)
	s.d2.catchUp()
	w.takenBy(w.refused(s.d2.once(reply("On its way.", "m1", "m2")), runs.ErrAlreadyAnswered), fence.Pending)

	w.at(12 * time.Second)
	s.flying.open()
	failed := w.outcome(s.d1.wait(s.sending), runs.OutcomeFailed)

	w.at(14 * time.Second)
	both := s.d2.catchUp().OpenIDs()
	if !slices.Equal(both, []string{"m1", "m2"}) {
		w.Errorf("open: %v, want both", both)
	}
	w.ok(s.d2.once(reply("Your refund is on its way; it takes three days.", both...)))
	w.verdict(s.d2.end(nil), runs.ActionDone, "")

	// The queue tries J1 again, and there is nothing left to do.
	w.verdict(s.d1.end(failed), runs.ActionReturn, "")
	w.notEntered(w.deliver(s.w1, s.j1), runs.ActionDrop, fence.ReasonSuperseded)
	w.calls("reply", 2)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF05NewerRunAnswersBothWhenTheOlderCertainlyDidNot(t *testing.T) {
	replay(t, interruptedCallFails)
}

// Nobody knows what became of J1's call. J2 is told so and answers what is its own; m1 is not
// silently answered again. It stays visibly unknown until a person says what happened.
func interruptedCallUnknown(happened bool) story {
	return func(w *world) {
		then := act(timeOut)
		if happened {
			then = actThenTimeOut
		}
		s := interrupt(w, firstReply, then)
		s.d2.catchUp()
		w.at(12 * time.Second)
		s.flying.open()
		nobodyKnows := w.outcome(s.d1.wait(s.sending), runs.OutcomeAmbiguous)

		w.at(14 * time.Second)
		w.takenBy(w.refusedAfter(s.d2, reply("On its way.", "m1", "m2"), runs.ErrAlreadyAnswered), fence.Ambiguous)
		view := s.d2.catchUp()
		if len(view.Taken) != 1 || view.Taken[0].State != fence.Ambiguous || !slices.Equal(view.Taken[0].Answers, []string{"m1"}) {
			w.Errorf("J2 should read that m1 is held by an unknown: %+v", view.Taken)
		}
		// Naming no messages does not get around it, nor does any policy.
		sly := runs.Effect{Intent: "reply", Key: runs.Key("about", "refund"), Policy: runs.NoChange}
		w.refused(s.d2.once(sly), runs.ErrUnresolved)
		w.ok(s.d2.once(reply("It will take three days.", "m2")))
		w.verdict(s.d2.end(nil), runs.ActionDone, "")

		// J1 waits until late evidence can no longer arrive, then stops visibly. It is not
		// entered meanwhile.
		w.verdict(s.d1.end(nobodyKnows), runs.ActionComeBack, fence.ReasonUnresolved)
		w.at(time.Minute)
		w.notEntered(w.deliver(s.w1, s.j1), runs.ActionComeBack, fence.ReasonUnresolved)
		w.at(5 * time.Minute)
		w.notEntered(w.deliver(s.w1, s.j1), runs.ActionPark, fence.ReasonUnresolved)
		w.calls("reply", 2)
		w.messages(map[string]string{"m1": unknown, "m2": answered})

		w.at(time.Hour)
		w.resolve(firstReply, happened)
		h := w.work(s.w1, s.j1, w.answerAll(13*time.Second))
		// J1 is let in either way: it has an answer to give, or, that being its own, whatever
		// it does after its answer.
		w.verdict(h.last(), runs.ActionDone, "")
		if happened {
			w.calls("reply", 2)
		} else {
			w.calls("reply", 3)
		}
		w.messages(map[string]string{"m1": answered, "m2": answered})
	}
}

// refusedAfter has a delivery look and then ask.
func (w *world) refusedAfter(d *delivery, e runs.Effect, reason error) *runs.RefusedError {
	w.Helper()
	d.catchUp()
	return w.refused(d.once(e), reason)
}

// resolve is a person's word on an unknown outcome.
func (w *world) resolve(e runs.Effect, happened bool) {
	w.Helper()
	rec := w.state(e, fence.Ambiguous)
	_, after, err := w.operator().Resolve(w.Context(), conversation, rec.Effect.ID, runs.Resolution{Happened: happened, By: "ops", Note: "looked into the provider's log"})
	if err != nil {
		w.Fatalf("resolve: %v", err)
	}
	want := fence.Failed
	if happened {
		want = fence.Committed
	}
	if after.State() != want {
		w.Errorf("resolved to %q, want %q", after.State(), want)
	}
}

func TestF05UnknownReplyIsNotSilentlyRepeated(t *testing.T) {
	t.Run("it happened", func(t *testing.T) { replay(t, interruptedCallUnknown(true)) })
	t.Run("it did not", func(t *testing.T) { replay(t, interruptedCallUnknown(false)) })
}

// W1 is killed at t11.5, with its call under way. Its claim stays pending until its deadline,
// then the outcome is unknown: nobody repeats it.
func killedWhileInterrupted(w *world) {
	s := interrupt(w, firstReply, succeed)
	w.at(11500 * time.Millisecond)
	s.w1.proc.kill()
	s.flying.open() // the customer gets it; nobody is left to write that down

	w.at(13 * time.Second)
	w.takenBy(w.refusedAfter(s.d2, reply("On its way.", "m1", "m2"), runs.ErrAlreadyAnswered), fence.Pending)
	w.at(14 * time.Second)
	w.ok(s.d2.once(reply("It will take three days.", "m2")))
	w.verdict(s.d2.end(nil), runs.ActionDone, "")

	// The queue notices that W1 is gone and gives J1 to somebody else, again and again.
	w.at(60 * time.Second)
	w.notEntered(w.deliver(s.w2, s.j1), runs.ActionComeBack, fence.ReasonSuperseded)
	w.state(firstReply, fence.Pending)
	w.at(131 * time.Second)
	w.notEntered(w.deliver(s.w2, s.j1), runs.ActionComeBack, fence.ReasonUnresolved)
	w.state(firstReply, fence.Ambiguous)
	w.at(251 * time.Second)
	w.notEntered(w.deliver(s.w2, s.j1), runs.ActionPark, fence.ReasonUnresolved)
	w.calls("reply", 2)
	w.messages(map[string]string{"m1": unknown, "m2": answered})

	// Once it is known, J1 is let in to do what it does after its answer, which stands.
	w.resolve(firstReply, true)
	w.verdict(w.work(s.w2, s.j1, w.answerAll(13*time.Second)).last(), runs.ActionDone, "")
	w.calls("reply", 2)
	w.messages(map[string]string{"m1": answered, "m2": answered})
}

func TestF05ReplyOfAKilledWorkerIsUnknownAndNotRepeated(t *testing.T) {
	replay(t, killedWhileInterrupted)
}

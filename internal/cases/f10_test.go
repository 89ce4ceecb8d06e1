package cases

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// An agent loses its context, by compaction or regeneration, and does the same thing again in
// other words: another greeting, another note, another number format, a new tool-call id. Keys
// made of such things drift, and the customer gets it twice.
//
// https://github.com/KeeperHub/keeperhub/pull/1877 (the body's hash changed at temperature 0: two transfers)
// https://github.com/openclaw/openclaw/issues/126707 (compaction right after a send, in the same turn)

// toolCall is what the model asks for.
type toolCall struct {
	id, order, note string
	amount          any
}

// refundFor keys the refund by the business object. The tool-call id decides nothing, the note is
// for people, and the amount is compared but is not part of the key.
func refundFor(c toolCall) runs.Effect {
	return runs.Effect{Intent: "refund", Key: runs.Key("order", c.order), Params: map[string]any{"amount": c.amount}, Summary: c.note}
}

var replies = runs.Intent[string]{Name: "reply"}

// say sends a reply and returns the text that the customer has, now or from before.
func (d *delivery) say(key runs.EffectKey, text string, answers ...string) string {
	d.w.Helper()
	var has string
	err := d.do(func(ctx context.Context) (err error) {
		has, err = replies.Once(ctx, key, func(ctx context.Context, call *runs.Call) (string, error) {
			return text, d.w.prov.do(ctx, call, runs.Effect{Intent: "reply", Key: key, Summary: text, Answers: answers})
		}, runs.With{Summary: text, Answers: answers})
		return err
	})
	d.w.ok(err)
	return has
}

func otherWords(w *world) {
	w1, w2 := w.worker("W1"), w.worker("W2")
	theJob := job("J", 1, "m1")

	// As it was said first.
	d1 := w.deliver(w1, theJob).must()
	if has := d1.say(runs.ID("m1"), "Hi, refunded.", "m1"); has != "Hi, refunded." {
		w.Errorf("the customer has %q", has)
	}
	w.ok(d1.once(refundFor(toolCall{"call_1", "A", "damaged", "3.92"})))

	// After compaction, in the same run; and after a restart, in the next delivery.
	again := func(d *delivery) {
		w.Helper()
		if has := d.say(runs.ID("m1"), "Hello! Your refund is on its way.", "m1"); has != "Hi, refunded." {
			w.Errorf("said again in other words, the result is %q, want the first one's", has)
		}
		w.ok(d.once(refundFor(toolCall{"call_77", "A", "item arrived broken", "3.92"})))
		w.calls("reply", 1)
		w.calls("refund", 1)
	}
	again(d1)
	w.verdict(d1.end(errors.New("the worker is restarted")), runs.ActionReturn, "")
	d2 := w.deliver(w2, theJob).must()
	again(d2)

	// The amount in another format is another deal, until somebody says otherwise: refused, and
	// shown with both sides.
	changed := w.refused(d2.once(refundFor(toolCall{"call_78", "A", "", "3.920"})), runs.ErrParamsChanged)
	if changed.StoredParams != `{"amount":"3.92"}` || changed.AskedParams != `{"amount":"3.920"}` {
		w.Errorf("params_changed should show both: %s, %s", changed.StoredParams, changed.AskedParams)
	}
	// So is a note, if somebody puts it there: free text does not belong into Params either. That
	// fails safe: it is refused, not paid twice.
	noted := refundFor(toolCall{"call_79", "A", "", "3.92"})
	noted.Params = map[string]any{"amount": "3.92", "note": "item arrived broken"}
	w.refused(d2.once(noted), runs.ErrParamsChanged)
	w.calls("refund", 1)

	w.verdict(d2.end(nil), runs.ActionDone, "")
	w.messages(map[string]string{"m1": answered})
}

func TestF10OtherWordsAreTheSameEffect(t *testing.T) { replay(t, otherWords) }

// 0.10 and 0.1: as text they differ, as numbers they do not, and in a key every difference makes
// another effect.
func numberFormats(w *world) {
	d := w.deliver(w.worker("W1"), job("J", 1)).must()
	w.ok(d.once(refundFor(toolCall{"", "A", "", "0.10"})))
	w.refused(d.once(refundFor(toolCall{"", "A", "", "0.1"})), runs.ErrParamsChanged)
	w.calls("refund", 1)

	w.ok(d.once(refundFor(toolCall{"", "B", "", 0.10})))
	w.ok(d.once(refundFor(toolCall{"", "B", "", 0.1})))
	w.calls("refund", 2)

	// Amounts do not belong into keys: this is paid twice, and the library cannot know better.
	w.ok(d.once(runs.Effect{Intent: "refund", Key: runs.Key("order", "C", "amount", "0.10")}))
	w.ok(d.once(runs.Effect{Intent: "refund", Key: runs.Key("order", "C", "amount", "0.1")}))
	if calls := w.calls("refund", 4); calls[2].idem == calls[3].idem {
		w.Errorf("two keys, one idempotency key: %+v", calls)
	}
	w.verdict(d.end(nil), runs.ActionDone, "")
}

func TestF10NumberFormatsInParamsAreComparedAndInKeysAreNot(t *testing.T) { replay(t, numberFormats) }

// hashed is the trap: the text is part of the key.
func hashed(text string, answers ...string) runs.Effect {
	sum := sha256.Sum256([]byte(text))
	return runs.Effect{Intent: "reply", Key: runs.Key("text", hex.EncodeToString(sum[:8])), Summary: text, Answers: answers}
}

// A caller that hashes the text into the key is not safe: within one delivery, what is said in
// other words goes out again. A later delivery is still caught, because it has not looked at what
// the earlier one did.
func textInTheKey(w *world) {
	w1 := w.worker("W1")
	theJob := job("J", 1, "m1")
	d1 := w.deliver(w1, theJob).must()
	w.ok(d1.once(hashed("Hi, refunded.")))
	w.ok(d1.once(hashed("Hello! Your refund is on its way.")))
	w.calls("reply", 2) // the customer has it twice: this is why free text must not be in a key
	w.verdict(d1.end(errors.New("restart")), runs.ActionReturn, "")

	d2 := w.deliver(w1, theJob).must()
	err := d2.once(hashed("Good news, we refunded you!"))
	refused := w.refused(err, runs.ErrConversationChanged)
	if len(refused.Conflicts) != 2 || refused.Conflicts[0].Summary != "Hi, refunded." {
		w.Errorf("the refusal should say what the earlier delivery sent: %+v", refused.Conflicts)
	}
	w.verdict(d2.end(err), runs.ActionRetry, fence.ReasonConversationChanged)

	// A handler that never looks is not retried for weeks, each time with a model call: the job
	// is stopped visibly.
	d3 := w.deliver(w1, theJob).must()
	err = d3.once(hashed("You have been refunded."))
	w.verdict(d3.end(w.refused(err, runs.ErrConversationChanged)), runs.ActionPark, fence.ReasonRefusedTwice)
	w.calls("reply", 2)
	w.messages(map[string]string{"m1": open})

	// Once it looks, it is taken at its word: it has read what was sent, and sends all the same.
	d4 := w.deliver(w1, theJob).must()
	if view := d4.catchUp(); len(view.Happened) != 2 {
		w.Errorf("d4 looks, and should read the two replies: %+v", view.Happened)
	}
	w.ok(d4.once(hashed("Refund done.")))
	w.calls("reply", 3)
	w.verdict(d4.end(nil), runs.ActionDone, "")
	// No reply said that it answers m1, so nobody takes it for answered, and that is said.
	w.messages(map[string]string{"m1": open})
	if told := w.told(fence.EventUnanswered); len(told) != 1 || told[0].Inbound != "m1" {
		w.Errorf("the job is done and m1 is open; observers were told %+v", told)
	}
}

func TestF10TextInTheKeyIsUnsafeButALaterDeliveryIsCaught(t *testing.T) { replay(t, textInTheKey) }

// Naming the messages that a reply answers is the net under such a key: no message is answered
// twice, whatever the keys say.
func textInTheKeyWithAnswers(w *world) {
	w1 := w.worker("W1")
	theJob := job("J", 1, "m1")
	d1 := w.deliver(w1, theJob).must()
	w.ok(d1.once(hashed("Hi, refunded.", "m1")))
	w.refused(d1.once(hashed("Hello! Your refund is on its way.", "m1")), runs.ErrAlreadyAnswered)
	w.verdict(d1.end(errors.New("restart")), runs.ActionReturn, "")

	d2 := w.deliver(w1, theJob).must()
	d2.catchUp()
	err := d2.once(hashed("Good news, we refunded you!", "m1"))
	w.refused(err, runs.ErrAlreadyAnswered)
	w.verdict(d2.end(err), runs.ActionDone, "") // there is nothing left to do
	w.calls("reply", 1)
	w.messages(map[string]string{"m1": answered})
}

func TestF10NamedAnswersCatchARewordedReply(t *testing.T) { replay(t, textInTheKeyWithAnswers) }

// What is meant to happen twice can: a second message in the same run, the same refund next week.
// It takes a word in the key that says so, and never happens by accident.
func meantToRepeat(w *world) {
	w1 := w.worker("W1")
	d1 := w.deliver(w1, job("J1", 1, "m1")).must()
	part := func(n int) runs.EffectKey { return runs.Key("message", "m1", "part", n) }
	for n, text := range []string{"Hi! Let me look into it.", "Found it: refunded."} {
		if has := d1.say(part(n+1), text); has != text {
			w.Errorf("part %d: the customer has %q", n+1, has)
		}
	}
	w.ok(d1.do(func(ctx context.Context) error {
		return runs.FromContext(ctx).Dismiss(ctx, []string{"m1"}, "answered in parts")
	}))
	goodwill := refundFor(toolCall{"call_1", "A", "goodwill", "5.00"})
	w.ok(d1.once(goodwill))
	w.verdict(d1.end(nil), runs.ActionDone, "")
	w.calls("reply", 2)
	w.calls("refund", 1)

	// Next week the customer writes again, and the same refund is wanted once more.
	w.at(7 * 24 * time.Hour)
	d2 := w.deliver(w1, job("J2", 2, "m2")).must()
	w.ok(d2.once(goodwill)) // said without a discriminator it is last week's: a replay
	w.calls("refund", 1)
	anew := goodwill
	anew.Key = runs.Key("order", "A", "asked_in", "m2")
	w.ok(d2.once(anew))
	w.ok(d2.once(anew))
	refunds := w.calls("refund", 2)
	if refunds[0].idem == refunds[1].idem {
		w.Errorf("two refunds need two idempotency keys: %+v", refunds)
	}
	w.ok(d2.once(reply("Refunded once more.", "m2")))
	w.verdict(d2.end(nil), runs.ActionDone, "")

	texts := []string{}
	for _, s := range w.calls("reply", 3) {
		texts = append(texts, s.text)
	}
	if want := []string{"Hi! Let me look into it.", "Found it: refunded.", "Refunded once more."}; !slices.Equal(texts, want) {
		w.Errorf("the customer has %q, want %q", texts, want)
	}
	w.messages(map[string]string{"m1": dismissed, "m2": answered})
}

func TestF10LegitimateRepeatsTakeADiscriminator(t *testing.T) { replay(t, meantToRepeat) }

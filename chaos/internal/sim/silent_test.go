package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

// Some oracles are silent whatever rule is switched off: others notice first, or it would take
// another mistake than any of internal/sabotage. An oracle that was never heard proves nothing,
// so each of them is shown a world in which just what it looks at is forged.

// silent is an oracle that no cell of the self-test has heard. plant does what the oracle looks
// at and forges one thing if wrong.
type silent struct {
	kind, says string // says is a part of its sentence that no other oracle of its kind has
	plant      func(w *planting, wrong bool)
}

// planting is a world in which one message was refunded and answered, everything has ended, and
// nothing went wrong.
type planting struct {
	*World
	t   *testing.T
	l   *ledger.Ledger // to write with
	ids int
}

var silents = []silent{
	{"grant", "with no claim in the ledger", callOfAnEffectThatIsNotClaimed},
	{"grant", "which no call in the ledger has", callWithAnotherFenceNumber},
	{"grant", "is committed", callBesideACommittedOne},
	{"late start", "left until its deadline", callThatStartsLate},
	{"hidden retry", "called twice by one Once", functionCalledTwice},
	{"covered", "is unanswered", doneAndTheMessageIsOpen},
	{"executed", "its function failed", doneAndTheFunctionFailed},
	{"echo", "because of our own effect's echo", refusedByAnEcho},
	{"replay", "and was", replayOfAnotherValue},
	{"replay", "never happened", replayOfNothing},
	{"replay only", "is entered again", entryAfterAWrite},
	{"untrue", "is committed and never happened", committedAndNotDone},
	{"untrue", "the provider did not do that call", committedByACallThatWasNotDone},
	{"pending", "after everything has ended", pendingAtTheEnd},
	{"pending", "pending calls", twoPendingCalls},
	{"ledger", "look:", rowThatNobodyCanRead},
	{"ledger", "history:", historyThatNobodyCanRead},
	{"webhook", "ClaimByID", webhookWithAnotherID},
	{"verdict", "no action", verdictWithoutAnAction},
	{"panic", "panicked", taskThatPanics},
	{"stuck", "nothing is waited for", timerThatNobodyLooksAfter},
}

func TestSilentOraclesSpeakUp(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	for _, s := range silents {
		t.Run(s.kind+"/"+s.says, func(t *testing.T) {
			for _, wrong := range []bool{true, false} {
				w := e.planting(t)
				s.plant(w, wrong)
				switch {
				case wrong && (w.badKind != s.kind || !strings.Contains(w.bad, s.says)):
					t.Errorf("it goes unnoticed, and what is noticed is %q: %s", w.badKind, w.bad)
				case !wrong && w.bad != "":
					t.Errorf("nothing is wrong, and what is noticed is %s: %s", w.badKind, w.bad)
				}
				w.close()
			}
		})
	}
}

func (e *Engine) planting(t *testing.T) *planting {
	t.Helper()
	w := &planting{t: t, World: e.newTestWorld(Config{
		Handler: "refund", Provider: "naive", Queue: "river", Order: "seq", Mode: "supersede", Tag: "none", Messages: 1, Budget: -1,
		Faults: Faults(NoFault), // so that clocks are good and no write is lost
	}, &replayed{})}
	w.loop()
	w.quiet()
	if w.truthful(); w.bad != "" || w.prov.agent[0] != 1 || len(w.prov.done) != 2 {
		t.Fatalf("nothing is wrong yet: %q, answered %d times", w.bad, w.prov.agent[0])
	}
	w.l = ledger.New(w.db.inner, ledger.Options{Rules: linearRules, Seam: &seam.Seam{
		Now: w.db.clock, NewLock: func() seam.Lock { return freeLock{} }, NewID: w.unique,
	}})
	return w
}

func (w *planting) unique() string {
	w.ids++
	return fmt.Sprint("forged", w.ids)
}

// must is for what a plant needs and does not forge.
func (w *planting) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// in executes body as a task of a worker.
func (w *planting) in(body func(t *task)) {
	w.spawn(w.procs[1], "forger", body)
	w.loop()
}

// put replaces the body of a row behind everybody's back.
func (w *planting) put(row string, change func(body []byte) []byte) {
	w.t.Helper()
	ctx, conv := context.Background(), ledger.ConversationKey("", "c")
	snap, err := w.db.inner.Load(ctx, conv, ledger.Query{Keys: []string{row}})
	w.must(err)
	if len(snap.Rows) != 1 {
		w.t.Fatalf("the ledger has no row %s", row)
	}
	body, err := snap.Rows[0].Body()
	w.must(err)
	forged := ledger.NewRow(row, snap.Rows[0].Index, change(body))
	done, err := w.db.inner.Apply(ctx, conv, ledger.Write{Tag: snap.Tag, NewTag: w.unique(), Head: snap.Head, Put: []ledger.Row{forged}})
	if w.must(err); !done.Applied {
		w.t.Fatalf("row %s is not replaced", row)
	}
	w.db.version++
}

// rewrite changes what the ledger holds of an effect.
func (w *planting) rewrite(effect string, change func(e *fence.Effect)) {
	w.t.Helper()
	w.put(fence.EffectRow(effect), func(body []byte) []byte {
		var e fence.Effect
		w.must(json.Unmarshal(body, &e))
		change(&e)
		body, err := json.Marshal(&e)
		w.must(err)
		return body
	})
}

func effectOf(intent, name string) string { return key.EffectID("", "c", intent, key.ID(name)) }

// answer is the effect that answered the world's message.
var answer = effectOf("reply", "m0")

// hand is one of a handler of j that looked just now.
func (w *planting) hand(j *job, t *task) *hand {
	t.w, t.p, t.stored, t.applied, t.storedAt, t.durable = w.World, w.procs[1], w.steps, w.db.applies, w.now, true
	return &hand{t: t, w: w.World, ctx: context.Background(), j: j, conv: "c", digest: j.digest, delivery: 1, view: w.steps, replays: new([]*send)}
}

// begin begins a second job's run, which brings the message m1.
func (w *planting) begin() (*hand, *ledger.Handle) {
	w.t.Helper()
	j := &job{id: "j1", msg: 1, h: w.kinds[0], digest: "j1", calls: 1, order: runs.Order{Source: "seq", Number: 2}}
	handle, _, _, err := w.l.Begin(context.Background(), "c", fence.BeginRequest{
		Run: fence.RunKey{Queue: "sim", ID: j.id}, Mode: fence.Supersede, Reads: fence.AfterBegin, Order: j.order, Inbound: []string{"m1"},
	})
	w.must(err)
	w.db.version++
	return w.hand(j, &task{}), handle
}

// claim lets a second run claim the answer to m1, with so many milliseconds until its deadline.
func (w *planting) claim(until fence.Millis) (*hand, *send, *runs.Call) {
	w.t.Helper()
	h, handle := w.begin()
	v, _, err := handle.Claim(context.Background(), fence.ClaimRequest{
		Effect: effectOf("reply", "m1"), Intent: "reply", Key: key.ID("m1").Canonical(), KeyID: "m1", For: until,
	})
	w.must(err)
	if v.Call == nil {
		w.t.Fatalf("the claim is refused: %+v", v.Refusal)
	}
	w.db.version++
	call := &runs.Call{Number: v.Call.Number, IdempotencyKey: key.IdempotencyKey(v.Effect.ID), Fence: v.Call.Fence}
	return h, &send{intent: "reply", name: "m1"}, call
}

func callOfAnEffectThatIsNotClaimed(w *planting, wrong bool) {
	h, s, call := w.claim(240_000)
	if wrong {
		call.IdempotencyKey = key.IdempotencyKey(effectOf("reply", "m2"))
	}
	w.granted(h, s, call)
}

func callWithAnotherFenceNumber(w *planting, wrong bool) {
	h, s, call := w.claim(240_000)
	w.rewrite(effectOf("reply", "m1"), func(e *fence.Effect) {
		older := e.Calls[0] // of which nothing is to be said
		older.State, older.Fence = fence.Failed, call.Fence+1
		if e.Calls = append([]fence.Call{older}, e.Calls...); wrong {
			e.Calls = e.Calls[:1]
		}
	})
	w.granted(h, s, call)
}

func callBesideACommittedOne(w *planting, wrong bool) {
	h, s, call := w.claim(240_000)
	w.rewrite(effectOf("reply", "m1"), func(e *fence.Effect) {
		other := e.Calls[0]
		other.Fence, other.State = call.Fence+1, fence.Failed
		if wrong {
			other.State = fence.Committed
		}
		e.Calls = append(e.Calls, other)
	})
	w.granted(h, s, call)
}

func callThatStartsLate(w *planting, wrong bool) {
	until := fence.Millis(runsTimeout(nil).Milliseconds())
	if wrong {
		until--
	}
	w.granted(w.claim(until))
}

func functionCalledTwice(w *planting, wrong bool) {
	w.in(func(t *task) {
		h := w.hand(w.jobs[0], t)
		h.conv = "c2" // where the ledger is not asked what the call is entitled to
		called := false
		fn := h.function(&send{intent: "tag", name: "t"}, runs.With{}, &called)
		_, err := fn(h.ctx, &runs.Call{Fence: 1000})
		w.must(err)
		if wrong {
			_, _ = fn(h.ctx, &runs.Call{Fence: 1001})
		}
	})
}

func doneAndTheMessageIsOpen(w *planting, wrong bool) {
	h, _ := w.begin()
	if !wrong {
		w.prov.agent[1] = 1
	}
	w.returned(h, &send{intent: "reply", name: "m1"}, runs.With{Answers: []string{"m1"}}, true, true, "", nil)
}

func doneAndTheFunctionFailed(w *planting, wrong bool) {
	s := &send{intent: "reply", name: "m0", idem: key.IdempotencyKey(answer)}
	if wrong {
		s.idem = key.IdempotencyKey(effectOf("reply", "m2"))
	}
	w.returned(w.hand(w.jobs[0], &task{}), s, runs.With{}, true, false, "", nil)
}

func refusedByAnEcho(w *planting, wrong bool) {
	report := "h1"
	if wrong {
		report = "echo1"
	}
	err := &runs.RefusedError{Reason: fence.ReasonConversationChanged, Conflicts: []runs.Conflict{{ID: report, Report: true}}, Refusal: &fence.Refusal{}}
	w.returned(w.hand(w.jobs[0], &task{}), &send{intent: "reply", name: "m1"}, runs.With{}, false, false, "", err)
}

// replay is what Once returned when the world's refund was asked for again.
func (w *planting) replay(order, value string) {
	w.returned(w.hand(w.jobs[0], &task{}), &send{intent: "refund", name: order, params: "500"}, runs.With{}, false, false, value, nil)
}

func replayOfAnotherValue(w *planting, wrong bool) {
	value := w.prov.done[0].value
	if wrong {
		value += "0"
	}
	w.replay("o1", value)
}

func replayOfNothing(w *planting, wrong bool) {
	order := "o1"
	if wrong {
		order = "o2"
	}
	w.replay(order, w.prov.done[0].value)
}

func entryAfterAWrite(w *planting, wrong bool) {
	h, _ := w.begin()
	replays := *h.j.h
	replays.ReplayOnly = true
	h.j.h, h.j.calls, h.delivery = &replays, 2, 2
	w.landings = append(w.landings, landing{h: h, s: &send{intent: "reply", name: "m1", done: wrong}, step: w.steps - 1})
	w.entered(h)
}

func committedAndNotDone(w *planting, wrong bool) {
	if wrong {
		w.prov.done = nil
	}
	w.truthful()
}

func committedByACallThatWasNotDone(w *planting, wrong bool) {
	if wrong {
		w.prov.yes = nil
	}
	w.truthful()
}

// deadlineFarAway does not come in any world.
const deadlineFarAway = fence.Millis(1) << 50

func pendingAtTheEnd(w *planting, wrong bool) {
	w.rewrite(answer, func(e *fence.Effect) {
		if e.Calls[0].Deadline = deadlineFarAway; wrong {
			e.Calls[0].State = fence.Pending
		}
	})
	w.truthful()
}

func twoPendingCalls(w *planting, wrong bool) {
	w.rewrite(answer, func(e *fence.Effect) {
		for i := range 2 {
			more := e.Calls[0]
			more.Fence += int64(1000 + i)
			more.Seq += 1000
			more.State, more.Deadline = fence.Pending, deadlineFarAway
			if i == 1 && !wrong {
				more.State = fence.Failed
			}
			e.Calls = append(e.Calls, more)
		}
	})
	w.truthful()
}

// tear takes the end off the row of the answer.
func (w *planting) tear(wrong bool) {
	w.put(fence.EffectRow(answer), func(body []byte) []byte {
		if wrong {
			return body[:len(body)-1]
		}
		return body
	})
}

func rowThatNobodyCanRead(w *planting, wrong bool) {
	w.tear(wrong)
	w.peek(fence.EffectRow(answer))
}

func historyThatNobodyCanRead(w *planting, wrong bool) {
	w.tear(wrong)
	w.truthful()
}

func webhookWithAnotherID(w *planting, wrong bool) {
	hist, _ := w.history()
	e := hist.Effects[0]
	id := e.ID + "." + e.Calls[0].Claim
	if wrong {
		id = e.ID
	}
	w.in(func(t *task) {
		h := w.hand(w.jobs[0], t)
		h.last = w.prov.done[0]
		w.must(w.webhook(h, id, h.last.value, nil))
	})
}

func verdictWithoutAnAction(w *planting, wrong bool) {
	v := runs.Verdict{Action: runs.ActionDone}
	if wrong {
		v.Action = ""
	}
	w.in(func(t *task) { w.verdict(t, &delivery{j: w.jobs[0], p: t.p}, v) })
}

func taskThatPanics(w *planting, wrong bool) {
	w.in(func(*task) {
		if wrong {
			panic(errors.New("forged"))
		}
	})
}

func timerThatNobodyLooksAfter(w *planting, wrong bool) {
	if t := (&timer{at: w.now, fn: func() {}}); wrong {
		w.timers = append(w.timers, t)
	} else {
		w.schedule(t)
	}
	w.loop()
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

// Handler is one way to write a job handler.
type Handler struct {
	Name      string
	Does      string
	NoInbound bool // its jobs name no messages
	Payload   bool // what it reads travels in the payload
	Stamped   bool // with a ledger stamp taken before the snapshot
	// ReplayOnly: a delivery that wrote before is not entered again.
	ReplayOnly bool
	// Deaf handlers ignore their ctx.
	Deaf bool
	// Ignores handlers leave every other message unanswered on purpose.
	Ignores bool
	// Careless handlers have no stable keys: nothing is promised beside what rule S5.3 says of
	// a redelivered job. So their worlds know no second job for a message and no people.
	Careless bool
	// Alone: what it does is only safe among its like, because its replies answer more than
	// they say.
	Alone bool
	// Folds: what its variables hold between its effects is in the hand, and in nothing else.
	Folds bool
	run   func(h *hand) error
}

// Handlers are the kinds of handlers of the campaigns.
var Handlers = []Handler{
	{Name: "all", Folds: true, Does: "catches up and answers everything that is open with one reply", run: catchUpAll},
	{Name: "each", Does: "catches up and answers everything that is open, one by one", run: catchUpEach},
	{Name: "refund", Folds: true, Does: "catches up, refunds once, answers everything that is open", run: catchUpRefund},
	{Name: "own", Folds: true, Does: "answers its own message, never looks, names no Answers", run: ownOnly},
	{Name: "own-answers", Folds: true, Does: "answers its own message, never looks, names Answers", run: ownAnswers},
	{Name: "own-current", Folds: true, Does: "answers its own message inside UntilCurrent, names no Answers", run: ownCurrent},
	{Name: "own-current-answers", Folds: true, Does: "answers its own message inside UntilCurrent, names Answers", run: ownCurrentAnswers},
	{Name: "read-each", Does: "reads when entered and answers what is unanswered one by one, names no Answers", run: readEach},
	{Name: "read-each-answers", Does: "reads when entered and answers what is unanswered one by one, names Answers", run: readEachAnswers},
	{Name: "read-all", Folds: true, Does: "reads when entered and answers what is unanswered with one reply", run: readAll},
	{Name: "payload", Does: "answers what its payload shows, which carries no stamp", Payload: true, run: payload},
	{Name: "payload-stamped", Does: "answers what its payload shows, which carries a ledger stamp", Payload: true, Stamped: true, run: payload},
	{Name: "split", Does: "answers its own message with three replies, the last names Answers", run: split},
	{Name: "split-current", Does: "the same inside UntilCurrent", run: splitCurrent},
	{Name: "reword", Does: "takes the delivery's number into its key, names Answers", run: rewordAnswers},
	{Name: "reword-silent", Does: "takes the delivery's number into its key, names no Answers", Careless: true, run: reword},
	{Name: "deaf", Does: "like all, and ignores its ctx", Deaf: true, run: catchUpAll},
	{Name: "swallow", Does: "like own-answers, and never returns an error", run: swallow},
	{Name: "replay-only", Does: "keys from its delivery, with ReplayOnly", ReplayOnly: true, run: rewordAnswers},
	{Name: "picky", Does: "catches up, answers even messages and dismisses odd ones", Ignores: true, run: picky},
	{Name: "no-inbound", Does: "like read-all, its jobs name no messages", NoInbound: true, run: readAll},
	{Name: "parallel", Does: "refunds two lines at once, then answers", run: parallel},
	{Name: "progress", Does: "saves progress, then like all", run: progress},
	{Name: "haggler", Does: "catches up, asks for another refund each time, then answers", Alone: true, run: haggler},
	{Name: "wide", Folds: true, Does: "catches up, its key is its own message while that is open, its Answers are all that is open", run: wide},
	{Name: "all-silent", Folds: true, Does: "catches up and answers everything with one reply, names no Answers", Alone: true, run: allSilent},
	{Name: "read-all-silent", Folds: true, Does: "reads when entered, answers everything with one reply, names no Answers", Alone: true, run: readAllSilent},
	{Name: "stubborn", Does: "like read-all-silent, and tries again at once when it is refused", Alone: true, run: stubborn},
	{Name: "elsewhere", Does: "claims, and another process settles", run: elsewhere},
}

// hand is what a handler works with: the library, or nothing.
type hand struct {
	t        *task
	w        *World
	ctx      context.Context
	run      *runs.Run
	j        *job
	delivery int64
	executed []*send
	digest   string
	conv     string
	began    int      // the step at which its Once began, 0 outside of any
	view     int      // the step of its last look
	replays  *[]*send // shared by the goroutines of one delivery
	over     bool
	waits    []wait
	begun    int // the step of its Begin
	last     *send
	refusal  string
	asks     int // of the store after it was over
	// For fold: what its variables hold.
	round int
	open  uint32
	// swallowed: the handler hides its errors.
	swallowed bool
}

func (h *hand) effectCtx() context.Context {
	if h.j.h.Deaf {
		return context.WithoutCancel(h.ctx)
	}
	return h.ctx
}

// read looks at the conversation as the provider shows it.
func (h *hand) read() uint32 {
	h.t.point(atRead, "reads the conversation")
	h.open = h.w.prov.unanswered()
	h.t.saw(uint64(h.open) + 16)
	return h.open
}

// think is the model call.
func (h *hand) think() error {
	h.w.tally.Thoughts++
	d := int64(0)
	if !h.w.cfg.Frozen && !h.w.calm {
		d = [...]int64{1, 4, 20, 90}[h.w.c.choose(4)] * second
	}
	if !h.w.cfg.Frozen { // where no time passes it is nothing that anybody could see
		h.t.point(atRead, "thinks")
	}
	ctx := h.ctx
	if h.j.h.Deaf {
		ctx = nil
	}
	if d > 0 {
		return h.t.sleep(ctx, d)
	}
	if ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// answer answers all that is open with one reply, keyed by the newest message.
func (h *hand) answer(open uint32) error {
	id := messageID(newest(open))
	return h.reply(runs.ID(id), id, open, open)
}

func (h *hand) reply(key runs.EffectKey, name string, answers, covers uint32) error {
	s := &send{intent: "reply", name: name, real: covers}
	with := runs.With{}
	if answers != 0 {
		with.Answers = ids(answers)
	}
	return h.once(key, s, with)
}

func (h *hand) refund(order string) error {
	return h.refundOf(order, 500)
}

func (h *hand) refundOf(order string, cents int) error {
	s := &send{intent: "refund", name: order, params: fmt.Sprint(cents)}
	return h.once(runs.Key("order", order), s, runs.With{Params: map[string]any{"cents": cents}})
}

func (h *hand) tagIt(name string) error {
	return h.once(runs.ID(name), &send{intent: "tag", name: name}, runs.With{})
}

// once makes one effect and checks what the library says about it.
func (h *hand) once(key runs.EffectKey, s *send, with runs.With) error {
	w := h.w
	if w.cfg.Without {
		ctx, cancel := h.t.p.withTimeout(h.ctx, time.Minute)
		defer cancel()
		// What a careful handler can do by itself: the same effect always has the same key.
		s.idem = s.intent + " " + key.Canonical()
		_, err := h.send(ctx, s)
		return err
	}
	intent := w.asked(runs.Intent[string]{Name: s.intent, Distinct: distinct(s.intent)})
	if w.cfg.Provider == "honours" {
		intent.HonoursKey = 24 * time.Hour
	}
	called, before := false, len(h.executed)
	h.began = w.steps
	h.fold("once", s.intent, s.name, s.params, s.real, with.Answers)
	value, err := intent.Once(h.effectCtx(), key, h.function(s, with, &called), with)
	w.returned(h, s, with, called, len(h.executed) > before, value, err)
	h.began = 0
	h.fold("returned", s.intent, s.name, value, err)
	if errors.Is(err, runs.ErrValueNotKept) {
		return nil // it is done, and no handler here needs its value
	}
	return err
}

// function is an effect's: what Once may call at most once.
func (h *hand) function(s *send, with runs.With, called *bool) func(context.Context, *runs.Call) (string, error) {
	w := h.w
	return func(ctx context.Context, call *runs.Call) (string, error) {
		if *called {
			w.fail("hidden retry", "%s was called twice by one Once", s)
		}
		*called = true
		w.granted(h, s, call)
		h.fold("granted", s.intent, s.name, s.params, s.real, with.Answers, call, w.db.rows[fence.EffectRow(call.Effect.ID)], w.now)
		v, err := h.send(ctx, s)
		call.SetReference(v)
		if w.big(err) {
			return string(make([]byte, 70<<10)), err
		}
		return v, err
	}
}

func tagged(h *hand, when string) error {
	if h.w.tag != when || len(h.w.jobs) == 0 {
		return nil
	}
	return h.tagIt("t" + messageID(h.j.msg))
}

// catchingUp is the loop that the documentation recommends.
func (h *hand) catchingUp(fn func(open uint32) error) error {
	if h.w.cfg.Without {
		return fn(h.read())
	}
	return runs.UntilCurrent(h.effectCtx(), func(ctx context.Context, view runs.View) error {
		h.view, *h.replays, h.refusal = h.w.steps, nil, ""
		h.round++
		open := h.read() & maskOf(view.Open)
		h.open = open
		h.fold("open")
		return fn(open)
	})
}

func maskOf(list []runs.Inbound) uint32 {
	var mask uint32
	for _, in := range list {
		for i, name := range messageNames {
			if name == in.ID {
				mask |= 1 << i
			}
		}
	}
	return mask
}

func around(h *hand, fn func() error) error {
	if err := tagged(h, "first"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return tagged(h, "last")
}

func catchUpAll(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		return around(h, func() error {
			if open == 0 {
				return nil
			}
			if err := h.think(); err != nil {
				return err
			}
			return h.answer(open)
		})
	})
}

func catchUpEach(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		return around(h, func() error {
			if open == 0 {
				return nil
			}
			if err := h.think(); err != nil {
				return err
			}
			var unknown error
			for i := 0; open>>i != 0; i++ {
				if open>>i&1 == 0 {
					continue
				}
				err := h.reply(runs.ID(messageID(i)), messageID(i), 1<<i, 1<<i)
				if errors.Is(err, runs.ErrAmbiguous) || isUnknown(err) {
					unknown = err // the others need not wait for it
					continue
				}
				if err != nil {
					return err
				}
			}
			return unknown
		})
	})
}

func isUnknown(err error) bool {
	var outcome *runs.OutcomeError
	return errors.As(err, &outcome) && outcome.Outcome == runs.OutcomeAmbiguous
}

func catchUpRefund(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		return around(h, func() error {
			if open == 0 {
				return nil
			}
			if err := h.think(); err != nil {
				return err
			}
			if err := h.refund("o1"); err != nil {
				return err
			}
			return h.answer(open)
		})
	})
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

func own(h *hand, answers uint32) error {
	return around(h, func() error {
		if err := h.think(); err != nil {
			return err
		}
		id := messageID(h.j.msg)
		return h.reply(runs.ID(id), id, answers, 1<<h.j.msg)
	})
}

func ownOnly(h *hand) error    { return own(h, 0) }
func ownAnswers(h *hand) error { return own(h, 1<<h.j.msg) }

func swallow(h *hand) error {
	h.swallowed = true
	_ = own(h, 1<<h.j.msg)
	return nil
}

func ownUntilCurrent(h *hand, answers uint32) error {
	return h.catchingUp(func(open uint32) error {
		if open>>h.j.msg&1 == 0 {
			return nil
		}
		return own(h, answers)
	})
}

func ownCurrent(h *hand) error        { return ownUntilCurrent(h, 0) }
func ownCurrentAnswers(h *hand) error { return ownUntilCurrent(h, 1<<h.j.msg) }

func readAndEach(h *hand, named bool) error {
	open := h.read()
	if open == 0 {
		return nil
	}
	if err := h.think(); err != nil {
		return err
	}
	return around(h, func() error {
		for i := 0; open>>i != 0; i++ {
			if open>>i&1 == 0 {
				continue
			}
			answers := uint32(0)
			if named {
				answers = 1 << i
			}
			if err := h.reply(runs.ID(messageID(i)), messageID(i), answers, 1<<i); err != nil {
				return err
			}
		}
		return nil
	})
}

func readEach(h *hand) error        { return readAndEach(h, false) }
func readEachAnswers(h *hand) error { return readAndEach(h, true) }

func readAll(h *hand) error {
	open := h.read()
	if open == 0 {
		return nil
	}
	if err := h.think(); err != nil {
		return err
	}
	return around(h, func() error {
		return h.answer(open)
	})
}

func payload(h *hand) error {
	open := h.j.seen
	return around(h, func() error {
		if open == 0 {
			return nil
		}
		if err := h.think(); err != nil {
			return err
		}
		id := messageID(h.j.msg)
		return h.reply(runs.ID(id), id, open, open)
	})
}

func splitReply(h *hand) error {
	if err := h.think(); err != nil {
		return err
	}
	id := messageID(h.j.msg)
	for part := 1; part <= 3; part++ {
		var answers uint32
		if part == 3 {
			answers = 1 << h.j.msg
		}
		name := fmt.Sprintf("%s part %d", id, part)
		if err := h.reply(runs.Key("message", id, "part", part), name, answers, answers); err != nil {
			return err
		}
	}
	return nil
}

func split(h *hand) error { return splitReply(h) }

func splitCurrent(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		if open>>h.j.msg&1 == 0 {
			return nil
		}
		return splitReply(h)
	})
}

func reworded(h *hand, answers uint32) error {
	if err := h.think(); err != nil {
		return err
	}
	id := messageID(h.j.msg)
	return h.reply(runs.Key("message", id, "draft", int(h.delivery)), fmt.Sprintf("%s draft %d", id, h.delivery), answers, 1<<h.j.msg)
}

func reword(h *hand) error        { return reworded(h, 0) }
func rewordAnswers(h *hand) error { return reworded(h, 1<<h.j.msg) }

func picky(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		if odd := open & 0xaaaa; odd != 0 && h.run != nil {
			if err := h.run.Dismiss(h.effectCtx(), ids(odd), "needs no answer"); err != nil {
				return err
			}
		}
		if open &= 0x5555; open == 0 {
			return nil
		}
		if err := h.think(); err != nil {
			return err
		}
		return h.answer(open)
	})
}

// parallel claims two lines before it settles either, as two goroutines of a handler would.
func parallel(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		if open == 0 {
			return nil
		}
		if err := h.think(); err != nil {
			return err
		}
		if h.w.cfg.Without {
			if err := h.once(runs.ID("l1"), &send{intent: "line", name: "l1"}, runs.With{}); err != nil {
				return err
			}
		} else if err := h.both(); err != nil {
			return err
		}
		return h.answer(open)
	})
}

// both makes two effects at the same time.
func (h *hand) both() error {
	done := make(chan struct{})
	var other error
	h.w.spawn(h.t.p, h.t.name+"'", func(t *task) {
		defer close(done)
		second := *h
		second.t, second.executed = t, nil
		other = protect(func() error { return second.once(runs.ID("l2"), &send{intent: "line", name: "l2"}, runs.With{}) })
	})
	err := h.once(runs.ID("l1"), &send{intent: "line", name: "l1"}, runs.With{})
	if cause := h.w.wait(context.Background(), done); cause != nil {
		return cause
	}
	return errors.Join(err, other)
}

func progress(h *hand) error {
	if h.run != nil {
		var n int
		if _, err := h.run.Progress(&n); err != nil {
			return err
		}
		if n < h.j.progress && h.t.d != nil && h.t.d.n == h.j.deliveries && h.w.crashes == 0 && h.w.tally.Lost == 0 && !h.j.edited && !h.j.reused {
			h.w.fail("progress", "%s finds progress %d after %d was saved", h.j.id, n, h.j.progress)
		}
		if err := h.run.SaveProgress(h.effectCtx(), n+1); err != nil {
			return err
		}
		h.j.progress = n + 1
	}
	return catchUpAll(h)
}

// elsewhere claims the reply, hands it to the provider, and lets the provider's webhook settle
// the claim in another process.
func elsewhere(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		if open == 0 {
			return nil
		}
		if err := h.think(); err != nil {
			return err
		}
		id := messageID(newest(open))
		s := &send{intent: "reply", name: id, real: open}
		if h.w.cfg.Without {
			_, err := h.send(h.ctx, s)
			return err
		}
		intent := h.w.asked(runs.Intent[string]{Name: "reply"})
		with := runs.With{Answers: ids(open)}
		claim, err := intent.Claim(h.effectCtx(), runs.ID(id), 10*time.Minute, with)
		if err != nil || claim.Done() {
			return err
		}
		call := claim.Call()
		h.w.granted(h, s, call)
		h.last = s
		value, err := h.send(context.WithoutCancel(h.ctx), s)
		err = h.w.webhook(h, claim.ID(), value, err)
		return err
	})
}

// webhook settles a claim from the API's process.
func (w *World) webhook(h *hand, id, value string, failed error) error {
	done := make(chan struct{})
	w.spawn(w.api, "settle", func(t *task) {
		defer close(done)
		for range 20 {
			claim, err := w.api.keeper.ClaimByID("c", id)
			if err != nil {
				w.fail("webhook", "ClaimByID: %v", err)
				return
			}
			if failed != nil {
				err = claim.Fail(context.Background(), failed)
			} else {
				err = claim.Commit(context.Background(), value, value)
			}
			if err == nil {
				if failed == nil {
					w.confirmed = append(w.confirmed, h.last)
				}
				if failed != nil || w.on.Has(LoseWrites) {
					return
				}
				switch w.c.choose(3) {
				case 1: // a second webhook, which contradicts the first
					_ = claim.Fail(context.Background(), runs.NotApplied(errRefused))
				case 2: // the same webhook again
					_ = claim.Commit(context.Background(), value, value)
				}
				return
			}
			_ = t.sleep(context.Background(), 3*second)
		}
	})
	if err := w.wait(h.ctx, done); err != nil {
		return err
	}
	return failed
}

func haggler(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		if open == 0 {
			return nil
		}
		err := h.refundOf("o1", 500+int(h.delivery)+10*h.j.msg)
		if err != nil && !errors.Is(err, runs.ErrParamsChanged) {
			return err
		}
		return h.answer(open)
	})
}

func wide(h *hand) error {
	return h.catchingUp(func(open uint32) error {
		if open == 0 {
			return nil
		}
		if err := h.think(); err != nil {
			return err
		}
		id := messageID(h.j.msg)
		if open>>h.j.msg&1 == 0 {
			// An effect is named by something that it answers: else its key is spent, and the
			// message that it names is still open.
			id = messageID(newest(open))
		}
		return h.reply(runs.ID(id), id, open, open)
	})
}

// silently answers with one reply and names no Answers: only the order of things protects it.
func silently(h *hand, open uint32) error {
	if open == 0 {
		return nil
	}
	if err := h.think(); err != nil {
		return err
	}
	return around(h, func() error {
		id := messageID(newest(open))
		return h.reply(runs.ID(id), id, 0, open)
	})
}

func allSilent(h *hand) error {
	return h.catchingUp(func(open uint32) error { return silently(h, open) })
}

func readAllSilent(h *hand) error { return silently(h, h.read()) }

func stubborn(h *hand) error {
	open := h.read()
	err := silently(h, open)
	if errors.Is(err, runs.ErrConversationChanged) {
		err = silently(h, open)
	}
	return err
}

// runsTimeout is the effect timeout that the handler's effects have.
func runsTimeout(h *hand) time.Duration { return time.Minute }

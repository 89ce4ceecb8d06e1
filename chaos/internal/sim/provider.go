package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// send is one thing that a worker asks the provider to do.
type send struct {
	intent string
	name   string // of the business object, for people
	real   uint32 // the messages that the text answers, whatever the caller says
	idem   string // the idempotency key
	fence  int64
	try    int // unique
	value  string
	task   string
	params string
	due    int64 // for a late one
	left   int64 // when the request was made
	echoed bool
	// claimed is the step at which its claim was written, 0 while it has none.
	claimed int
	done    bool // reported to the caller as done
	// Of a user's handler: the deeds, the key by which the provider knows them again, and the
	// effect inside which it was called, "" outside of any.
	deeds        []string
	once, effect string
}

func (s *send) String() string {
	text := s.intent + " " + s.name
	if s.real != 0 {
		text += fmt.Sprintf(" answers %v", ids(s.real))
	}
	return text
}

// provider is the world outside. Its record decides what a duplicate is.
type provider struct {
	w     *World
	done  []*send
	agent [16]int // answers by message
	human [16]int
	fence int64
	tries int
	yes   []int64 // the fence numbers of the calls that it did, or had done before
}

// apply makes it happen, as far as the provider's class lets it.
func (p *provider) apply(s *send) (value string, err error) {
	defer func() {
		if err == nil {
			p.yes = append(p.yes, s.fence)
		}
	}()
	if p.tooOld(s) {
		return "", runs.NotApplied(errStale)
	}
	switch p.w.cfg.Provider {
	case "honours":
		for _, have := range p.done {
			if have.idem == s.idem && s.idem != "" {
				return have.value, nil
			}
		}
	case "fences":
		if s.fence != 0 && s.fence < p.fence {
			return "", runs.NotApplied(errors.New("sim: the provider has seen a newer fence number"))
		}
		p.fence = max(p.fence, s.fence)
	}
	if s.once != "" && slices.ContainsFunc(p.done, func(have *send) bool { return have.once == s.once }) {
		return "", nil
	}
	s.value = fmt.Sprintf("%s-%d", s.intent, s.try)
	if p.w.cfg.Frozen {
		s.value = s.intent + "-" + s.name // the same in whatever order things were tried
	}
	p.done = append(p.done, s)
	for i := range p.agent {
		if s.real>>i&1 == 1 {
			p.agent[i]++
			if p.agent[i] > 1 {
				p.w.tally.Duplicates++
				p.duplicate("message %s is answered %d times", messageID(i), p.agent[i])
			}
			if w := p.w; w.human.told>>i&1 == 1 && s.claimed > w.human.toldAt {
				w.fail("answered after a report", "message %s is answered, and the ledger knew before the claim that a person had answered it", messageID(i))
			}
		}
	}
	if s.intent == "reply" && s.real != 0 {
		return s.value, nil
	}
	for _, deed := range s.deeds {
		if n := p.count(deed); n > 1 {
			p.w.tally.Duplicates++
			p.duplicate("%s happened %d times", deed, n)
		}
	}
	if s.deeds != nil {
		return "", nil
	}
	n := 0
	for _, have := range p.done {
		if have.intent == s.intent && have.name == s.name {
			n++
		}
	}
	if n > 1 {
		p.w.tally.Duplicates++
		p.duplicate("%s %s happened %d times", s.intent, s.name, n)
	}
	return s.value, nil
}

// count says how often a user's deed was done.
func (p *provider) count(deed string) int {
	n := 0
	for _, have := range p.done {
		if slices.Contains(have.deeds, deed) {
			n++
		}
	}
	return n
}

func (p *provider) duplicate(format string, args ...any) {
	if p.w.cfg.Without {
		p.w.say("ORACLE", "duplicate: "+format, args...)
		return
	}
	p.w.fail("duplicate", format, args...)
}

// unanswered are the messages that arrived and that neither bot nor person answered.
func (p *provider) unanswered() uint32 {
	var open uint32
	for i := range p.w.arrived {
		if p.agent[i] == 0 && p.human[i] == 0 {
			open |= 1 << i
		}
	}
	return open
}

var (
	errTimeout = errors.New("sim: timeout waiting for the provider")
	errRefused = errors.New("sim: the provider says no")
	errBroken  = errors.New("sim: connection reset")
)

// send is what an effect's function does: one try to reach the provider.
func (h *hand) send(ctx context.Context, s *send) (value string, err error) {
	value, err = h.try(ctx, s)
	h.t.saw(hashString(value))
	if err != nil {
		h.t.saw(hashString(err.Error()))
	}
	return value, err
}

func (h *hand) try(ctx context.Context, s *send) (string, error) {
	t, w := h.t, h.t.w
	p := &w.prov
	p.tries++
	s.try, s.task, s.left = p.tries, t.name, w.now
	if w.canAsk() {
		w.sent = append(w.sent, s)
	}
	what := ""
	if w.keep {
		what = "SEND " + s.String()
	}
	f := t.point(atEffect, what)
	if n := len(w.trace); n > 0 && w.keep {
		w.trace[n-1].Send = s
	}
	switch f {
	case NotApplied:
		return "", runs.NotApplied(errRefused)
	case TimeoutBefore:
		return "", errTimeout
	case LateSend:
		w.late(s)
		return "", errBroken
	case CrashLate:
		w.late(s)
		w.crash(t.p)
	case EffectSlow:
		if err := t.sleep(ctx, 50*second); err != nil {
			return "", err
		}
	}
	if w.grumpy > w.now {
		return "", runs.NotApplied(errRefused)
	}
	if err := ctx.Err(); err != nil && !h.j.h.Deaf {
		// Whoever paused past the timeout finds its request cancelled before it went out.
		return "", err
	}
	value, err := p.apply(s)
	if err != nil {
		return "", err
	}
	t.after(f)
	switch f {
	case TimeoutAfter:
		return "", errTimeout
	case EffectHangs:
		if err := t.sleep(ctx, int64(10*time.Minute)); err != nil {
			return "", err
		}
	case EffectPanics:
		panic("sim: the effect panics")
	}
	h.executed = append(h.executed, s)
	return value, nil
}

// late lets the provider do it at some time after the caller has given up.
func (w *World) late(s *send) {
	s.due = w.now
	if !w.cfg.Frozen {
		s.due += [...]int64{0, 30, 200, 900}[w.c.choose(4)] * second
	}
	w.lates = append(w.lates, s)
}

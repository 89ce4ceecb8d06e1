package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fencedrun/fencedrun/runs"
)

// Outside is how a user's handler reaches the world outside.
type Outside struct {
	h    *hand
	user *User
}

// Do does deeds, each once more than before; once is the key by which the provider knows that
// it has done them, "" at a provider that never does.
func (o *Outside) Do(ctx context.Context, once string, deeds ...string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o.user.deeds++
	s := &send{intent: "deed", name: strings.Join(deeds, " and "), deeds: deeds, once: once, effect: o.h.t.effect}
	_, err := o.h.send(ctx, s)
	return err
}

// Happened reports whether a deed was done.
func (o *Outside) Happened(deed string) bool {
	o.h.t.point(atRead, "reads whether "+deed+" happened")
	n := o.h.w.prov.count(deed)
	o.h.t.saw(uint64(n) + 16)
	return n > 0
}

// Messages lists what customers have written.
func (o *Outside) Messages() []string {
	o.h.t.point(atRead, "reads the conversation")
	o.h.t.saw(uint64(o.h.w.arrived) + 16)
	return ids(1<<o.h.w.arrived - 1)
}

// User tries a handler that somebody else wrote, everywhere.
type User struct {
	Fn       func(ctx context.Context, message string, o *Outside) error
	Messages int
	Mode     runs.Mode
	Depth    int // how many things go wrong, or come at another time, in one world
	Worlds   int // at most

	deeds int
	err   error // of the handler, when nothing goes wrong
}

// userFaults are those under which a user's handler is tried at every yield.
var userFaults = Faults(CrashBefore, CrashAfter, LostAck, StoreError, NotApplied, TimeoutBefore, TimeoutAfter, LateSend, PauseDeadline)

func (u *User) handler() *Handler {
	return &Handler{Name: "user", Does: "whatever it does", run: func(h *hand) (err error) {
		defer func() {
			r := recover()
			if _, killed := r.(killedPanic); killed {
				panic(r)
			}
			if r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
			u.err = err
			if r != nil {
				panic(r)
			}
		}()
		return u.Fn(h.ctx, messageID(h.j.msg), &Outside{h: h, user: u})
	}}
}

// Tried is what became of a user's handler.
type Tried struct {
	Worlds   int
	Complete bool    // every world within the depth was played
	Deeds    int     // in the worlds in which nothing goes wrong
	Err      error   // of the handler, where nothing goes wrong
	Found    *Result // the shortest world with a duplicate, nil if there is none
	Levels   []Level // those that were played to their end, in order
}

// Level is all worlds of so many messages in which so many things go wrong.
type Level struct{ Messages, Wrong int }

// Everywhere plays the world in which nothing goes wrong, then every world in which one thing
// does, with one message, with two, and so on; then those in which two things do, and so on: so
// the first that is found is among the shortest, and who stops early has played every single
// deviation before any two of them.
func (e *Engine) Everywhere(u *User) Tried {
	out := Tried{Complete: true}
	base := Config{
		User: u.handler(), Provider: "naive", Queue: "asynq", Order: "seq", Mode: u.Mode, Tag: "none", Attempts: 4, Faults: userFaults,
		Twice: true, Twin: true, Frozen: true,
	}
	var cfgs []Config
	for n := 1; n <= u.Messages; n++ {
		cfg := base
		cfg.Messages, cfg.Budget = n, max(u.Depth, 1)
		cfgs = append(cfgs, cfg)
	}
	level := make([][]*deviant, len(cfgs))
	for i, cfg := range cfgs {
		u.deeds, u.err = 0, nil
		d := &deviant{}
		r := e.execute(cfg, d, false)
		out.Worlds++
		out.Deeds += u.deeds
		if r.Kind == "duplicate" {
			out.Found = &r
			return out
		}
		if u.err != nil || u.deeds == 0 {
			out.Err = u.err
			return out
		}
		level[i] = []*deviant{d}
	}
	for depth := range u.Depth {
		for i, cfg := range cfgs {
			last := depth == u.Depth-1
			var next []*deviant
			for _, d := range level[i] {
				for at := d.from; at < len(d.width); at++ {
					for v := 1; v < d.width[at]; v++ {
						if out.Worlds >= u.Worlds {
							out.Complete = false
							return out
						}
						child := d.with(at, v)
						r := e.execute(cfg, child, false)
						out.Worlds++
						if r.Kind == "duplicate" && (out.Found == nil || r.Tally.Steps < out.Found.Tally.Steps) {
							out.Found = &r
						}
						if !last {
							next = append(next, child)
						}
					}
				}
				if depth > 0 && out.Found != nil {
					return out
				}
			}
			if out.Found != nil {
				return out
			}
			out.Levels = append(out.Levels, Level{cfg.Messages, depth + 1})
			level[i] = next
		}
	}
	return out
}

// deviant answers dully but for a few places, and notes how many answers there were to each
// question.
type deviant struct {
	at, value []int // where it deviates, in order, and how
	from      int   // after the last of them
	width     []int
	next      int
}

func (d *deviant) with(at, v int) *deviant {
	return &deviant{at: append(slices.Clone(d.at), at), value: append(slices.Clone(d.value), v), from: at + 1}
}

func (d *deviant) choose(n int) int {
	here := len(d.width)
	d.width = append(d.width, n)
	if d.next < len(d.at) && d.at[d.next] == here {
		d.next++
		return min(d.value[d.next-1], n-1)
	}
	return 0
}

// Report writes what a user needs to know of a world in which something was done twice.
func (e *Engine) Report(w io.Writer, found *Result) error {
	cfg := found.Config
	r := e.Replay(cfg, found.Choices, true)
	if err := r.Terminal(w); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n"+r.Hint()+"\n")
	return err
}

// Hint says how the deed that was done twice could be done twice.
func (r *Result) Hint() string {
	var list []*Line
	lines := r.Lines()
	for i := range lines {
		if lines[i].send && lines[i].deed != nil {
			list = append(list, &lines[i])
		}
	}
	if len(list) == 0 {
		return ""
	}
	last := list[len(list)-1]
	if last.effect == "" {
		return "What happened twice was sent outside of any effect. Put the call inside run.Once: the\n" +
			"ledger then refuses it, or gives back the first result, when it was made before."
	}
	for _, l := range list[:len(list)-1] {
		for _, deed := range l.deed {
			switch {
			case !slices.Contains(last.deed, deed):
			case l.effect == "":
				return "The first time it was sent outside of any effect, so the ledger knew nothing of it. Put\nevery call that must not be repeated inside run.Once."
			case l.effect == last.effect:
				return "Both were calls of one effect: the function of the effect said that the first one certainly\n" +
					"did not apply, although it did. Return runs.NotApplied only for what cannot have happened."
			default:
				return "The two were different effects for the ledger: their keys differ. Key an effect by what must\n" +
					"not happen twice (the message, the order), never by the job, the delivery or the text, and\n" +
					"name the messages that a reply answers in Answers."
			}
		}
	}
	return ""
}

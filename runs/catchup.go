package runs

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// View is what a run learns by catching up.
type View struct {
	// Happened are the writes of others, and of earlier deliveries of this job, since the
	// delivery last caught up; oldest first.
	Happened []Conflict
	// Open are the messages that nobody has answered and nothing holds, newest first, at
	// most 100; OpenCount counts all that are open, also the taken ones.
	Open      []Inbound
	OpenCount int
	// Taken are the unresolved effects that answer messages, or that may be called again.
	Taken []Taken
}

// OpenIDs returns the ids of Open, in the order in which the messages became known: what a
// reply to everything names as its Answers.
func (v View) OpenIDs() []string {
	ids := make([]string, len(v.Open))
	for i, in := range v.Open {
		ids[len(ids)-1-i] = in.ID
	}
	return ids
}

// Inbound is an open message.
type Inbound struct {
	ID string
	// Seq orders the messages of a conversation by when they became known.
	Seq int64
}

// Taken is an unresolved effect that holds messages, or that may be called again.
type Taken struct {
	Effect  EffectRef
	State   State    // Pending or Ambiguous
	Answers []string // the messages that it holds
	Summary string
	// CallAgain says that the effect may be called again with the same key (see ParseKey),
	// Params and Answers, because its provider honours the key or it is safe to repeat (rule
	// S8).
	CallAgain bool
	Params    string // canonical JSON; only with CallAgain
}

// CatchUp marks what the run reads from now on as current, and returns what happened since
// the last time and which messages are open. Call it before reading, so that nothing lands
// unseen in between. It is refused when the run may no longer write.
func (r *Run) CatchUp(ctx context.Context) (View, error) {
	if r == nil {
		return View{}, noRun(EffectRef{})
	}
	if refusal := r.may(); refusal != nil {
		return View{}, refusal
	}
	v, now, err := r.h.CatchUp(ctx)
	if err != nil {
		return View{}, r.k.failed(ctx, r.job, "catch up", err)
	}
	if err := r.judged(v.Refusal, now); err != nil {
		return View{}, err
	}
	view := View{Happened: v.Happened, OpenCount: v.OpenCount}
	for _, in := range v.Open {
		view.Open = append(view.Open, Inbound{ID: in.ID, Seq: in.Seq})
	}
	// The ledger has them by when they were last named, and a Begin that comes back names its
	// own again.
	slices.SortFunc(view.Open, func(a, b Inbound) int { return cmp.Compare(b.Seq, a.Seq) })
	for _, t := range v.Taken {
		view.Taken = append(view.Taken, Taken{
			Effect: EffectRef{ID: t.ID, Intent: t.Intent, Key: t.Key}, State: t.State, Answers: t.Answers,
			Summary: t.Summary, CallAgain: t.Again, Params: t.Params,
		})
	}
	return view, nil
}

// UntilCurrent catches up and runs fn; when an effect in fn was refused because the
// conversation changed or a message was answered, it does both again, at most Config.Rounds
// times. fn reads the conversation, thinks, and answers the open messages that are free; it
// must return the error that an effect gave it, wrapped or not. Everything else that fn
// returns is returned at once.
func UntilCurrent(ctx context.Context, fn func(ctx context.Context, view View) error) error {
	r := FromContext(ctx)
	if r == nil {
		return noRun(EffectRef{})
	}
	for round := 1; ; round++ {
		view, err := r.CatchUp(ctx)
		if err != nil {
			return err
		}
		err = fn(ctx, view)
		if round >= r.k.config.Rounds || !rereadingHelps(err) {
			return err
		}
	}
}

// rereadingHelps: what is unresolved, and a change that consists of pending effects only, ends
// by itself and not with another look.
func rereadingHelps(err error) bool {
	refused := asRefused(err)
	if refused == nil || errors.Is(err, ErrUnresolved) {
		return false
	}
	switch refused.Reason {
	case fence.ReasonAlreadyAnswered:
		return true
	case fence.ReasonConversationChanged:
		return !refused.comeBack()
	}
	return false
}

package cases

import (
	"errors"
	"fmt"
	"slices"
	"testing/synctest"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// ok insists that an effect was done, now or earlier.
func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("refused or failed: %v", err)
	}
}

// refused insists that an effect was refused for this reason.
func (w *world) refused(err, reason error) *runs.RefusedError {
	w.Helper()
	var refusal *runs.RefusedError
	if !errors.As(err, &refusal) {
		w.Fatalf("want a refusal %q, got %v", reason, err)
	}
	if !errors.Is(err, reason) {
		w.Fatalf("want a refusal %q, got %v", reason, err)
	}
	return refusal
}

// outcome insists that an effect was called and came to this.
func (w *world) outcome(err error, want runs.Outcome) *runs.OutcomeError {
	w.Helper()
	var outcome *runs.OutcomeError
	if !errors.As(err, &outcome) || outcome.Outcome != want {
		w.Fatalf("want outcome %q, got %v", want, err)
	}
	return outcome
}

// verdict insists on what the queue is told.
func (w *world) verdict(got runs.Verdict, action runs.Action, reason runs.Reason) {
	w.Helper()
	if got.Action != action || got.Reason != reason {
		w.Fatalf("want the verdict %q %q, got %q %q (%s; %v)", action, reason, got.Action, got.Reason, got.Note, got.Err)
	}
	if action == runs.ActionComeBack && got.After <= 0 {
		w.Errorf("come back, but when? %+v", got)
	}
}

// notEntered insists that a delivery was answered without its handler.
func (w *world) notEntered(d *delivery, action runs.Action, reason runs.Reason) {
	w.Helper()
	if d.in() {
		w.Fatalf("%s: the handler was entered; want the verdict %q %q without it", d.job.ID, action, reason)
	}
	w.verdict(d.ended(), action, reason)
}

// calls insists on how often the provider was called with this intent.
func (w *world) calls(intent string, want int) []sent {
	w.Helper()
	synctest.Wait()
	got := w.prov.saw(intent)
	if len(got) != want {
		w.Fatalf("the provider saw %d calls of %q, want %d: %+v", len(got), intent, want, got)
	}
	return got
}

// state insists on what the ledger knows of an effect.
func (w *world) state(e runs.Effect, want runs.State) runs.Record {
	w.Helper()
	rec, err := w.operator().Check(w.Context(), conversation, e)
	if err != nil {
		w.Fatalf("check: %v", err)
	}
	if rec.State != want {
		w.Fatalf("the ledger says that %s %s is %q, want %q", e.Intent, rec.Effect.Key, rec.State, want)
	}
	return rec
}

// record returns what the ledger keeps of a job's run, nil if nothing.
func (w *world) record(jobID string) *runs.RunRecord {
	w.Helper()
	for _, r := range w.history().Runs {
		if r.Key.ID == jobID {
			return r
		}
	}
	return nil
}

// runEnded insists that a job's run ended, and how.
func (w *world) runEnded(jobID string, how fence.EndReason) {
	w.Helper()
	r := w.record(jobID)
	if r == nil || r.State != fence.RunEnded || r.End != how {
		w.Fatalf("the run of %s should have ended (%s): %+v", jobID, how, r)
	}
}

func (w *world) history() runs.History {
	w.Helper()
	h, err := w.operator().History(w.Context(), conversation)
	if err != nil {
		w.Fatalf("history: %v", err)
	}
	return h
}

// leases returns the leases on the conversation that have not run out.
func (w *world) leases() []ledger.Lease {
	w.Helper()
	snap, err := w.operator().proc.Load(w.Context(), ledger.ConversationKey("", conversation), ledger.Query{})
	if err != nil {
		w.Fatalf("leases: %v", err)
	}
	return slices.DeleteFunc(snap.Leases, func(l ledger.Lease) bool { return l.Until <= snap.Now })
}

// How an inbound message can end. There is no fifth way: not answered twice, and not forgotten.
const (
	answered = "answered" // by exactly one reply that the customer has
	unknown  = "unknown"  // by a reply of which nobody knows whether the customer has it; operators see it
	open     = "open"     // by nothing; operators see it

	dismissed = "dismissed" // somebody closed it without an answer
	underWay  = "under way" // not an end
)

// messages insists on how each inbound message stands, in the ledger and in the customer's
// chat: no message is answered twice, and none is forgotten silently.
func (w *world) messages(want map[string]string) {
	w.Helper()
	synctest.Wait()
	got := map[string]string{}
	history := w.history()
	for _, in := range history.Inbound {
		got[in.ID] = w.standing(in, history.Effects)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("the messages stand at %v, want %v", got, want)
	}
	for id, how := range want {
		n := w.prov.answersTo(id)
		if n > 1 || n == 0 && how == answered || n > 0 && how == open {
			w.Errorf("message %s is %s, and the customer has %d replies to it", id, how, n)
		}
	}
}

// standing says how a message stands, and insists that what is not answered is visible.
func (w *world) standing(in *runs.InboundRecord, effects []*runs.EffectRecord) string {
	w.Helper()
	switch {
	case len(in.Answered) > 1:
		return fmt.Sprintf("answered by %d effects", len(in.Answered))
	case len(in.Answered) == 1:
		return answered
	case in.Closed():
		return dismissed
	}
	for _, e := range effects {
		call := e.Deciding()
		if !slices.Contains(call.Answers, in.ID) {
			continue
		}
		switch call.State {
		case fence.Pending:
			return underWay
		case fence.Ambiguous:
			w.visible(e.ID)
			return unknown
		}
	}
	listed, err := w.operator().Open(w.Context(), 0, 0)
	if err != nil {
		w.Fatalf("list open messages: %v", err)
	}
	if !slices.ContainsFunc(listed, func(m runs.OpenMessage) bool { return m.ID == in.ID }) {
		return "open, and no operator can see it"
	}
	return open
}

// visible insists that operators find an effect whose outcome is unknown.
func (w *world) visible(effectID string) {
	w.Helper()
	listed, err := w.operator().Unresolved(w.Context(), 0, 0)
	if err != nil {
		w.Fatalf("list unresolved: %v", err)
	}
	if !slices.ContainsFunc(listed, func(u runs.UnresolvedEffect) bool { return u.Effect.ID == effectID }) {
		w.Errorf("nobody can see the unknown effect %s: %+v", effectID, listed)
	}
}

// oneAnswer insists that a refusal names exactly one effect that answers messages, and returns it.
func (w *world) oneAnswer(e *runs.RefusedError) runs.Conflict {
	w.Helper()
	if len(e.Answered) != 1 {
		w.Fatalf("%d answers stand in the way, want one: %+v", len(e.Answered), e.Answered)
	}
	return e.Answered[0]
}

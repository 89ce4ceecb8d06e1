package redisledger

import (
	"context"
	"log/slog"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// On Cluster a run's directory entry is in a slot of its own: it is found by the run's name alone,
// so it cannot be in its conversation's. A change of both is made in this order:
//
//  1. the entry is moved to the conversation, if it is what the change expects;
//  2. the conversation is changed, if it is what the change expects;
//  3. if it was not, the entry is moved back, unless somebody has read it or moved it on meanwhile;
//  4. if it was, the entries of runs that it forgot are deleted.
//
// Whoever reads an entry may rest a decision on it: a Cancel that finds no run where the entry says
// leaves its word there for the Begin that it takes to be under way. So reading makes an entry final,
// and what nobody has read can be taken back as if it had never been.
//
// Who dies after 1 leaves an entry without its run, on a conversation that may not exist. That is
// harmless: the next Begin finds it, sees that there is no run, and goes on from there; a Cancel
// cancels the run there. Who dies before 3 is done leaves the same. Who dies before 4 is done leaves
// entries of runs that are long over; a later Begin under such an id finds no run there.

// applyApart changes a conversation and the directory.
func (s *Store) applyApart(ctx context.Context, conversation string, w ledger.Write, nonce string) (ledger.Result, error) {
	var before string
	if w.Home != nil {
		now, moved, was, err := s.moveIn(ctx, conversation, w, nonce)
		if err != nil {
			return ledger.Result{}, err
		}
		if !moved {
			return ledger.Result{Now: now}, nil
		}
		before = was
	}
	result, err := s.apply(ctx, conversation, w, nonce)
	if err != nil {
		return ledger.Result{}, err
	}
	// What was begun is finished, whatever becomes of the caller.
	done, cancel := s.seam.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	if result.Applied {
		s.forget(done, conversation, w.Forget)
		return result, nil
	}
	if w.Home != nil {
		run := w.Home.Run
		_, err := s.run(done, backScript, []string{s.entryKey(run), s.indexKey(bucketOf(run))}, entryValue(moving, nonce, conversation), before, run)
		if err != nil {
			return ledger.Result{}, err
		}
	}
	if result.Current != nil && w.Want.Run != "" {
		if result.Current.Home, err = s.find(ctx, w.Want.Run); err != nil {
			return ledger.Result{}, err
		}
	}
	return result, nil
}

// cleanup is how long a change that was begun may take to be finished once its ctx is done.
const cleanup = 10 * time.Second

// moveIn is step 1. It returns the entry as it was.
func (s *Store) moveIn(ctx context.Context, conversation string, w ledger.Write, nonce string) (now fence.Millis, moved bool, before string, err error) {
	run, was := w.Home.Run, w.Home.Was
	exactly := ""
	switch {
	case was.Conversation != "":
		before = entryValue(settled, nonce, was.Conversation)
	case was.Found:
		// A tombstone must come back as it was, and the change does not know its bytes.
		answer, err := s.run(ctx, findScript, []string{s.entryKey(run)})
		if err != nil {
			return 0, false, "", err
		}
		if before, _, err = text(answer); err != nil {
			return 0, false, "", err
		}
		exactly = before
	}
	keys := []string{s.entryKey(run), s.indexKey(bucketOf(run))}
	answer, err := s.durablyIf(ctx, w.Durable, moveScript, keys, s.now(), entryValue(moving, nonce, conversation), wasOf(was), exactly, run)
	if err != nil {
		return 0, false, "", err
	}
	parts, err := list(answer, 2)
	if err != nil {
		return 0, false, "", err
	}
	at, err := number(parts[0])
	if err != nil {
		return 0, false, "", err
	}
	yes, err := number(parts[1])
	return fence.Millis(at), yes == 1, before, err
}

// forget is step 4. The change is made by now, so that an error would say too much.
func (s *Store) forget(ctx context.Context, conversation string, runs []string) {
	asks := make([]ask, len(runs))
	for i, run := range runs {
		asks[i] = ask{keys: []string{s.entryKey(run)}, args: []any{conversation}}
	}
	if _, err := s.all(ctx, forgetScript, asks); err != nil {
		s.config.Logger.WarnContext(ctx, "redisledger: directory entries of purged runs may be left behind",
			slog.String("conversation", conversation), slog.Int("runs", len(runs)), slog.Any("error", err))
	}
}

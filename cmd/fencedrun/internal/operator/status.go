package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

func newStatus(a *app) *cobra.Command {
	p := &a.place
	var conversation string
	cmd := &cobra.Command{
		Use:   "status EFFECT [flags]",
		Short: "show everything about one effect, call by call",
		Long: `Shows everything that the ledger knows about one effect: its state and what to do about it, and
each call with its claimer, deadline, params, answers, reference, and what became of it.

EFFECT is the effect's id or its idempotency key, or a beginning of either that no other effect
has. Without --conversation it is looked for among what is unresolved, which is all that a
ledger can find by itself; with it, among all effects of the conversation. "fencedrun key" tells
the id of an effect by its intent and key.`,
		Example: `  fencedrun status 8k2jq0s1
  fencedrun status fr1_8k2jq0s1 --conversation thread-7
  fencedrun status --json --conversation thread-7 \
      "$(fencedrun key thread-7 refund '{"order":"A-17","line":2}' --json | jq -r .effect)"`,
		Annotations: map[string]string{exitCodes: `  0  here it is
  1  not found, or more than one
  2  it could not run`},
		Args:              arguments("EFFECT"),
		ValidArgsFunction: completeEffects(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				t, err := find(ctx, k, args[0], conversation)
				if err != nil {
					return err
				}
				return a.show(describe(t.conversation, t.effect, t.now, t.short), func(s *screen) { s.status(t) })
			})
		},
	}
	cmd.Flags().StringVar(&conversation, "conversation", "", "look for EFFECT among all effects of this conversation, settled ones too")
	return cmd
}

func (s *screen) status(t target) {
	e := t.effect
	s.printf("%s\n", s.bold(title(e)))
	s.field("state", s.state(e.State()))
	s.field("to do", whatToDo(e, t.now))
	s.field("conversation", shell.Word(t.conversation))
	s.field("effect", e.ID)
	s.field("provider key", key.IdempotencyKey(e.ID))
	if e.Probing.Tries > 0 {
		s.field("probes", probes(e, t.now))
	}
	for i := range e.Calls {
		s.printf("\n")
		s.call(&e.Calls[i], t.now)
	}
	if unresolved(e) {
		s.next(whyCommand(t.conversation),
			happenedCommand(t.short), notCommand(t.short))
		return
	}
	s.next(whyCommand(t.conversation))
}

func (s *screen) call(c *fence.Call, now fence.Millis) {
	state := s.state(c.State)
	if how := outcome(c); how != "" {
		state += ", " + how
	}
	s.printf("%s\n", s.bold(fmt.Sprintf("call %d", c.Number)))
	s.field("state", state)
	s.field("claimed", when(c.At, now)+" by "+owner(c))
	if c.Settled > 0 {
		s.field("settled", when(c.Settled, now))
	} else {
		s.field("deadline", when(c.Deadline, now))
	}
	s.field("summary", quoted(c.Summary, width-20))
	s.field("params", head(c.Params, width-18))
	s.field("answers", head(strings.Join(c.Answers, ", "), width-18))
	s.field("reference", line(c.Reference))
	switch {
	case c.NoValue:
		s.field("value", "not kept")
	case len(c.Result) > 0:
		s.field("value", plural(len(c.Result), "byte", "bytes")+" of JSON")
	}
	s.field("error", head(c.Error, width-18))
	s.field("note", head(c.Note, width-18))
	s.field("fence", fmt.Sprint(c.Fence))
	if c.Again.Repeatable {
		s.field("repeat", "safe at any time, as its intent declares")
	} else if c.Again.Until > 0 {
		s.field("repeat", "the provider honours the key: until "+when(c.Again.Until, now))
	}
}

// when is a time, and how far it is from now.
func when(at, now fence.Millis) string {
	text := at.Time().UTC().Format("2006-01-02 15:04:05Z")
	if at > now {
		return text + " (in " + span((at - now).Duration()) + ")"
	}
	return text + " (" + ago(at, now) + ")"
}

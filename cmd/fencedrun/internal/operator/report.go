package operator

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/runs"
)

type outsideDoc struct {
	Conversation    string `json:"conversation"`
	ID              string `json:"id"`
	Known           bool   `json:"known"` // it was reported before: nothing is changed
	Echo            string `json:"echo"`  // the effect of the service's own that it is
	NewConversation bool   `json:"new_conversation"`
}

func newReport(a *app) *cobra.Command {
	p := &a.place
	var w runs.Write
	cmd := &cobra.Command{
		Use:   "report CONVERSATION ID [flags]",
		Short: "say that something else wrote: a person answered, a ticket moved",
		Long: `Records that something else than a job wrote to a conversation: you answered the customer in the
help desk, somebody moved the ticket. Runs that have not looked since are refused before they
write anything, and the messages that --answers names are closed.

ID names the write, such as the help desk's id of your answer: reported twice it is one report.

A write that carries the idempotency key (--key) or the provider's reference (--reference) of an
effect of the service's own is the echo of that effect: it settles it as committed if its outcome
was open, and is in nobody's way. It is the best evidence there is.`,
		Example: `  fencedrun report thread-7 note-81 --intent reply --answers m17,m18
  fencedrun report thread-7 evt-9 --intent refund --key fr1_8k2jq0s1…    it is our own refund
  fencedrun report thread-7 call-3 --summary "told by telephone"`,
		Annotations: map[string]string{exitCodes: `  0  it is recorded, now or before
  2  it could not run`},
		Args: arguments("CONVERSATION", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.ID = args[1]
			if w.IdempotencyKey != "" && !isKey(w.IdempotencyKey) {
				return usagef("--key %q is no idempotency key of this library: give all of it, as fencedrun status prints it", head(w.IdempotencyKey, 60))
			}
			if err := orUser(&w.By); err != nil {
				return err
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				return a.report(ctx, k, args[0], w)
			})
		},
	}
	p.retentionFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&w.Intent, "intent", "", "what it did: reply, refund, …")
	f.StringSliceVar(&w.Answers, "answers", nil, "the `MESSAGES` that it answers, separated by commas")
	f.StringVar(&w.Reference, "reference", "", "the provider's reference of it")
	f.StringVar(&w.IdempotencyKey, "key", "", "the idempotency `KEY` that it carries, all of it")
	f.StringVar(&w.Summary, "summary", "", "`TEXT` for people")
	f.StringVar(&w.By, "by", "", "who wrote (default: you, as the system knows you)")
	return cmd
}

func (a *app) report(ctx context.Context, k *runs.Keeper, conversation string, w runs.Write) error {
	h, err := k.History(ctx, conversation)
	if err != nil {
		return err
	}
	r, err := k.Report(ctx, conversation, w)
	if err != nil {
		return err
	}
	doc := outsideDoc{Conversation: conversation, ID: w.ID, Known: r.Known, Echo: r.Echo, NewConversation: h.Head == nil}
	return a.show(doc, func(s *screen) {
		switch {
		case r.Known:
			s.printf("Reported before: nothing is changed.\n")
		case r.Echo != "":
			s.printf("It is our own effect %s: recorded as its echo.\n", r.Echo)
		default:
			s.printf("Reported. Runs that have not caught up since are refused before they write.\n")
		}
		if r.Echo == "" && (w.IdempotencyKey != "" || w.Reference != "") {
			s.printf("No effect of this conversation has that key or reference: it counts as somebody else's write.\n")
		}
		if doc.NewConversation {
			s.printf("The ledger had never heard of %s: is it spelt as the service spells it?\n", shell.Word(conversation))
		}
		s.next(whyCommand(conversation))
	})
}

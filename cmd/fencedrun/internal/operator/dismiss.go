package operator

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/runs"
)

type dismissDoc struct {
	Conversation string   `json:"conversation"`
	Dismissed    []string `json:"dismissed"` // closed now
	Closed       []string `json:"closed"`    // before
	Unknown      []string `json:"unknown"`   // that no job has named
}

func newDismiss(a *app) *cobra.Command {
	p := &a.place
	var why string
	var force bool
	cmd := &cobra.Command{
		Use:   "dismiss CONVERSATION MESSAGE… --why TEXT [flags]",
		Short: "close messages that need no answer",
		Long: `Closes messages of customers without an answer: a "thanks", spam, something that was settled by
telephone. No job will answer them, and "fencedrun open" does not list them any more. A message
that is answered or dismissed already stays as it is.

A message that the ledger has never heard of is refused, since it may be a typing error; --force
dismisses it before any job names it. For a message that somebody answered elsewhere use
"fencedrun report": it keeps the runs at work from answering a conversation that they have not
seen.`,
		Example: `  fencedrun dismiss thread-7 m17 --why "says thanks"
  fencedrun dismiss thread-7 m17 m18 m19 --why spam`,
		Annotations: map[string]string{exitCodes: `  0  all of them are closed, now or before
  1  refused: the ledger does not know the conversation, or one of the messages
  2  it could not run`},
		Args: arguments("CONVERSATION", "MESSAGE…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if why == "" {
				return usagef("--why is missing: say why they need no answer")
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				return a.dismiss(ctx, k, args[0], args[1:], why, force)
			})
		},
	}
	p.retentionFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&why, "why", "", "why they need no answer: `TEXT` for whoever reads it later; required")
	f.BoolVar(&force, "force", false, "also dismiss what the ledger has never heard of")
	return cmd
}

func (a *app) dismiss(ctx context.Context, k *runs.Keeper, conversation string, ids []string, why string, force bool) error {
	doc := dismissDoc{Conversation: conversation, Dismissed: []string{}, Closed: []string{}, Unknown: []string{}}
	h, err := k.History(ctx, conversation)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !slices.ContainsFunc(h.Inbound, func(in *runs.InboundRecord) bool { return in.ID == id }) {
			doc.Unknown = append(doc.Unknown, id)
		}
	}
	if len(doc.Unknown) > 0 && !force {
		return refusef("no job has named %s on conversation %s: nothing is dismissed\n%s lists its messages; --force dismisses in advance",
			line(strings.Join(doc.Unknown, ", ")), shell.Word(conversation), historyCommand(conversation))
	}
	dismissed, err := k.Dismiss(ctx, conversation, ids, why)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if slices.Contains(dismissed, id) {
			doc.Dismissed = append(doc.Dismissed, id)
		} else {
			doc.Closed = append(doc.Closed, id)
		}
	}
	return a.show(doc, func(s *screen) {
		if len(doc.Dismissed) > 0 {
			s.printf("Dismissed: %s\n", line(strings.Join(doc.Dismissed, ", ")))
		}
		if len(doc.Closed) > 0 {
			s.printf("Closed before, nothing is changed: %s\n", line(strings.Join(doc.Closed, ", ")))
		}
		s.next("fencedrun open")
	})
}

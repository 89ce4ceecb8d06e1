package operator

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/story"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

func newWhy(a *app) *cobra.Command {
	p := &a.place
	var last int
	cmd := &cobra.Command{
		Use:   "why CONVERSATION [flags]",
		Short: "tell what went on in a conversation, and what to do now",
		Long: `Tells what went on in a conversation as a timeline: which jobs came and were delivered again, who
claimed what, what became of each call, what people and the provider reported. Then what is in
doubt, which jobs are stopped and who is at work, each with the commands to type.

It is told from the records of the ledger. What leaves none, such as a refusal that was tried
again with success, is in the logs of the workers only.`,
		Example: `  fencedrun why thread-7
  fencedrun why thread-7 --last 20 --json`,
		Annotations: map[string]string{exitCodes: `  0  here it is
  1  the ledger does not know the conversation
  2  it could not run`},
		Args: arguments("CONVERSATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if last < 0 {
				return usagef("--last is negative: %d", last)
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				h, err := known(ctx, k, args[0])
				if err != nil {
					return err
				}
				o := story.Options{Conversation: args[0], Command: p.program(), Leases: leases(h), Last: last}
				told := story.Tell(h, o)
				if a.json {
					return a.printJSON(told)
				}
				s := a.screen()
				if err := told.WriteText(s, s.colour); err != nil {
					return err
				}
				return s.Flush()
			})
		},
	}
	cmd.Flags().IntVar(&last, "last", 0, "tell only the last `N` events (0: all)")
	return cmd
}

// leases are those that have not lapsed.
func leases(h runs.History) map[fence.LeaseID]fence.Millis {
	until := map[fence.LeaseID]fence.Millis{}
	for _, l := range h.Live {
		until[fence.LeaseID{Run: fence.RunRow(l.Run), Nonce: l.Delivery.Nonce}] = l.Until
	}
	return until
}

package operator

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/runs"
)

type cancelDoc struct {
	Run          runKeyDoc `json:"run"`
	Known        bool      `json:"known"` // the ledger had heard of it
	Conversation string    `json:"conversation"`
	Cancelled    bool      `json:"cancelled"` // now or before; false: it has ended
}

func newCancel(a *app) *cobra.Command {
	p := &a.place
	var o runs.CancelOptions
	cmd := &cobra.Command{
		Use:   "cancel QUEUE ID [flags]",
		Short: "cancel a job's run: it may write no more",
		Long: `Cancels a run: its handler is told at its next heartbeat, and it may claim nothing any more. A
call that is under way goes on, and what became of it is recorded. The job itself is the queue's:
when it is delivered again it is refused as cancelled, and the queue drops it.

QUEUE and ID are what "fencedrun runs" prints, such as asynq:default or river:public and the job's
id. A run that the ledger does not know is cancelled in advance: its job is refused when it comes.

The messages that the job was made for stay open, for the next job or a person; --dismiss closes
them without an answer.`,
		Example: `  fencedrun cancel asynq:default 7c1f --why "the customer called"
  fencedrun cancel river:public 4711 --why spam --dismiss`,
		Annotations: map[string]string{exitCodes: `  0  it is cancelled, now or before
  1  refused: it has ended
  2  it could not run`},
		Args: arguments("QUEUE", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := orUser(&o.By); err != nil {
				return err
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				return a.cancel(ctx, k, runs.RunKey{Queue: args[0], ID: args[1]}, o)
			})
		},
	}
	p.retentionFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.By, "by", "", "who cancels (default: you, as the system knows you)")
	f.StringVar(&o.Why, "why", "", "why: `TEXT` for whoever reads it later")
	f.BoolVar(&o.Dismiss, "dismiss", false, "also close its open messages without an answer")
	return cmd
}

func (a *app) cancel(ctx context.Context, k *runs.Keeper, run runs.RunKey, o runs.CancelOptions) error {
	doc := cancelDoc{Run: runKeyDoc(run)}
	var err error
	if doc.Conversation, doc.Known, err = k.FindRun(ctx, run); err != nil {
		return err
	}
	if doc.Cancelled, err = k.Cancel(ctx, run, o); err != nil {
		return err
	}
	err = a.show(doc, func(s *screen) {
		switch {
		case !doc.Cancelled:
			s.printf("Refused: the run %s has ended, so there is nothing to cancel.\n", runName(run))
		case !doc.Known:
			s.printf("Cancelled in advance: the ledger does not know the run %s.\n", runName(run))
			s.printf("Its job is refused when it comes. If you expected it to be known, look at the spelling:\n")
			s.next("fencedrun runs CONVERSATION")
			return
		case doc.Conversation == "":
			s.printf("Cancelled before: the run %s has not begun yet.\n", runName(run))
			return
		default:
			s.printf("Cancelled: the run %s on %s.\n", runName(run), shell.Word(doc.Conversation))
		}
		s.next(whyCommand(doc.Conversation))
	})
	if err == nil && !doc.Cancelled {
		err = errFound
	}
	return err
}

package main

import (
	"context"
	"slices"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
)

// unfenced is the bot as one writes it on a queue that retries: it looks before it thinks, it answers all that is open,
// and it returns errors so that the queue tries again.
type unfenced struct{}

func openUnfenced(context.Context, armPlace, func(proc.Event)) (arm, error) { return unfenced{}, nil }

func (unfenced) Additions() queue.Additions                      { return queue.Additions{} }
func (unfenced) Settled(context.Context, []string) (bool, error) { return true, nil }
func (unfenced) Books(context.Context, []string) (books, error)  { return books{}, nil }
func (unfenced) Close() error                                    { return nil }
func (unfenced) Handler(b *bot) queue.Handler {
	return func(ctx context.Context, job queue.Job) error {
		conversation, err := b.desk.Conversation(ctx, job.Conversation)
		if err != nil {
			return err
		}
		open := conversation.Open()
		if !slices.Contains(open, job.Message) {
			return nil // answered along with another message
		}
		plan, err := b.think(ctx, job, conversation.Arrived(), open)
		if err != nil {
			return err
		}
		for _, action := range plan.actions {
			if err := b.desk.Act(ctx, job.Conversation, provider.Action{
				Kind: action.Kind, Object: action.Object, Text: action.Text,
			}); err != nil {
				return err
			}
		}
		return b.desk.Reply(ctx, job.Conversation, provider.Reply{Text: plan.reply, Answers: open})
	}
}

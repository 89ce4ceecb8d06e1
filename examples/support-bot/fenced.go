package main

import (
	"context"
	"errors"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
	"github.com/fencedrun/fencedrun/runs"
)

// action declares what the bot does besides answering. The keys of such an effect tell it apart from every other
// completely, so one whose outcome is unknown does not stand in the way of the next.
func action(kind string) runs.Intent[struct{}] {
	return runs.Intent[struct{}]{Name: "action:" + kind, Distinct: true}
}

// answer is the bot as one writes it with fencedrun. Compare unfenced.go: it catches up before it reads, every action and
// the reply is a Once, and the reply says which messages it answers.
func (b *bot) answer(ctx context.Context, job queue.Job) error {
	// When a message is answered or something happens while the model thinks, the reply is refused, and this is done again
	// with what is still open.
	return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
		open := view.OpenIDs()
		if len(open) == 0 {
			return nil // answered along with another message, or taken by an answer that is on its way
		}
		conversation, err := b.desk.Conversation(ctx, job.Conversation)
		if err != nil {
			return err
		}
		plan, err := b.think(ctx, job, conversation.Arrived(), open)
		if err != nil {
			return err
		}
		var unknown error
		for _, a := range plan.actions {
			// The key is the business object, never the model's wording.
			_, err := action(a.Kind).Once(ctx, runs.Key("object", a.Object), func(ctx context.Context, call *runs.Call) (struct{}, error) {
				return struct{}{}, b.desk.Act(ctx, job.Conversation, provider.Action{
					Kind: a.Kind, Object: a.Object, Text: a.Text, IdempotencyKey: call.IdempotencyKey,
				})
			}, runs.With{Summary: a.Text})
			if isUnknown(err) {
				// Nobody knows whether it happened. It is not done again, and the customer is answered all the same; the
				// error below stops the job for a person to look at.
				unknown = errors.Join(unknown, err)
			} else if err != nil {
				return err
			}
		}
		err = runs.FromContext(ctx).Once(ctx, runs.Effect{
			Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open, Summary: plan.reply,
		}, func(ctx context.Context, call *runs.Call) error {
			return b.desk.Reply(ctx, job.Conversation, provider.Reply{
				Text: plan.reply, Answers: open, IdempotencyKey: call.IdempotencyKey,
			})
		})
		return errors.Join(unknown, err)
	})
}

func isUnknown(err error) bool {
	if outcome, ok := errors.AsType[*runs.OutcomeError](err); ok {
		return outcome.Outcome == runs.OutcomeAmbiguous
	}
	return errors.Is(err, runs.ErrAmbiguous)
}

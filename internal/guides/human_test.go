package guides

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/runs"
)

// helpdeskEvent is what a help desk's webhook says about a new message in a thread.
type helpdeskEvent struct {
	ID             string // of the event, the same when it is sent again
	Thread         string
	Author         string
	AnswersMessage string // the customer's message that it answers
	IdempotencyKey string // that our own bot sent with it, if it was the bot
}

// onHelpdeskEvent tells the ledger what was written in a thread, by a person or by the bot.
func onHelpdeskEvent(ctx context.Context, keeper *runs.Keeper, e helpdeskEvent) error {
	_, err := keeper.Report(ctx, e.Thread, runs.Write{
		ID: e.ID, Intent: "reply", Answers: []string{e.AnswersMessage}, By: e.Author,
		IdempotencyKey: e.IdempotencyKey, // one of our own effects: its echo, news to nobody
	})
	return err
}

func Example_humanTakeover() {
	keeper := newKeeper()
	defer keeper.Close()
	ctx := context.Background()
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", Inbound: []string{"m1"}, Reads: runs.AfterBegin}
	verdict := keeper.Deliver(ctx, job, runs.Delivery{}, func(ctx context.Context) error {
		// While the model thinks, a person answers.
		if err := onHelpdeskEvent(ctx, keeper, helpdeskEvent{ID: "e1", Thread: "thread-7", Author: "anna", AnswersMessage: "m1"}); err != nil {
			return err
		}
		err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(context.Context, *runs.Call) error {
			fmt.Println("the bot answers as well")
			return nil
		})
		fmt.Println(err)
		return err
	})
	fmt.Println(verdict.Action, verdict.Note)
	// Output:
	// fencedrun: reply refused: conversation_changed (1 in the way)
	// done nothing left to do: fencedrun: reply refused: conversation_changed (1 in the way)
}

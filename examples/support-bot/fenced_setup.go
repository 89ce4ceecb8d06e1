package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/riverqueue/river/rivertype"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// fenced is the bot with fencedrun.
type fenced struct {
	ledger ledger.Store
	keeper *runs.Keeper
	asynq  *asynqruns.Adapter
	river  rivertype.Plugin
}

func openFenced(ctx context.Context, place armPlace, emit func(proc.Event)) (_ arm, err error) {
	f := &fenced{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.ledger, err = openLedger(ctx, place); err != nil {
		return nil, err
	}
	// In production the defaults are right. Here a minute is all there is.
	f.keeper, err = runs.New(f.ledger, &runs.Config{
		Lease:         ledgerLease,
		EffectTimeout: effectTimeout,
		ClaimDeadline: 2 * effectTimeout,
		Quiet:         effectTimeout,
		Observer: func(_ context.Context, e runs.Event) {
			if text := describe(e); text != "" {
				emit(proc.Event{Kind: proc.Noted, Job: e.Run.ID, Conversation: e.Conversation, Message: e.Inbound, Text: text, At: time.Now()})
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if f.asynq, err = asynqruns.New(f.keeper, &asynqruns.Config{Reads: runs.AfterBegin, Inbound: asynqruns.FromHeaders}); err != nil {
		return nil, err
	}
	if f.river, err = riverruns.NewPlugin(f.keeper, &riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs}); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *fenced) Additions() queue.Additions {
	return queue.Additions{
		AsynqConfig:     f.asynq.Config,
		AsynqMiddleware: []asynq.MiddlewareFunc{f.asynq.Middleware},
		AsynqTask: func(ctx context.Context, job queue.Job, kind string, payload []byte, options ...asynq.Option) (*asynq.Task, error) {
			about := asynqruns.Conversation{ID: job.Conversation, Inbound: []string{job.Message}}
			return f.asynq.NewTask(ctx, kind, payload, about, options...)
		},
		RiverPlugins: []rivertype.Plugin{f.river},
	}
}

func (f *fenced) Handler(b *bot) queue.Handler { return b.answer }

// Settled waits for the effects that are under way: one whose worker was killed becomes unknown when its deadline passes.
func (f *fenced) Settled(ctx context.Context, conversations []string) (bool, error) {
	unresolved, err := f.unresolved(ctx, conversations)
	return !slices.ContainsFunc(unresolved, func(u runs.UnresolvedEffect) bool { return u.Effect.State() == runs.Pending }), err
}

// Books lists what is unknown and what is open, the way an operator would look.
func (f *fenced) Books(ctx context.Context, conversations []string) (books, error) {
	known := books{Accounted: map[string]string{}}
	unresolved, err := f.unresolved(ctx, conversations)
	if err != nil {
		return known, err
	}
	open, err := f.keeper.Open(ctx, 0, 0)
	if err != nil {
		return known, err
	}
	for _, message := range open {
		if slices.Contains(conversations, message.Conversation) {
			known.Accounted[message.ID] = "listed as open"
		}
	}
	for _, u := range unresolved {
		call := u.Effect.Deciding()
		known.Unknown = append(known.Unknown, fmt.Sprintf("%s: %s of %s", u.Conversation, u.Effect.Intent, u.Effect.Key))
		for _, id := range call.Answers {
			known.Accounted[id] = "its answer is unknown"
		}
	}
	return known, nil
}

// unresolved returns the pending and the unknown effects.
func (f *fenced) unresolved(ctx context.Context, conversations []string) ([]runs.UnresolvedEffect, error) {
	all, err := f.keeper.Unresolved(ctx, 0, 0)
	return slices.DeleteFunc(all, func(u runs.UnresolvedEffect) bool {
		return !slices.Contains(conversations, u.Conversation)
	}), err
}

func (f *fenced) Close() error {
	switch {
	case f.keeper != nil:
		return f.keeper.Close() // and the ledger with it
	case f.ledger != nil:
		return f.ledger.Close()
	}
	return nil
}

// describe says in the transcript what the library did; "" is not worth a line.
func describe(e runs.Event) string {
	about := e.Effect.Intent
	switch e.Kind {
	case runs.EventResumed:
		return fmt.Sprintf("resumed by redelivery: delivery %d of the same run", e.Delivery)
	case runs.EventRefused:
		switch {
		case about == "":
			return strings.TrimSpace(fmt.Sprintf("refused: %s %s", e.Reason, e.Text))
		case e.Reason == runs.ReasonConversationChanged || e.Reason == runs.ReasonAlreadyAnswered:
			return fmt.Sprintf("refused: %s, because of %s; it reads again", about, e.Reason)
		default:
			return fmt.Sprintf("refused: %s, because of %s", about, e.Reason)
		}
	case runs.EventReplayed:
		return fmt.Sprintf("replayed: %s was done before, its result is reused", about)
	case runs.EventEnded:
		if e.Text == "superseded" {
			return "acknowledged: a newer job took care of it"
		}
		return ""
	case runs.EventFinishedAgain:
		return "finished before: acknowledged without work"
	case runs.EventComeBack:
		return fmt.Sprintf("comes back later, no attempt spent (%s)", e.Reason)
	case runs.EventFailed:
		return fmt.Sprintf("failed: %s is known not to have happened", about)
	case runs.EventAmbiguous, runs.EventLapsed:
		return fmt.Sprintf("unknown: nobody knows whether %s happened; it is not done again", about)
	case runs.EventLate:
		return fmt.Sprintf("late: what became of %s is known after all", about)
	case runs.EventParked:
		return fmt.Sprintf("parked for a person to look at (%s)", e.Reason)
	case runs.EventUnanswered:
		return "ended while this message is open"
	case runs.EventLeaseLost:
		return "its handler is told to stop: it may not write any more"
	case runs.EventDuplicate, runs.EventNotRecorded, runs.EventVanished, runs.EventLedgerError:
		return fmt.Sprintf("%s: %s %s", e.Kind, about, e.Text)
	default:
		return ""
	}
}

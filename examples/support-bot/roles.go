package main

import (
	"context"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/transcript"
)

// Processes that the program starts.
const (
	roleProvider = "provider"
	roleWorker   = "worker"
)

func serveProvider(ctx context.Context, config provider.Config, emit func(proc.Event)) error {
	return provider.Serve(ctx, config, func(base string) { emit(proc.Event{Kind: proc.Ready, Text: base}) })
}

// workerConfig is what a worker process is told.
type workerConfig struct {
	Arm           armPlace
	Queue         queue.Spec
	Desk          string // base URL of the provider
	Conversations []transcript.Conversation
	N             int
	Seed          uint64
}

func serveWorker(ctx context.Context, config workerConfig, emit func(proc.Event)) (err error) {
	arm, err := openArm(ctx, config.Arm, emit)
	if err != nil {
		return err
	}
	defer func() {
		if closing := arm.Close(); err == nil {
			err = closing
		}
	}()
	desk := provider.NewClient(config.Desk, deskDeadline)
	defer desk.Close()
	bot := newBot(desk, transcript.Scripts(config.Conversations, config.N), config.Seed, emit)
	watch := queue.Watch{
		Began: func(id string, job queue.Job) {
			emit(proc.Event{Kind: proc.Began, Job: id, Conversation: job.Conversation, Message: job.Message})
		},
		Ended: func(id string, job queue.Job, err error) {
			event := proc.Event{Kind: proc.Ended, Job: id, Conversation: job.Conversation, Message: job.Message}
			if err != nil {
				event.Text = err.Error()
			}
			emit(event)
		},
	}
	return queue.Work(ctx, config.Queue, arm.Additions(), watch, arm.Handler(bot), func() { emit(proc.Event{Kind: proc.Ready}) })
}

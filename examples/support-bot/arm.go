package main

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
)

// The two ways to run the bot.
const (
	armWithout = "without"
	armWith    = "with"
)

// arm is one way to run the bot. The program and each of its workers open one.
type arm interface {
	// Additions is what is wrapped around the queue, where jobs are enqueued as well as where they are worked off.
	Additions() queue.Additions
	// Handler is the bot's handler.
	Handler(*bot) queue.Handler
	// Settled reports whether the arm's own books about these conversations are at rest. The program asks when the queue is
	// empty, and goes on only when they are.
	Settled(ctx context.Context, conversations []string) (bool, error)
	// Books returns what the arm itself knows in the end, about these conversations.
	Books(ctx context.Context, conversations []string) (books, error)
	Close() error
}

// books are what an arm knows of its own work. They never decide what is a duplicate; they say which messages without an
// answer are not lost.
type books struct {
	Unknown   []string          // effects whose outcome nobody knows, a line each
	Accounted map[string]string // messages whose answer is unknown, or that are listed as open, by id: which of the two
}

// armPlace is where an arm keeps what it keeps. All processes of one arm have the same.
type armPlace struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
	// Server is the URL of the Postgres or Redis that keeps the ledger, "" for a file in Folder;
	// Ledger is its schema or the beginning of its keys there.
	Server string `json:"server,omitempty"`
	Ledger string `json:"ledger,omitempty"`
}

// arms opens them. emit tells the program what happened, for the transcript: an event of kind proc.Noted.
var arms = map[string]func(ctx context.Context, place armPlace, emit func(proc.Event)) (arm, error){
	armWithout: openUnfenced,
	armWith:    openFenced,
}

func openArm(ctx context.Context, place armPlace, emit func(proc.Event)) (arm, error) {
	open := arms[place.Name]
	if open == nil {
		return nil, fmt.Errorf("no arm %q", place.Name)
	}
	return open(ctx, place, emit)
}

package asynqruns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/adapters/internal/envelope"
	"github.com/fencedrun/fencedrun/runs"
)

// Conversation is what a producer says about a task.
type Conversation struct {
	// ID of the conversation that the task works on. At most 512 bytes.
	ID string

	// Inbound are the ids of the messages that the task brings. One of Inbound
	// and NoInbound must be given.
	Inbound []string
	// NoInbound says that the task brings no messages.
	NoInbound bool

	// Stamp is a ledger stamp ([runs.Keeper.Stamp]) taken before the producer
	// read the conversation for the payload. It is the task's order, and with
	// runs.FromPayload also what the payload has seen. 0: [Adapter.NewTask] takes
	// a stamp for the order, and the payload counts as having seen nothing.
	Stamp int64

	// Order says which of two tasks is newer by something of the producer's own,
	// such as the number of the message in its thread. Defaults to the stamp.
	Order runs.Order

	// Nonce tells this task from another one with the same id, type and payload.
	// It must be the same when the same enqueueing is repeated. Defaults to a
	// random one, which is right for whoever repeats it with the same *asynq.Task.
	Nonce string
}

// NewTask returns a task for [asynq.Client.Enqueue] that carries c in its
// headers. It takes a ledger stamp if c has neither Stamp nor Order, which is one
// write to the ledger.
//
// Enqueueing the returned task twice under one asynq.TaskID is one piece of work;
// making two tasks is two.
func (a *Adapter) NewTask(ctx context.Context, typename string, payload []byte, c Conversation, opts ...asynq.Option) (*asynq.Task, error) {
	if c.ID == "" {
		return nil, errNoID
	}
	if c.Stamp == 0 && c.Order == (runs.Order{}) {
		stamp, err := a.keeper.Stamp(ctx, c.ID)
		if err != nil {
			return nil, fmt.Errorf("fencedrun: asynqruns: stamp task: %w", err)
		}
		// Not c.Stamp: what was read for the payload was read before.
		c.Order = runs.Order{Source: runs.StampSource, Number: stamp}
	}
	if c.Nonce == "" {
		c.Nonce = runs.SeamOf(a.keeper).NewID()
	}
	e, err := c.envelope()
	if err != nil {
		return nil, err
	}
	for _, opt := range opts {
		if d, ok := opt.Value().(time.Duration); ok && opt.Type() == asynq.RetentionOpt {
			e.Kept = d > 0
		}
	}
	headers, err := e.Headers()
	if err != nil {
		return nil, err
	}
	return asynq.NewTaskWithHeaders(typename, payload, headers, opts...), nil
}

var errNoID = errors.New("fencedrun: asynqruns: Conversation.ID is empty")

// Headers returns the headers that a task needs, for asynq.NewTaskWithHeaders in
// producers that have no keeper. Without a Stamp and an Order the task has no
// order: it supersedes nobody and is superseded by nobody. Without a Nonce the
// task has none: give one wherever task ids can be used again.
func Headers(c Conversation) (map[string]string, error) {
	e, err := c.envelope()
	if err != nil {
		return nil, err
	}
	return e.Headers()
}

func (c *Conversation) envelope() (envelope.Envelope, error) {
	e := envelope.Envelope{
		Conversation: c.ID, Inbound: c.Inbound, NoInbound: c.NoInbound,
		Source: c.Order.Source, Number: c.Order.Number, AsOf: c.Stamp, Nonce: c.Nonce,
	}
	switch {
	case c.ID == "":
		return e, errNoID
	case len(c.Inbound) == 0 && !c.NoInbound:
		return e, errors.New("fencedrun: asynqruns: Conversation.Inbound is not chosen: name the messages, or say NoInbound")
	case c.Stamp != 0 && c.Order == (runs.Order{}):
		e.Source, e.Number = runs.StampSource, c.Stamp
	}
	err := e.Check()
	return e, err
}

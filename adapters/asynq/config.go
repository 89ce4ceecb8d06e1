package asynqruns

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/runs"
)

// Config holds an adapter's settings. Inbound and Reads have no default.
type Config struct {
	// Conversation names the conversation of a task that was made without
	// [Adapter.NewTask] and [Headers], from its type and payload. Such a task has
	// no order: it supersedes nobody and is superseded by nobody. Returning ""
	// means that the task has no conversation. Defaults to none.
	Conversation func(task *asynq.Task) string

	// Inbound says where the ids of the messages that a task brings come from:
	// [FromHeaders], [NoInbound] or an [InboundFunc]. Without them, nothing
	// notices a message that nobody answered. There is no default.
	Inbound Inbound

	// Mode says how runs share a conversation. Defaults to runs.Supersede.
	Mode runs.Mode

	// Reads says when handlers read the conversation: runs.AfterBegin or
	// runs.FromPayload. The wrong choice duplicates, blocks or loses, so there is
	// no default.
	Reads runs.Reads

	// ReplayOnly is for handlers that cannot name stable keys for their effects:
	// a run that has already written is not entered again when its task is
	// redelivered. Defaults to false.
	ReplayOnly bool

	// Revoke drops a superseded or cancelled task with asynq.RevokeTask instead
	// of nil. Asynq then logs it and calls its ErrorHandler, and deletes the task
	// even if it has a Retention. Defaults to false.
	Revoke bool

	// TrustTaskIDs says, of tasks without the headers of this package, that an id
	// chosen by their producer stands for one piece of work for ever: a task
	// with the id, type and payload of a finished one is acknowledged without
	// entering the handler, with the event finished_again each time. Without it,
	// such a task is an error, because asynq lets an id be used again and nothing
	// tells the same work from a redelivery. An id in the form that asynq makes up
	// itself (a random UUID) does not need it. Defaults to false.
	TrustTaskIDs bool

	// Unfenced lets tasks without a conversation through to their handler
	// without a run. Without it such a task is an error. Defaults to false.
	Unfenced bool
}

// Inbound says where inbound ids come from: [FromHeaders], [NoInbound] or an
// [InboundFunc].
type Inbound interface {
	check() error
}

// InboundSource is an [Inbound] without a func.
type InboundSource int

const (
	// FromHeaders takes what the producer gave to [Adapter.NewTask] or
	// [Headers]. A task without their headers brings no messages.
	FromHeaders InboundSource = iota + 1
	// NoInbound says that tasks bring no messages.
	NoInbound
)

func (s InboundSource) check() error {
	if s != FromHeaders && s != NoInbound {
		return fmt.Errorf("fencedrun: asynqruns: Config.Inbound is InboundSource(%d): want FromHeaders, NoInbound or an InboundFunc", s)
	}
	return nil
}

// InboundFunc returns the ids of the messages that a task brings; none means
// that it brings none.
type InboundFunc func(task *asynq.Task) ([]string, error)

func (f InboundFunc) check() error {
	if f == nil {
		return errors.New("fencedrun: asynqruns: Config.Inbound is a nil InboundFunc")
	}
	return nil
}

// Adapter makes asynq's tasks fenced runs. Make one per keeper with [New]; it may
// be used by many goroutines.
type Adapter struct {
	keeper *runs.Keeper
	config Config
	wired  atomic.Bool // Adapter.Config was called
}

// New returns an adapter. Settings that are missing, or cannot work together, are
// an error that names them.
func New(keeper *runs.Keeper, config *Config) (*Adapter, error) {
	if keeper == nil {
		return nil, errors.New("fencedrun: asynqruns: New: keeper is nil")
	}
	if config == nil {
		config = &Config{}
	}
	a := &Adapter{keeper: keeper, config: *config}
	if err := a.config.check(); err != nil {
		return nil, err
	}
	return a, nil
}

func (c *Config) check() error {
	if c.Inbound == nil {
		return errors.New("fencedrun: asynqruns: Config.Inbound is not chosen: FromHeaders, NoInbound or an InboundFunc")
	}
	if err := c.Inbound.check(); err != nil {
		return err
	}
	switch c.Mode {
	case "", runs.Supersede, runs.Exclusive:
	default:
		return fmt.Errorf("fencedrun: asynqruns: Config.Mode is %q: want runs.Supersede or runs.Exclusive", c.Mode)
	}
	switch c.Reads {
	case runs.AfterBegin, runs.FromPayload:
		return nil
	case "":
		return errors.New("fencedrun: asynqruns: Config.Reads is not chosen: runs.AfterBegin or runs.FromPayload")
	}
	return fmt.Errorf("fencedrun: asynqruns: Config.Reads is %q: want runs.AfterBegin or runs.FromPayload", c.Reads)
}

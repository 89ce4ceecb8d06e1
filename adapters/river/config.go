package riverruns

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

// Config holds a plugin's settings. Inbound and Reads have no default. Clients
// that insert and clients that work should have the same.
type Config struct {
	// CancelDropped drops a superseded or cancelled job with JobCancel instead of
	// completing it, for those who want to see it so. Defaults to false.
	CancelDropped bool

	// Conversation names the conversation of a job that was inserted without this
	// plugin. Returning "" means that the job has none. Defaults to none.
	Conversation func(job *rivertype.JobRow) string

	// Inbound says where the ids of the messages that a job brings come from:
	// [FromArgs], [NoInbound] or an [InboundFunc]. Without them, nothing notices
	// a message that nobody answered. There is no default.
	Inbound Inbound

	// Logger receives warnings about jobs whose settings do not go together with
	// fencing. Defaults to none.
	Logger *slog.Logger

	// Mode says how runs share a conversation. Defaults to runs.Supersede.
	Mode runs.Mode

	// Reads says when workers read the conversation: runs.AfterBegin or
	// runs.FromPayload. The wrong choice duplicates, blocks or loses, so there is
	// no default.
	Reads runs.Reads

	// ReplayOnly is for workers that cannot name stable keys for their effects: a
	// run that has already written is not entered again when its job is
	// redelivered. Defaults to false.
	ReplayOnly bool

	// Schema must be the client's Schema if that is set: job ids are unique per
	// schema. Two databases on one ledger need different values, whatever their
	// schemas are called. Changing it makes every job a new run. Defaults to
	// "public".
	Schema string

	// Unfenced lets jobs without a conversation through to their worker without a
	// run. Without it such a job is an error. Defaults to false.
	Unfenced bool
}

// Inbound says where inbound ids come from: [FromArgs], [NoInbound] or an
// [InboundFunc].
type Inbound interface {
	check() error
}

// InboundSource is an [Inbound] without a func.
type InboundSource int

const (
	// FromArgs takes what the method Inbound() []string of the job's args gave
	// when the job was inserted.
	FromArgs InboundSource = iota + 1
	// NoInbound says that jobs bring no messages.
	NoInbound
)

func (s InboundSource) check() error {
	if s != FromArgs && s != NoInbound {
		return fmt.Errorf("fencedrun: riverruns: Config.Inbound is InboundSource(%d): want FromArgs, NoInbound or an InboundFunc", s)
	}
	return nil
}

// InboundFunc returns the ids of the messages that a job brings; none means that
// it brings none.
type InboundFunc func(job *rivertype.JobRow) ([]string, error)

func (f InboundFunc) check() error {
	if f == nil {
		return errors.New("fencedrun: riverruns: Config.Inbound is a nil InboundFunc")
	}
	return nil
}

// Plugin makes River's jobs fenced runs. Make one per keeper with [NewPlugin]; it
// may be used by several clients.
type Plugin struct {
	river.PluginDefaults

	keeper  *runs.Keeper
	config  Config
	stamper *Stamper
	at      fetched
	warned  warnings
}

var (
	_ rivertype.Plugin           = (*Plugin)(nil)
	_ rivertype.WorkerMiddleware = (*Plugin)(nil)
	_ rivertype.HookInsertBegin  = (*Plugin)(nil)
	_ rivertype.HookWorkEnd      = (*Plugin)(nil)
)

// NewPlugin returns a plugin. Settings that are missing, or cannot work together,
// are an error that names them.
func NewPlugin(keeper *runs.Keeper, config *Config) (*Plugin, error) {
	if keeper == nil {
		return nil, errors.New("fencedrun: riverruns: NewPlugin: keeper is nil")
	}
	if config == nil {
		config = &Config{}
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	p := &Plugin{keeper: keeper, config: *config, stamper: newStamper(config, runs.SeamOf(keeper))}
	if p.config.Schema == "" {
		p.config.Schema = "public"
	}
	return p, nil
}

func (c *Config) check() error {
	if c.Inbound == nil {
		return errors.New("fencedrun: riverruns: Config.Inbound is not chosen: FromArgs, NoInbound or an InboundFunc")
	}
	if err := c.Inbound.check(); err != nil {
		return err
	}
	switch c.Mode {
	case "", runs.Supersede, runs.Exclusive:
	default:
		return fmt.Errorf("fencedrun: riverruns: Config.Mode is %q: want runs.Supersede or runs.Exclusive", c.Mode)
	}
	switch c.Reads {
	case runs.AfterBegin, runs.FromPayload:
	case "":
		return errors.New("fencedrun: riverruns: Config.Reads is not chosen: runs.AfterBegin or runs.FromPayload")
	default:
		return fmt.Errorf("fencedrun: riverruns: Config.Reads is %q: want runs.AfterBegin or runs.FromPayload", c.Reads)
	}
	if c.Schema == "" {
		return nil
	}
	return key.ValidateName("Config.Schema", c.Schema, key.MaxQueue-len(queuePrefix))
}

// Check reports what in a client's configuration does not go together with the
// plugin: it must be the first of Plugins, Schema must be the plugin's, and
// MaxAttempts must end within the keeper's retention unless there is a RetryPolicy,
// whose delays nobody knows. Call it before river.NewClient.
func (p *Plugin) Check(config *river.Config) error {
	if config == nil {
		return errors.New("fencedrun: riverruns: Check: config is nil")
	}
	if len(config.Plugins) == 0 || config.Plugins[0] != rivertype.Plugin(p) {
		return errors.New("fencedrun: riverruns: the plugin must be the first of Config.Plugins: one before it can change what River sees of a stale delivery")
	}
	if config.Schema != "" && config.Schema != p.config.Schema {
		return fmt.Errorf("fencedrun: riverruns: the client's Config.Schema is %q, the plugin's %q: ids of two schemas would be taken for one", config.Schema, p.config.Schema)
	}
	if limit := p.maxAttempts(); config.MaxAttempts > limit && config.RetryPolicy == nil {
		return fmt.Errorf("fencedrun: riverruns: the client's Config.MaxAttempts is %d: with River's default retry policy its last attempt comes after the keeper's Config.Retention (%v), which covers %d", config.MaxAttempts, p.keeper.Config().Retention, limit)
	}
	return nil
}

package riverruns

import (
	"context"
	"fmt"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/envelope"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/runs"
)

// Stamper is the part of a [Plugin] that clients need which only insert jobs: it
// has no ledger.
type Stamper struct {
	river.PluginDefaults

	inbound  Inbound
	unfenced bool
	newID    func() string
}

var _ rivertype.HookInsertBegin = (*Stamper)(nil)

// NewStamper returns a stamper. config must be that of the plugin of the clients
// that work the jobs.
func NewStamper(config *Config) (*Stamper, error) {
	if config == nil {
		config = &Config{}
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	return newStamper(config, seam.Real()), nil
}

func newStamper(config *Config, s *seam.Seam) *Stamper {
	return &Stamper{inbound: config.Inbound, unfenced: config.Unfenced, newID: s.NewID}
}

// InsertBegin implements rivertype.HookInsertBegin, see [Stamper.InsertBegin].
func (p *Plugin) InsertBegin(ctx context.Context, params *rivertype.JobInsertParams) error {
	return p.stamper.InsertBegin(ctx, params)
}

// InsertBegin implements rivertype.HookInsertBegin. It stamps what the job's args
// say into the job's metadata, under the key "fencedrun:job". Args without a
// method Conversation() string are left alone.
func (s *Stamper) InsertBegin(_ context.Context, params *rivertype.JobInsertParams) error {
	args, ok := params.Args.(interface{ Conversation() string })
	if !ok {
		return nil
	}
	e := envelope.Envelope{Conversation: args.Conversation()}
	if e.Conversation == "" && s.unfenced {
		return nil
	}
	inbound, ok := params.Args.(interface{ Inbound() []string })
	switch {
	case ok:
		e.Inbound = inbound.Inbound()
		e.NoInbound = len(e.Inbound) == 0
	case s.inbound == FromArgs:
		return fmt.Errorf("fencedrun: riverruns: args of kind %q have no method Inbound() []string, and Config.Inbound is FromArgs", params.Kind)
	}
	if args, ok := params.Args.(interface{ Order() runs.Order }); ok {
		order := args.Order()
		e.Source, e.Number = order.Source, order.Number
	}
	if args, ok := params.Args.(interface{ AsOf() int64 }); ok {
		e.AsOf = args.AsOf()
	}
	e.Nonce = s.newID()
	if err := e.Check(); err != nil {
		return err
	}
	metadata, err := e.Stamp(params.Metadata)
	if err != nil {
		return err
	}
	params.Metadata = metadata
	return nil
}

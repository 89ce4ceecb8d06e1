package riverruns

import (
	"context"
	"fmt"

	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/adapters/internal/envelope"
	"github.com/fencedrun/fencedrun/runs"
)

// InsertBegin implements rivertype.HookInsertBegin. It stamps what the job's args
// say into the job's metadata, under the key "fencedrun:job". Args without a
// method Conversation() string are left alone.
func (p *Plugin) InsertBegin(_ context.Context, params *rivertype.JobInsertParams) error {
	args, ok := params.Args.(interface{ Conversation() string })
	if !ok {
		return nil
	}
	e := envelope.Envelope{Conversation: args.Conversation()}
	if e.Conversation == "" && p.config.Unfenced {
		return nil
	}
	inbound, ok := params.Args.(interface{ Inbound() []string })
	switch {
	case ok:
		e.Inbound = inbound.Inbound()
		e.NoInbound = len(e.Inbound) == 0
	case p.config.Inbound == FromArgs:
		return fmt.Errorf("fencedrun: riverruns: args of kind %q have no method Inbound() []string, and Config.Inbound is FromArgs", params.Kind)
	}
	if args, ok := params.Args.(interface{ Order() runs.Order }); ok {
		order := args.Order()
		e.Source, e.Number = order.Source, order.Number
	}
	if args, ok := params.Args.(interface{ AsOf() int64 }); ok {
		e.AsOf = args.AsOf()
	}
	e.Nonce = runs.SeamOf(p.keeper).NewID()
	if err := e.Check(); err != nil {
		return fmt.Errorf("riverruns: insert job of kind %q: %w", params.Kind, err)
	}
	metadata, err := e.Stamp(params.Metadata)
	if err != nil {
		return err
	}
	params.Metadata = metadata
	return nil
}

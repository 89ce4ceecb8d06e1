package runs

import (
	"context"
	"log/slog"

	"github.com/fencedrun/fencedrun/fence"
)

// Event is what an observer is told, after it is true. Which kinds there are, and what each
// means, is listed with the EventKind constants of package fence.
type Event struct {
	Kind         EventKind
	Conversation string
	Run          RunKey // zero when no run is concerned
	Delivery     int64
	Effect       EffectRef
	Call         int
	Inbound      string
	Reason       Reason
	// Text is for people. It holds no key, summary, params or result.
	Text string
	// Err is set for ledger_error and not_recorded.
	Err error
}

// emit hands the ledger's events to whoever listens.
func (k *Keeper) emit(ctx context.Context, conversation string, events []fence.Event) {
	if k.config.Observer == nil && k.config.Logger == nil {
		return
	}
	for _, e := range events {
		k.tell(ctx, Event{
			Kind: e.Kind, Conversation: conversation, Run: e.Run, Delivery: e.Delivery,
			Effect: EffectRef{ID: e.Effect, Intent: e.Intent, Key: e.Key}, Call: e.Call,
			Inbound: e.Inbound, Reason: e.Reason, Text: e.Text,
		})
	}
}

func (k *Keeper) tell(ctx context.Context, e Event) {
	if k.config.Observer != nil {
		k.config.Observer(ctx, e)
	}
	if k.config.Logger != nil {
		logEvent(ctx, k.config.Logger, e, false)
	}
}

// SlogObserver returns an observer that logs every event to logger, under the message
// "fencedrun: <kind>". What a person must know (duplicate, late, ambiguous, lapsed, vanished,
// not_recorded, ledger_error, unanswered, parked) is a warning, duplicate an error, what was
// decided about an unknown outcome (resolved) information; the rest is debug. Keys and message ids are logged only when keys is true; summaries never.
func SlogObserver(logger *slog.Logger, keys bool) func(context.Context, Event) {
	return func(ctx context.Context, e Event) { logEvent(ctx, logger, e, keys) }
}

func logEvent(ctx context.Context, logger *slog.Logger, e Event, keys bool) {
	level := levelOf(e.Kind)
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	add("conversation", e.Conversation)
	if e.Run != (RunKey{}) {
		attrs = append(attrs, slog.String("queue", e.Run.Queue), slog.String("job", e.Run.ID))
	}
	if e.Delivery > 0 {
		attrs = append(attrs, slog.Int64("delivery", e.Delivery))
	}
	add("effect", e.Effect.ID)
	add("intent", e.Effect.Intent)
	if keys {
		add("key", e.Effect.Key)
		add("inbound", e.Inbound)
	}
	if e.Call > 0 {
		attrs = append(attrs, slog.Int("call", e.Call))
	}
	add("reason", string(e.Reason))
	add("text", e.Text)
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	logger.LogAttrs(ctx, level, "fencedrun: "+string(e.Kind), attrs...) //nolint:sloglint // the kinds are a short list of constants
}

func levelOf(kind EventKind) slog.Level {
	switch kind {
	case fence.EventDuplicate:
		return slog.LevelError
	case fence.EventLate, fence.EventAmbiguous, fence.EventLapsed, fence.EventVanished, fence.EventNotRecorded,
		fence.EventLedgerError, fence.EventUnanswered, fence.EventParked, fence.EventLeaseLost, fence.EventInboundDropped:
		return slog.LevelWarn
	case fence.EventResolved:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

package runs

import (
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// Words shared with package fence; see there for each.
type (
	// Order says which of two runs is newer: a number from a named source. Orders of
	// different sources, equal ones and the zero Order are peers (rule S3.4).
	Order = fence.Order
	// Mode says how the runs of one conversation share it (rules S4.6, S4.7).
	Mode = fence.Mode
	// Reads says when a handler reads the conversation (rule S4.8).
	Reads = fence.Reads
	// Policy says which changes of the conversation refuse an effect (rule S5.3).
	Policy = fence.Policy
	// Reason says why something was refused or stopped.
	Reason = fence.Reason
	// State is what is known of an effect or call.
	State = fence.State
	// RunKey names a run: the id space of its queue and the job's id.
	RunKey = fence.RunKey
	// EventKind names what an observer is told.
	EventKind = fence.EventKind
	// Conflict is one effect or report that stands in the way.
	Conflict = fence.Conflict
)

// What the ledger keeps. Records are read-only.
type (
	// RunRecord is what the ledger keeps of a run.
	RunRecord = fence.Run
	// EffectRecord is what the ledger keeps of an effect: every call of it, one by one.
	EffectRecord = fence.Effect
	// CallRecord is what the ledger keeps of one call.
	CallRecord = fence.Call
	// InboundRecord is what the ledger keeps of a customer's message.
	InboundRecord = fence.Inbound
	// ReportRecord is what the ledger keeps of a write that something else made.
	ReportRecord = fence.Report
	// History is everything a conversation remembers.
	History = ledger.History
)

// The modes of a run.
const (
	Supersede = fence.Supersede // a newer run takes over; the default
	Exclusive = fence.Exclusive // one holder at a time, the others come back
)

// When a handler reads the conversation. There is no default: the wrong choice duplicates,
// blocks or loses (rule S4.8).
const (
	// AfterBegin: the handler reads the conversation after it was entered, or not at all.
	AfterBegin = fence.AfterBegin
	// FromPayload: the job's payload carries a snapshot of the conversation, and never gets
	// fresher.
	FromPayload = fence.FromPayload
)

// The conflict policies of an effect.
const (
	AnyChange  = fence.AnyChange  // any write of somebody else conflicts; the default
	SameIntent = fence.SameIntent // only writes of the same intent
	NoChange   = fence.NoChange   // none; waives rule S11.4 for this effect
)

// EffectKey says which business object an effect is about: a message id, an order and line.
// It is never a model's wording, a tool-call id or a retry number.
type EffectKey = key.Key

// ID returns the key that is a single string, such as a message id. For an answering intent
// it also says which message the effect answers (rule S5.4).
func ID(s string) EffectKey { return key.ID(s) }

// Key returns a key of named parts: Key("order", order, "line", 2). Values are non-empty
// strings, integers or bools; anything else makes a key that every use of it refuses, naming
// the part.
func Key(name string, value any, more ...any) EffectKey {
	return key.New(append([]any{name, value}, more...)...)
}

// ParseKey returns the key that EffectRef.Key, Taken.Effect.Key or a record's Key is the text
// of: to call an effect again with the same key, or to look one up.
func ParseKey(text string) (EffectKey, error) { return key.Parse(text) }

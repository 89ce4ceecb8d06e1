package runs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// StampSource is the Order source of ledger stamps.
const StampSource = "ledger"

// Stamp takes a ledger stamp: a fresh number of the conversation that serves as order, with
// StampSource, and as as-of of a snapshot that is read after the stamp was taken (rule S1).
func (k *Keeper) Stamp(ctx context.Context, conversation string) (int64, error) {
	if err := k.ready(conversation); err != nil {
		return 0, err
	}
	n, err := k.ledger.Stamp(ctx, conversation)
	if err != nil {
		return 0, k.failed(ctx, Job{Conversation: conversation}, "stamp", err)
	}
	return n, nil
}

func (k *Keeper) ready(conversation string) error {
	if err := k.open(); err != nil {
		return err
	}
	return key.ValidateName("conversation", conversation, key.MaxConversation)
}

// CancelOptions say who cancels, why, and what becomes of the job's messages.
type CancelOptions struct {
	By, Why string
	// Dismiss closes the job's open messages without an answer; else they stay open.
	Dismiss bool
}

// Cancel cancels a run, from any process, also before it began (rule S10.3): its handler's ctx
// is cancelled at its next heartbeat, and it may claim nothing any more. It reports false
// when the run has ended already.
func (k *Keeper) Cancel(ctx context.Context, run RunKey, o CancelOptions) (bool, error) {
	if err := k.open(); err != nil {
		return false, err
	}
	if err := checkRunKey(run); err != nil {
		return false, err
	}
	v, err := k.ledger.Cancel(ctx, fence.CancelRequest{Run: run, By: clean(o.By), Why: clean(o.Why), Dismiss: o.Dismiss})
	if err != nil {
		return false, k.failed(ctx, Job{Queue: run.Queue, ID: run.ID}, "cancel", err)
	}
	return v.Cancelled, nil
}

// Write is a write that something else made to a conversation: a human agent's reply, a moved
// ticket (rule S5, outside writes).
type Write struct {
	// ID makes a redelivered webhook one report.
	ID string
	// Intent and Answers say what it did and which messages it answers, if known.
	Intent  string
	Answers []string
	// IdempotencyKey or Reference, when the write carried one of ours, make it the echo of
	// our own effect: it conflicts with nobody, and settles that effect as committed if its
	// outcome was open.
	IdempotencyKey string
	Reference      string
	Summary        string
	By             string
}

// Reported says what a report turned out to be.
type Reported struct {
	Known bool   // it was reported before
	Echo  string // the id of the effect of our own that it echoes, "" if none
}

// Report says that something else wrote to the conversation. Runs that have not caught up
// since are refused conversation_changed, and the messages it answers are closed.
func (k *Keeper) Report(ctx context.Context, conversation string, w Write) (Reported, error) {
	if err := k.ready(conversation); err != nil {
		return Reported{}, err
	}
	if err := key.ValidateName("Write.ID", w.ID, key.MaxJobID); err != nil {
		return Reported{}, err
	}
	if w.Intent != "" {
		if err := key.ValidateName("Write.Intent", w.Intent, key.MaxIntent); err != nil {
			return Reported{}, err
		}
	}
	if err := checkIDs("Write.Answers", w.Answers); err != nil {
		return Reported{}, err
	}
	q := fence.ReportRequest{
		ID: w.ID, Intent: w.Intent, Answers: slices.Clone(w.Answers), Reference: referenceOf(w.Reference),
		Summary: clean(w.Summary), By: clean(w.By),
	}
	if w.IdempotencyKey != "" {
		// Another system's key is no error: then the write is simply not our echo.
		q.Effect, _ = key.EffectOf(w.IdempotencyKey)
	}
	v, err := k.ledger.Report(ctx, conversation, q)
	if err != nil {
		return Reported{}, k.failed(ctx, Job{Conversation: conversation}, "report", err)
	}
	return Reported{Known: v.Known, Echo: v.Echo}, nil
}

// Dismiss closes messages without an answer (rule S4.9) and returns those that were open.
func (k *Keeper) Dismiss(ctx context.Context, conversation string, ids []string, why string) ([]string, error) {
	if err := k.ready(conversation); err != nil {
		return nil, err
	}
	if err := checkIDs("ids", ids); err != nil {
		return nil, err
	}
	v, err := k.ledger.Dismiss(ctx, conversation, ids, clean(why))
	if err != nil {
		return nil, k.failed(ctx, Job{Conversation: conversation}, "dismiss", err)
	}
	return v.Dismissed, nil
}

// Resolution is a person's verdict on an effect whose outcome is unknown (rule S8).
type Resolution struct {
	// Happened says whether it did. "It did not" grants one more call.
	Happened bool
	// By and Note are recorded; Reference is the provider's, if known.
	By, Note  string
	Reference string
	// Value is the effect's value as JSON, which replays return; only with Happened, and at most
	// Config.MaxResult bytes. Defaults to none: then a replay of an effect that has a value gets
	// ErrValueNotKept.
	Value []byte
	// Force decides also while the claim's deadline has not passed. The call may be under
	// way: what it does then is recorded, and a success after "did not happen" raises
	// duplicate.
	Force bool
}

// NotResolvedError is returned when a verdict was refused; its text says why.
type NotResolvedError struct {
	// Why is for people.
	Why string
	// RetryAfter is set when the claim's deadline has not passed.
	RetryAfter time.Duration
}

// Error says why the verdict was refused.
func (e *NotResolvedError) Error() string { return "fencedrun: resolve: refused: " + e.Why }

// Resolve decides an unknown outcome and returns the effect before and after. Committed never
// becomes failed.
func (k *Keeper) Resolve(ctx context.Context, conversation, effectID string, v Resolution) (before, after *EffectRecord, err error) {
	if err := k.ready(conversation); err != nil {
		return nil, nil, err
	}
	if err := key.ValidateName("effect", effectID, key.MaxJobID); err != nil {
		return nil, nil, err
	}
	if v.By == "" {
		return nil, nil, fmt.Errorf("fencedrun: resolve: Resolution.By is empty: say who decides")
	}
	if err := k.checkValue(v); err != nil {
		return nil, nil, err
	}
	verdict, now, err := k.ledger.Resolve(ctx, conversation, fence.ResolveRequest{
		Effect: effectID, Happened: v.Happened, By: clean(v.By), Note: clean(v.Note),
		Reference: referenceOf(v.Reference), Result: v.Value, HasResult: v.Value != nil, Force: v.Force,
	})
	if err != nil {
		return nil, nil, k.failed(ctx, Job{Conversation: conversation}, "resolve", err)
	}
	if verdict.Refused != "" {
		refused := &NotResolvedError{Why: verdict.Refused}
		if verdict.Early {
			refused.RetryAfter = max(verdict.Deadline-now, 0).Duration()
		}
		return verdict.Before, verdict.After, refused
	}
	return verdict.Before, verdict.After, nil
}

// History returns everything that the ledger remembers of a conversation.
func (k *Keeper) History(ctx context.Context, conversation string) (History, error) {
	if err := k.ready(conversation); err != nil {
		return History{}, err
	}
	h, err := k.ledger.History(ctx, conversation)
	if err != nil {
		return h, k.failed(ctx, Job{Conversation: conversation}, "history", err)
	}
	return h, nil
}

// UnresolvedEffect is a pending or ambiguous effect of some conversation.
type UnresolvedEffect struct {
	Conversation string
	Effect       *EffectRecord
	Since        time.Time // when it was claimed, by the ledger's clock
	Age          time.Duration
}

// Unresolved lists the effects that are pending or unknown and were claimed at least older
// ago, oldest first, at most limit of them (0: all).
func (k *Keeper) Unresolved(ctx context.Context, older time.Duration, limit int) ([]UnresolvedEffect, error) {
	if err := k.open(); err != nil {
		return nil, err
	}
	found, now, err := k.ledger.Unresolved(ctx, fence.MillisOf(older), limit)
	if err != nil {
		return nil, k.failed(ctx, Job{}, "unresolved", err)
	}
	list := make([]UnresolvedEffect, len(found))
	for i, f := range found {
		list[i] = unresolvedEffect(f, now)
	}
	return list, nil
}

// EachUnresolved hands over what Unresolved lists, one after the other, until each returns false. After
// an outage of a provider there may be more of them than fit into memory. each may use the keeper.
func (k *Keeper) EachUnresolved(ctx context.Context, older time.Duration, each func(UnresolvedEffect) bool) error {
	if err := k.open(); err != nil {
		return err
	}
	_, err := k.ledger.EachUnresolved(ctx, fence.MillisOf(older), 0, func(e ledger.OpenEffect, now fence.Millis) bool {
		return each(unresolvedEffect(e, now))
	})
	if err != nil {
		return k.failed(ctx, Job{}, "unresolved", err)
	}
	return nil
}

func unresolvedEffect(e ledger.OpenEffect, now fence.Millis) UnresolvedEffect {
	at := e.Effect.Deciding().At
	return UnresolvedEffect{Conversation: e.Conversation, Effect: e.Effect, Since: at.Time(), Age: (now - at).Duration()}
}

// OpenMessage is a message that nobody has answered or dismissed.
type OpenMessage struct {
	Conversation string
	ID           string
	Named        time.Time // when a Begin last named it, by the ledger's clock
	Age          time.Duration
}

// Open lists the messages that are open and that no Begin has named for at least older,
// longest first, at most limit of them (0: all). Ten minutes is a good measure: what a job at
// work will answer has been named since.
func (k *Keeper) Open(ctx context.Context, older time.Duration, limit int) ([]OpenMessage, error) {
	if err := k.open(); err != nil {
		return nil, err
	}
	found, now, err := k.ledger.OpenInbound(ctx, fence.MillisOf(older), limit)
	if err != nil {
		return nil, k.failed(ctx, Job{}, "open", err)
	}
	list := make([]OpenMessage, len(found))
	for i, f := range found {
		list[i] = openMessage(f, now)
	}
	return list, nil
}

// EachOpen hands over what Open lists, one after the other, until each returns false. each may use the
// keeper.
func (k *Keeper) EachOpen(ctx context.Context, older time.Duration, each func(OpenMessage) bool) error {
	if err := k.open(); err != nil {
		return err
	}
	_, err := k.ledger.EachOpenInbound(ctx, fence.MillisOf(older), 0, func(m ledger.OpenMessage, now fence.Millis) bool {
		return each(openMessage(m, now))
	})
	if err != nil {
		return k.failed(ctx, Job{}, "open", err)
	}
	return nil
}

func openMessage(m ledger.OpenMessage, now fence.Millis) OpenMessage {
	named := m.Inbound.NamedAt
	return OpenMessage{Conversation: m.Conversation, ID: m.Inbound.ID, Named: named.Time(), Age: (now - named).Duration()}
}

// Purged counts what Purge deleted.
type Purged = ledger.Purged

// Purge deletes at most limit records whose retention has passed (rule S10.4). It is safe
// beside claims; call it until Purged.More is false. Nothing pending, unknown or live is
// deleted.
func (k *Keeper) Purge(ctx context.Context, limit int) (Purged, error) {
	return k.PurgeOlder(ctx, 0, limit)
}

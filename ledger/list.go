package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// Look returns the records under keys and the head of a conversation, as of one moment. What
// is past its deadline is shown as it is: ambiguous.
func (l *Ledger) Look(ctx context.Context, conversation string, keys ...string) (fence.View, error) {
	v, _, err := outside(ctx, l, conversation, "look", slices.Clone(keys), func(_ fence.Identity, v fence.View) (fence.View, fence.Change) {
		shown := l.Rules.Lapsed(v)
		// The map of the process's copy goes on changing.
		shown.Leases = maps.Clone(shown.Leases)
		return shown, fence.Change{Needs: missing(v, keys)}
	})
	return v, err
}

func missing(v fence.View, keys []string) fence.Needs {
	var n fence.Needs
	for _, key := range keys {
		if _, ok := v.Rows[key]; !ok && v.Head != nil {
			n.Keys = append(n.Keys, key)
		}
	}
	return n
}

// History is what a conversation remembers: its head, and every record by kind.
type History struct {
	Now     fence.Millis
	Head    *fence.Head // nil when the conversation is not known
	Runs    []*fence.Run
	Effects []*fence.Effect // oldest claim first
	Inbound []*fence.Inbound
	Reports []*fence.Report
	Live    []LiveRun // oldest seat first
}

// LiveRun is a run with a lease that has not lapsed: a delivery of it is at work.
type LiveRun struct {
	Run      fence.RunKey
	Delivery fence.DeliveryID
	Until    fence.Millis // the lease's end, unless it is renewed
}

func liveRuns(v fence.View) (live []LiveRun) {
	if v.Head == nil {
		return nil
	}
	for i := range v.Head.Seats {
		seat := &v.Head.Seats[i]
		if until := v.Leases[seatLease(seat)]; until > v.Now {
			live = append(live, LiveRun{Run: seat.Run, Delivery: seat.Delivery, Until: until})
		}
	}
	return live
}

// scanPage is how many rows one scan asks for.
const scanPage = 500

// History reads a whole conversation, in pages; what changes meanwhile may be seen before or
// after its change.
func (l *Ledger) History(ctx context.Context, conversation string) (History, error) {
	v, err := l.Look(ctx, conversation)
	if err != nil {
		return History{}, err
	}
	h := History{Now: v.Now, Head: v.Head, Live: liveRuns(v)}
	q := Scan{Kind: ScanRows, Conversation: ConversationKey(l.Namespace, conversation), Limit: scanPage}
	err = l.scan(ctx, "history", q, 0, func(_ string, rec fence.Record) {
		switch rec := rec.(type) {
		case *fence.Run:
			h.Runs = append(h.Runs, rec)
		case *fence.Effect:
			h.Effects = append(h.Effects, l.Rules.LapsedEffect(v, rec))
		case *fence.Inbound:
			h.Inbound = append(h.Inbound, rec)
		case *fence.Report:
			h.Reports = append(h.Reports, rec)
		}
	})
	slices.SortStableFunc(h.Runs, func(a, b *fence.Run) int { return cmp.Compare(a.FirstSeq, b.FirstSeq) })
	slices.SortStableFunc(h.Effects, func(a, b *fence.Effect) int { return cmp.Compare(a.Calls[0].Fence, b.Calls[0].Fence) })
	slices.SortStableFunc(h.Inbound, func(a, b *fence.Inbound) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortStableFunc(h.Reports, func(a, b *fence.Report) int { return cmp.Compare(a.Seq, b.Seq) })
	return h, err
}

// scan pages through q, at most limit rows if limit is not 0.
func (l *Ledger) scan(ctx context.Context, verb string, q Scan, limit int, each func(conversation string, rec fence.Record)) error {
	return l.scanWhile(ctx, verb, q, limit, func(conversation string, rec fence.Record) bool {
		each(conversation, rec)
		return true
	})
}

// scanWhile is scan that stops when each returns false. It holds no more than a page, and nothing of the
// store while each is at work.
func (l *Ledger) scanWhile(ctx context.Context, verb string, q Scan, limit int, each func(conversation string, rec fence.Record) bool) error {
	q.Limit = scanPage
	for seen := 0; ; {
		if limit > 0 {
			q.Limit = min(scanPage, limit-seen)
		}
		found, err := l.page(ctx, q)
		if err != nil {
			return fmt.Errorf("ledger: %s: %w", verb, err)
		}
		for _, f := range found {
			rec, err := f.Row.record()
			if err != nil {
				return fmt.Errorf("ledger: %s: %w", verb, err)
			}
			if !each(l.nameOf(f.Conversation), rec) {
				return nil
			}
		}
		seen += len(found)
		if len(found) < q.Limit || limit > 0 && seen >= limit {
			return nil
		}
		q.After = &found[len(found)-1]
	}
}

func (l *Ledger) page(ctx context.Context, q Scan) (found []Found, err error) {
	failed := 0
	err = l.try(ctx, &failed, func() (err error) {
		found, err = l.store.Scan(ctx, q)
		return err
	})
	return found, err
}

func (l *Ledger) load(ctx context.Context, key string, q Query) (snap Snapshot, err error) {
	failed := 0
	err = l.try(ctx, &failed, func() (err error) {
		snap, err = l.store.Load(ctx, key, q)
		return err
	})
	return snap, err
}

// now asks the store for its clock, which any load tells.
func (l *Ledger) now(ctx context.Context) (fence.Millis, error) {
	snap, err := l.load(ctx, ConversationKey(l.Namespace, ""), Query{})
	if err == nil {
		l.heard(snap.Now)
	}
	return snap.Now, err
}

// OpenEffect is an unresolved effect of some conversation.
type OpenEffect struct {
	Conversation string
	Effect       *fence.Effect
}

// Unresolved lists the pending and ambiguous effects claimed at least older ago, oldest first,
// at most limit of them.
func (l *Ledger) Unresolved(ctx context.Context, older fence.Millis, limit int) (open []OpenEffect, now fence.Millis, err error) {
	now, err = l.EachUnresolved(ctx, older, limit, func(e OpenEffect, _ fence.Millis) bool {
		open = append(open, e)
		return true
	})
	return open, now, err
}

// EachUnresolved hands over what Unresolved lists, one after the other, and the ledger's time, until each
// returns false: there may be more of them than fit into memory.
func (l *Ledger) EachUnresolved(ctx context.Context, older fence.Millis, limit int, each func(e OpenEffect, now fence.Millis) bool) (fence.Millis, error) {
	now, err := l.now(ctx)
	if err != nil {
		return 0, fmt.Errorf("ledger: unresolved: %w", err)
	}
	q := Scan{Kind: ScanOpen, Prefix: namespacePrefix(l.Namespace), Open: fence.UnresolvedEffect, Before: now - older}
	return now, l.scanWhile(ctx, "unresolved", q, limit, func(conversation string, rec fence.Record) bool {
		e, ok := rec.(*fence.Effect)
		return !ok || each(OpenEffect{conversation, l.Rules.LapsedEffect(fence.View{Now: now}, e)}, now)
	})
}

// OpenMessage is an open inbound message of some conversation.
type OpenMessage struct {
	Conversation string
	Inbound      *fence.Inbound
}

// OpenInbound lists the open inbound messages that no Begin has named for at least older,
// longest first, at most limit of them.
func (l *Ledger) OpenInbound(ctx context.Context, older fence.Millis, limit int) (open []OpenMessage, now fence.Millis, err error) {
	now, err = l.EachOpenInbound(ctx, older, limit, func(m OpenMessage, _ fence.Millis) bool {
		open = append(open, m)
		return true
	})
	return open, now, err
}

// EachOpenInbound hands over what OpenInbound lists, one after the other, and the ledger's time, until
// each returns false.
func (l *Ledger) EachOpenInbound(ctx context.Context, older fence.Millis, limit int, each func(m OpenMessage, now fence.Millis) bool) (fence.Millis, error) {
	now, err := l.now(ctx)
	if err != nil {
		return 0, fmt.Errorf("ledger: open inbound: %w", err)
	}
	q := Scan{Kind: ScanOpen, Prefix: namespacePrefix(l.Namespace), Open: fence.OpenInbound, Before: now - older}
	return now, l.scanWhile(ctx, "open inbound", q, limit, func(conversation string, rec fence.Record) bool {
		in, ok := rec.(*fence.Inbound)
		return !ok || each(OpenMessage{conversation, in}, now)
	})
}

package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// Look returns the records under keys and the head of a conversation, as of one moment. What
// is past its deadline is shown as it is: ambiguous.
func (l *Ledger) Look(ctx context.Context, conversation string, keys ...string) (fence.View, error) {
	c := l.open(conversation)
	defer l.close(c)
	v, _, err := decide(ctx, l, c, Query{Keys: keys}, false, func(v fence.View) (fence.View, fence.Change) {
		return l.Rules.Lapsed(v), fence.Change{Needs: missing(v, keys)}
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
	h := History{Now: v.Now, Head: v.Head}
	q := Scan{Kind: ScanRows, Conversation: ConversationKey(l.Namespace, conversation), Limit: scanPage}
	err = l.scan(ctx, q, 0, func(_ string, rec fence.Record) {
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
	slices.SortStableFunc(h.Runs, func(a, b *fence.Run) int { return int(a.FirstSeq - b.FirstSeq) })
	slices.SortStableFunc(h.Effects, func(a, b *fence.Effect) int { return int(a.Calls[0].Fence - b.Calls[0].Fence) })
	slices.SortStableFunc(h.Inbound, func(a, b *fence.Inbound) int { return int(a.Seq - b.Seq) })
	slices.SortStableFunc(h.Reports, func(a, b *fence.Report) int { return int(a.Seq - b.Seq) })
	return h, err
}

// scan pages through q, at most limit rows if limit is not 0.
func (l *Ledger) scan(ctx context.Context, q Scan, limit int, each func(conversation string, rec fence.Record)) error {
	if q.Limit == 0 {
		q.Limit = scanPage
	}
	for seen := 0; ; {
		if limit > 0 {
			q.Limit = min(q.Limit, limit-seen)
		}
		found, err := l.store.Scan(ctx, q)
		if err != nil {
			return fmt.Errorf("ledger: scan: %w", err)
		}
		for _, f := range found {
			rec, err := f.Row.record()
			if err != nil {
				return err
			}
			each(l.nameOf(f.Conversation), rec)
		}
		seen += len(found)
		if len(found) < q.Limit || limit > 0 && seen >= limit {
			return nil
		}
		last := found[len(found)-1]
		q.After = &last
	}
}

// OpenEffect is an unresolved effect of some conversation.
type OpenEffect struct {
	Conversation string
	Effect       *fence.Effect
}

// now asks the store for its clock.
func (l *Ledger) now(ctx context.Context) (fence.Millis, error) {
	snap, err := l.store.Load(ctx, ConversationKey(l.Namespace, ""), Query{})
	if err != nil {
		return 0, fmt.Errorf("ledger: clock: %w", err)
	}
	return snap.Now, nil
}

// Unresolved lists the pending and ambiguous effects claimed at least older ago, oldest first,
// at most limit of them.
func (l *Ledger) Unresolved(ctx context.Context, older fence.Millis, limit int) ([]OpenEffect, fence.Millis, error) {
	now, err := l.now(ctx)
	if err != nil {
		return nil, 0, err
	}
	var open []OpenEffect
	q := Scan{Kind: ScanOpen, Prefix: namespacePrefix(l.Namespace), Open: fence.UnresolvedEffect, Before: now - older}
	err = l.scan(ctx, q, limit, func(conversation string, rec fence.Record) {
		if e, ok := rec.(*fence.Effect); ok {
			open = append(open, OpenEffect{conversation, l.Rules.LapsedEffect(fence.View{Now: now}, e)})
		}
	})
	return open, now, err
}

// OpenMessage is an open inbound message of some conversation.
type OpenMessage struct {
	Conversation string
	Inbound      *fence.Inbound
}

// OpenInbound lists the open inbound messages that no Begin has named for at least older,
// longest first, at most limit of them.
func (l *Ledger) OpenInbound(ctx context.Context, older fence.Millis, limit int) ([]OpenMessage, fence.Millis, error) {
	now, err := l.now(ctx)
	if err != nil {
		return nil, 0, err
	}
	var open []OpenMessage
	q := Scan{Kind: ScanOpen, Prefix: namespacePrefix(l.Namespace), Open: fence.OpenInbound, Before: now - older}
	err = l.scan(ctx, q, limit, func(conversation string, rec fence.Record) {
		if in, ok := rec.(*fence.Inbound); ok {
			open = append(open, OpenMessage{conversation, in})
		}
	})
	return open, now, err
}

// Purged counts what Purge deleted.
type Purged struct {
	Runs, Effects, Others, Conversations int
	More                                 bool // there may be more that is due
}

// Purge deletes at most limit rows whose retention has passed (rule S10.4). It is safe beside
// claims: each conversation is purged by compare-and-swap like any other change.
func (l *Ledger) Purge(ctx context.Context, limit int) (Purged, error) {
	var p Purged
	found, err := l.store.Scan(ctx, Scan{Kind: ScanDue, Prefix: namespacePrefix(l.Namespace), Limit: limit})
	if err != nil {
		return p, fmt.Errorf("ledger: purge: %w", err)
	}
	due := map[string][]fence.Record{}
	var order []string
	for _, f := range found {
		rec, err := f.Row.record()
		if err != nil {
			return p, err
		}
		name := l.nameOf(f.Conversation)
		if due[name] == nil {
			order = append(order, name)
		}
		due[name] = append(due[name], rec)
	}
	deleted := 0
	for _, name := range order {
		v, err := l.purge(ctx, name, due[name])
		if err != nil {
			return p, err
		}
		p.Runs += v.Runs
		p.Effects += v.Effects
		p.Others += v.Others
		n := v.Runs + v.Effects + v.Others
		deleted += n
		if n > 0 {
			dropped, err := l.dropEmpty(ctx, name)
			if err != nil {
				return p, err
			}
			if dropped {
				p.Conversations++
			}
		}
	}
	exhumed, err := l.store.Exhume(ctx, limit)
	if err != nil {
		return p, fmt.Errorf("ledger: purge: %w", err)
	}
	p.Others += exhumed
	p.More = len(found) == limit && deleted > 0
	return p, nil
}

func (l *Ledger) purge(ctx context.Context, conversation string, due []fence.Record) (fence.PurgeVerdict, error) {
	var want Query
	for _, rec := range due {
		want.Keys = append(want.Keys, rec.RowKey())
		if e, ok := rec.(*fence.Effect); ok {
			for i := range e.Calls {
				want.Keys = append(want.Keys, fence.RunRow(e.Calls[i].Run))
			}
		}
	}
	slices.Sort(want.Keys)
	want.Keys = slices.Compact(want.Keys)
	v, _, err := outside(ctx, l, conversation, want, false, func(id fence.Identity, v fence.View) (fence.PurgeVerdict, fence.Change) {
		return l.Rules.Purge(v, fence.PurgeRequest{Identity: id, Due: due})
	})
	return v, err
}

// dropEmpty deletes a conversation that has no rows left and that nobody is at work on.
func (l *Ledger) dropEmpty(ctx context.Context, conversation string) (bool, error) {
	key := ConversationKey(l.Namespace, conversation)
	snap, err := l.store.Load(ctx, key, Query{})
	if err != nil || snap.Tag == "" {
		return false, err
	}
	rec, err := snap.Head.record()
	if err != nil {
		return false, err
	}
	if head, _ := rec.(*fence.Head); head == nil || len(head.Seats) > 0 || len(head.Unresolved) > 0 {
		return false, nil
	}
	// A row written after this scan changes the tag, and the deletion is refused.
	rows, err := l.store.Scan(ctx, Scan{Kind: ScanRows, Conversation: key, Limit: 1})
	if err != nil || len(rows) > 0 {
		return false, err
	}
	result, err := l.store.Apply(ctx, key, Write{Tag: snap.Tag, Drop: true})
	if err != nil {
		return false, fmt.Errorf("ledger: purge: %w", err)
	}
	return result.Applied, nil
}

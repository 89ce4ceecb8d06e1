package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// CountPurge says what PurgeOlder would delete, called until More is false, and deletes nothing.
// It looks at no more than limit rows that are due (0: all); the rules are asked about each
// conversation as a whole, so what something still needs is not counted. Conversations and
// tombstones are not counted either.
func (l *Ledger) CountPurge(ctx context.Context, older fence.Millis, limit int) (Purged, error) {
	var p Purged
	now, err := l.now(ctx)
	if err != nil {
		return p, fmt.Errorf("ledger: count purge: %w", err)
	}
	due := map[string][]fence.Record{}
	looked := 0
	q := Scan{Kind: ScanDue, Prefix: namespacePrefix(l.Namespace)}
	err = l.scan(ctx, "count purge", q, limit, func(conversation string, rec fence.Record) {
		looked++
		if name := nameOnly(rec); name != nil && settledAt(rec) <= now-older {
			due[conversation] = append(due[conversation], name)
		}
	})
	if err != nil {
		return p, err
	}
	p.More = limit > 0 && looked == limit
	for _, conversation := range slices.Sorted(maps.Keys(due)) {
		v, err := l.purge(ctx, conversation, due[conversation], true)
		if err != nil {
			return p, err
		}
		p.Runs += v.Runs
		p.Effects += v.Effects
		p.Others += v.Others
	}
	return p, nil
}

// nameOnly returns a record with nothing but its key, which is all that the rules take from a row
// that is due: the count of a large ledger must fit into memory. It is nil for a head.
func nameOnly(rec fence.Record) fence.Record {
	switch rec := rec.(type) {
	case *fence.Run:
		return &fence.Run{Key: rec.Key}
	case *fence.Effect:
		return &fence.Effect{ID: rec.ID}
	case *fence.Inbound:
		return &fence.Inbound{ID: rec.ID}
	case *fence.Report:
		return &fence.Report{ID: rec.ID}
	case *fence.Reference:
		return &fence.Reference{Ref: rec.Ref}
	}
	return nil
}

// settledAt is when the retention of a record began to count (rule S10.4).
func settledAt(rec fence.Record) (at fence.Millis) {
	switch rec := rec.(type) {
	case *fence.Run:
		return rec.TouchedAt
	case *fence.Effect:
		for i := range rec.Calls {
			at = max(at, rec.Calls[i].Settled)
		}
	case *fence.Inbound:
		return max(rec.NamedAt, rec.ClosedAt)
	case *fence.Report:
		return rec.At
	case *fence.Reference:
		return rec.At
	}
	return at
}

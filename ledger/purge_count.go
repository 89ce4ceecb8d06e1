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
	due := map[string][]dueName{}
	looked := 0
	q := Scan{Kind: ScanDue, Prefix: namespacePrefix(l.Namespace)}
	err = l.scan(ctx, "count purge", q, limit, func(conversation string, rec fence.Record) {
		looked++
		if name, ok := dueNameOf(rec); ok && settledAt(rec) <= now-older {
			due[conversation] = append(due[conversation], name)
		}
	})
	if err != nil {
		return p, err
	}
	p.More = limit > 0 && looked == limit
	for _, conversation := range slices.Sorted(maps.Keys(due)) {
		v, err := l.purge(ctx, conversation, dueRecords(due[conversation]), true)
		if err != nil {
			return p, err
		}
		p.Runs += v.Runs
		p.Effects += v.Effects
		p.Others += v.Others
	}
	return p, nil
}

// dueName is all that the rules take from a row that is due, and all that is kept of it: the count of
// a large ledger must fit into memory.
type dueName struct {
	kind    dueKind
	id, job string // job: a run's, whose id is its queue
}

type dueKind uint8

const (
	dueRun dueKind = iota + 1
	dueEffect
	dueInbound
	dueReport
	dueReference
)

// dueNameOf returns the name of a row; ok is false for a head.
func dueNameOf(rec fence.Record) (n dueName, ok bool) {
	switch rec := rec.(type) {
	case *fence.Run:
		return dueName{dueRun, rec.Key.Queue, rec.Key.ID}, true
	case *fence.Effect:
		return dueName{kind: dueEffect, id: rec.ID}, true
	case *fence.Inbound:
		return dueName{kind: dueInbound, id: rec.ID}, true
	case *fence.Report:
		return dueName{kind: dueReport, id: rec.ID}, true
	case *fence.Reference:
		return dueName{kind: dueReference, id: rec.Ref}, true
	}
	return n, false
}

// dueRecords returns records with nothing but their names.
func dueRecords(names []dueName) []fence.Record {
	recs := make([]fence.Record, len(names))
	for i, n := range names {
		switch n.kind {
		case dueRun:
			recs[i] = &fence.Run{Key: fence.RunKey{Queue: n.id, ID: n.job}}
		case dueEffect:
			recs[i] = &fence.Effect{ID: n.id}
		case dueInbound:
			recs[i] = &fence.Inbound{ID: n.id}
		case dueReport:
			recs[i] = &fence.Report{ID: n.id}
		case dueReference:
			recs[i] = &fence.Reference{Ref: n.id}
		}
	}
	return recs
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

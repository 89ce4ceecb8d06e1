package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// Purged counts what Purge deleted.
type Purged struct {
	Runs, Effects, Others, Conversations int
	// More says that it did not come to the end of what is due.
	More bool
}

func (p *Purged) rows() int { return p.Runs + p.Effects + p.Others }

// purgeLook bounds how many rows that are due but held back one Purge looks at, in multiples
// of its limit.
const purgeLook = 4

// Purge deletes at most limit rows whose retention has passed (rule S10.4). It is safe beside
// claims: each conversation is purged by compare-and-swap like any other change.
//
// Rows may be due and yet have to stay, such as an effect whose run is kept. They are found
// again by every scan, so each Purge of a process goes on where its last one stopped, and
// starts anew once it has come to the end: no number of them hides the rest.
func (l *Ledger) Purge(ctx context.Context, limit int) (Purged, error) {
	return l.PurgeOlder(ctx, 0, limit)
}

// PurgeOlder is Purge for what was settled, ended or last named at least older ago, beside its
// retention having passed. Tombstones of runs that never came go when their retention has passed.
func (l *Ledger) PurgeOlder(ctx context.Context, older fence.Millis, limit int) (Purged, error) {
	var p Purged
	if limit <= 0 {
		return p, nil
	}
	l.mu.Lock()
	q := Scan{Kind: ScanDue, Prefix: namespacePrefix(l.Namespace), After: l.purged}
	l.mu.Unlock()
	p.More = true
	for looked := 0; p.More && p.rows() < limit && looked < purgeLook*limit; {
		q.Limit = min(limit-p.rows(), scanPage)
		found, err := l.page(ctx, q)
		if err != nil {
			return p, fmt.Errorf("ledger: purge: %w", err)
		}
		looked += len(found)
		if p.More = len(found) == q.Limit; p.More {
			last := found[len(found)-1]
			q.After = &Found{Conversation: last.Conversation, Row: Row{Key: last.Row.Key, Index: last.Row.Index}}
		} else {
			q.After = nil
		}
		l.mu.Lock()
		l.purged = q.After
		l.mu.Unlock()
		if err := l.purgeFound(ctx, found, older, &p); err != nil {
			return p, err
		}
	}
	failed := 0
	err := l.try(ctx, &failed, func() error {
		exhumed, err := l.store.Exhume(ctx, limit)
		p.Others += exhumed
		p.More = p.More || exhumed == limit
		return err
	})
	if err != nil {
		return p, fmt.Errorf("ledger: purge: %w", err)
	}
	return p, nil
}

// purgeFound purges conversation by conversation, in the order in which they were found.
func (l *Ledger) purgeFound(ctx context.Context, found []Found, older fence.Millis, p *Purged) error {
	var before fence.Millis
	if older > 0 {
		now, err := l.now(ctx)
		if err != nil {
			return fmt.Errorf("ledger: purge: %w", err)
		}
		before = now - older
	}
	due := map[string][]fence.Record{}
	var order []string
	for _, f := range found {
		name := l.nameOf(f.Conversation)
		var rec fence.Record
		if f.Row.Key != "" { // else it is the head: nothing has happened there for long
			var err error
			if rec, err = f.Row.record(); err != nil {
				return fmt.Errorf("ledger: purge: %w", err)
			}
			if older > 0 && settledAt(rec) > before {
				continue
			}
		}
		if _, ok := due[name]; !ok {
			order = append(order, name)
			due[name] = nil
		}
		if rec != nil {
			due[name] = append(due[name], rec)
		}
	}
	for _, name := range order {
		n := 0
		if recs := due[name]; len(recs) > 0 {
			v, err := l.purge(ctx, name, recs, false)
			if err != nil {
				return err
			}
			p.Runs += v.Runs
			p.Effects += v.Effects
			p.Others += v.Others
			n = v.Runs + v.Effects + v.Others
		}
		if n == 0 && len(due[name]) > 0 {
			continue
		}
		dropped, err := l.dropEmpty(ctx, name)
		if err != nil {
			return fmt.Errorf("ledger: purge: %w", err)
		}
		if dropped {
			p.Conversations++
		}
	}
	return nil
}

// purge asks the rules about rows that are due; a dry one writes nothing.
func (l *Ledger) purge(ctx context.Context, conversation string, due []fence.Record, dry bool) (fence.PurgeVerdict, error) {
	var keys []string
	for _, rec := range due {
		keys = append(keys, rec.RowKey())
		if e, ok := rec.(*fence.Effect); ok {
			for i := range e.Calls {
				if run := e.Calls[i].Run; run != (fence.RunKey{}) {
					keys = append(keys, fence.RunRow(run))
				}
			}
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	v, _, err := outside(ctx, l, conversation, "purge", keys, func(id fence.Identity, v fence.View) (fence.PurgeVerdict, fence.Change) {
		verdict, change := l.Rules.Purge(v, fence.PurgeRequest{Identity: id, Due: due})
		if dry {
			change = fence.Change{Needs: change.Needs}
		}
		return verdict, change
	})
	return v, err
}

// dropEmpty deletes a conversation that has no rows left and that nobody is at work on.
func (l *Ledger) dropEmpty(ctx context.Context, conversation string) (bool, error) {
	key := ConversationKey(l.Namespace, conversation)
	snap, err := l.load(ctx, key, Query{})
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
	rows, err := l.page(ctx, Scan{Kind: ScanRows, Conversation: key, Limit: 1})
	if err != nil || len(rows) > 0 {
		return false, err
	}
	var result Result
	failed := 0
	err = l.try(ctx, &failed, func() (err error) {
		result, err = l.store.Apply(ctx, key, Write{Tag: snap.Tag, Drop: true})
		return err
	})
	return result.Applied, err
}

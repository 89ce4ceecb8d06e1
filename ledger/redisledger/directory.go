package redisledger

import (
	"context"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// FindRun implements ledger.Store.
func (s *Store) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	return await(ctx, s, "find run", func() (ledger.Home, error) { return s.find(ctx, run) })
}

func (s *Store) find(ctx context.Context, run string) (ledger.Home, error) {
	answer, err := s.run(ctx, findScript, []string{s.entryKey(run)})
	if err != nil {
		return ledger.Home{}, err
	}
	entry, found, err := text(answer)
	if err != nil || !found {
		return ledger.Home{}, err
	}
	return homeOf(entry)
}

// Bury implements ledger.Store.
func (s *Store) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	return await(ctx, s, "bury", func() (bool, error) {
		keys := []string{s.entryKey(run), s.indexKey(bucketOf(run))}
		answer, err := s.durably(ctx, buryScript, keys, tombstoneValue(s.seam.NewID(), due, tombstone), run)
		if err != nil {
			return false, err
		}
		n, err := number(answer)
		return n == 1, err
	})
}

// Exhume implements ledger.Store. Those whose time was up first go first.
func (s *Store) Exhume(ctx context.Context, limit int) (int, error) {
	return await(ctx, s, "exhume", func() (int, error) {
		m := &merge{s: s, from: "[t", to: "(t", now: true, limit: limit}
		found, err := m.next(ctx, max(limit, 0))
		if err != nil {
			return 0, err
		}
		byBucket := map[int]*ask{}
		var order []int
		for _, member := range found {
			run := member[9:]
			b := bucketOf(run)
			if byBucket[b] == nil {
				byBucket[b] = &ask{keys: []string{s.indexKey(b)}}
				order = append(order, b)
			}
			byBucket[b].keys = append(byBucket[b].keys, s.entryKey(run))
			byBucket[b].args = append(byBucket[b].args, member)
		}
		asks := make([]ask, len(order))
		for i, b := range order {
			asks[i] = *byBucket[b]
		}
		answers, err := s.all(ctx, exhumeScript, asks)
		if err != nil {
			return 0, err
		}
		total := 0
		for _, answer := range answers {
			n, err := number(answer)
			if err != nil {
				return 0, err
			}
			total += int(n)
		}
		return total, nil
	})
}

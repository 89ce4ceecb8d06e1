package redisledger

import (
	"context"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Renew implements ledger.Store: one script for each bucket, all in one pipeline.
func (s *Store) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	return await(ctx, s, "renew", func() ([]ledger.Renewed, error) {
		var byBucket [buckets][]int
		for i, l := range leases {
			b := bucketOf(l.Conversation)
			byBucket[b] = append(byBucket[b], i)
		}
		var asks []ask
		var asked [][]int
		for b, which := range &byBucket {
			if len(which) == 0 {
				continue
			}
			a := ask{args: []any{s.now(), int64(fence.MillisOf(d))}}
			for _, i := range which {
				l := leases[i]
				a.keys = append(a.keys, s.key(b, 'c', l.Conversation), s.key(b, 'l', l.Conversation))
				a.args = append(a.args, leaseField(l.Run, l.Nonce))
			}
			asks, asked = append(asks, a), append(asked, which)
		}
		answers, err := s.all(ctx, renewScript, asks)
		if err != nil {
			return nil, err
		}
		renewed := make([]ledger.Renewed, len(leases))
		for n, answer := range answers {
			parts, err := list(answer, 2*len(asked[n]))
			if err != nil {
				return nil, err
			}
			for i, which := range asked[n] {
				if renewed[which], err = renewedOf(parts[2*i], parts[2*i+1]); err != nil {
					return nil, err
				}
			}
		}
		return renewed, nil
	})
}

func renewedOf(tag, ends any) (r ledger.Renewed, err error) {
	if r.Tag, _, err = text(tag); err != nil {
		return r, err
	}
	until, found, err := text(ends)
	if err != nil || !found {
		return r, err
	}
	r.Found = true
	r.Until, err = millis(until)
	return r, err
}

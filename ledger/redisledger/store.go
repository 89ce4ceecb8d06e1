package redisledger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
)

// Store implements ledger.Store. A ledger.Locker is not needed: a refusal shows the present, so
// that whoever lost a race decides again with the very next call.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	config  Config
	seam    *seam.Seam
	clock   func() time.Time // nil: the server's
	own     bool             // client is closed with the Store
	// together says that one script can change a conversation and the directory.
	together bool

	mu     sync.Mutex
	doubts map[string]int // conversations, see reassure
}

// now is the time that scripts are given: "" for the server's own.
func (s *Store) now() string {
	if s.clock == nil {
		return ""
	}
	return fmt.Sprint(s.clock().UnixMilli())
}

// conversationKeys returns the keys of a conversation: itself, its index, its leases, the index of
// its bucket.
func (s *Store) conversationKeys(conversation string) []string {
	b := bucketOf(conversation)
	keys := make([]string, 0, 8)
	return append(keys, s.key(b, 'c', conversation), s.key(b, 'x', conversation), s.key(b, 'l', conversation), s.indexKey(b))
}

// await calls f and returns early when ctx is done: a client that waits for a socket does not
// look at its ctx. What f does after that is its own business.
func await[T any](ctx context.Context, s *Store, verb string, f func() (T, error)) (T, error) {
	var none, v T
	err := ctx.Err()
	switch {
	case err != nil:
	case ctx.Done() == nil:
		v, err = f()
	default:
		done := make(chan struct{})
		var failed error
		s.seam.Go(func() {
			defer close(done)
			v, failed = f()
		})
		if err = s.seam.Wait(ctx, done); err != nil {
			err = fmt.Errorf("%w (%w)", err, ctx.Err())
		} else {
			err = failed
		}
	}
	if err != nil {
		return none, fmt.Errorf("redisledger: %s: %w", verb, err)
	}
	return v, nil
}

// Load implements ledger.Store.
func (s *Store) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	return await(ctx, s, "load", func() (ledger.Snapshot, error) {
		if err := s.reassure(ctx, conversation); err != nil {
			return ledger.Snapshot{}, err
		}
		return s.load(ctx, conversation, q)
	})
}

func (s *Store) load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	args := appendQuestion(append(make([]any, 0, 4+len(q.Keys)), s.now()), q)
	keys := s.conversationKeys(conversation)[:3]
	if q.Run == "" || s.together {
		if q.Run != "" {
			keys = append(keys, s.entryKey(q.Run))
		}
		answer, err := s.run(ctx, loadScript, keys, args...)
		if err != nil {
			return ledger.Snapshot{}, err
		}
		return snapshotOf(answer, q)
	}
	// The entry is asked for second: a run that is seen has one, because that is written first.
	answer, err := s.run(ctx, loadScript, keys, args...)
	if err != nil {
		return ledger.Snapshot{}, err
	}
	snap, err := snapshotOf(answer, q)
	if err != nil {
		return ledger.Snapshot{}, err
	}
	snap.Home, err = s.find(ctx, q.Run)
	return snap, err
}

// appendQuestion adds what snapshot in common.lua expects.
func appendQuestion(args []any, q ledger.Query) []any {
	what := ""
	if q.Open || q.Tail {
		what = "00000"
		if q.Open {
			what = fmt.Sprintf("1%04d", fence.MaxOpen)
		}
		if q.Tail {
			what += "[l" + sorting(max(q.Since, 0)+1)
		}
	}
	args = append(args, what)
	for _, key := range q.Keys {
		args = append(args, "r"+key)
	}
	return args
}

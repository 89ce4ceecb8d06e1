package redisledger

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/ledger"
)

// ClientOf returns the client that a store uses.
func ClientOf(s *Store) redis.UniversalClient { return s.client }

// ConfigOf returns how a store was opened.
func ConfigOf(s *Store) *Config { return &s.config }

// KeyOf returns the key of a conversation's hash.
func KeyOf(s *Store, conversation string) string { return s.conversationKeys(conversation)[0] }

// MoveIn is the first step of a change of a conversation and the directory where the two are apart,
// as a client sends it; Back is the step that takes it back, and reports whether it did.
func MoveIn(ctx context.Context, s *Store, conversation, run, nonce string) error {
	keys := []string{s.entryKey(run), s.indexKey(bucketOf(run))}
	_, err := s.run(ctx, moveScript, keys, s.now(), entryValue(moving, nonce, conversation), wasOf(ledger.Home{}), "", run)
	return err
}

func Back(ctx context.Context, s *Store, conversation, run, nonce string) (bool, error) {
	keys := []string{s.entryKey(run), s.indexKey(bucketOf(run))}
	answer, err := s.run(ctx, backScript, keys, entryValue(moving, nonce, conversation), "", run)
	if err != nil {
		return false, err
	}
	n, err := number(answer)
	return n == 1, err
}

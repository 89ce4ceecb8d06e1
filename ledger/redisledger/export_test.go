package redisledger

import (
	"github.com/redis/go-redis/v9"
)

// ClientOf returns the client that a store uses.
func ClientOf(s *Store) redis.UniversalClient { return s.client }

// ConfigOf returns how a store was opened.
func ConfigOf(s *Store) *Config { return &s.config }

// KeyOf returns the key of a conversation's hash.
func KeyOf(s *Store, conversation string) string { return s.conversationKeys(conversation)[0] }

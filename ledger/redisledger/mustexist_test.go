package redisledger_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

// A tool that looks at somebody else's ledger begins none where there is none.
func TestALedgerThatMustExistIsNotBegun(t *testing.T) {
	client := own(t)
	config := &redisledger.Config{Prefix: "mustexist", MustExist: true}
	if _, err := redisledger.Open(t.Context(), client, config); !errors.Is(err, redisledger.ErrNoLedger) {
		t.Errorf("where there is nothing: %v", err)
	}
	if err := client.Get(t.Context(), "mustexist:format").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("there is something now: %v", err)
	}
	if _, err := redisledger.Open(t.Context(), client, &redisledger.Config{Prefix: "mustexist"}); err != nil {
		t.Fatal(err)
	}
	if _, err := redisledger.Open(t.Context(), client, config); err != nil {
		t.Error(err)
	}
}

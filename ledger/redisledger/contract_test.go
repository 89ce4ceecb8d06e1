package redisledger_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

type kind struct {
	name   string
	client func(t testing.TB) redis.UniversalClient
}

// kinds are the ways in which a ledger can lie in Redis.
var kinds = []kind{
	{"miniredis", func(t testing.TB) redis.UniversalClient { return mini(t) }},
	{"server", func(t testing.TB) redis.UniversalClient { return plain(t) }},
	{"cluster", func(t testing.TB) redis.UniversalClient { return cluster(t) }},
}

// notUnderRace skips what asks miniredis much: under the race detector its Lua takes a minute, and
// what it says of the library, the server says too.
func (k *kind) notUnderRace(t *testing.T) {
	t.Helper()
	if k.name == "miniredis" {
		race.Skip(t, "asks miniredis much")
	}
}

func everywhere(t *testing.T, test func(t *testing.T, open func(t *testing.T) *redisledger.Store)) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			kind.notUnderRace(t)
			kind.client(t) // skips here, not in every test below
			test(t, func(t *testing.T) *redisledger.Store { return fresh(t, kind.client(t)) })
		})
	}
}

func TestContract(t *testing.T) {
	everywhere(t, func(t *testing.T, open func(t *testing.T) *redisledger.Store) {
		ledgertest.RunShared(t, func(t *testing.T) ledger.Store { return open(t) }, again)
	})
}

func TestMemoryAndRedisHoldTheSameAfterEveryStep(t *testing.T) {
	seeds := 4
	if race.Enabled || testing.Short() {
		seeds = 2
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			kind.notUnderRace(t)
			client := kind.client(t)
			for seed := range seeds {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					ledgertest.Same(t, uint64(seed), 300,
						func(_ *testing.T, s *seam.Seam) ledger.Store { return memledger.NewSeamed(s) },
						func(t *testing.T, s *seam.Seam) ledger.Store {
							config := *redisledger.ConfigOf(fresh(t, client))
							store, err := redisledger.OpenSeamed(t.Context(), client, &config, s)
							if err != nil {
								t.Fatal(err)
							}
							return store
						})
				})
			}
		})
	}
}

package fence_test

import (
	"testing"

	"github.com/fencedrun/fencedrun/fence"
)

// A webhook that was acknowledged does not come again: what it said must survive a crash of
// the ledger's machine. A claimer's own settle may be lost, and becomes unknown (rule S2).
func TestAnOutcomeFromOutsideIsFlushed(t *testing.T) {
	rules := fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3}
	id := fence.Identity{Conversation: "c", Nonce: "epoch"}
	claimed, change := rules.Claim(fence.View{Now: 1000}, fence.ClaimRequest{
		Identity: id, Effect: "e", Intent: "payout", Key: `"k"`, Claim: "claim", For: 60_000,
	})
	if claimed.Call == nil {
		t.Fatalf("not claimed: %+v", claimed)
	}
	view := fence.View{Now: 2000, Head: change.Head, Rows: map[string]fence.Record{}}
	for _, rec := range change.Rows {
		view.Rows[rec.RowKey()] = rec
	}
	for _, durable := range []bool{true, false} {
		_, settle := rules.Settle(view, fence.SettleRequest{
			Identity: id, Effect: "e", Claim: "claim", State: fence.Committed, Durable: durable,
		})
		if !settle.Writes() || settle.Durable != durable {
			t.Errorf("asked for durable %v, the change writes %v and is durable %v", durable, settle.Writes(), settle.Durable)
		}
	}
}

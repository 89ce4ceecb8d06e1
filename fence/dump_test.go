package fence_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
)

// dump writes everything that is in x, the same for the same content.
func dump(x any) []byte {
	if c, ok := x.(fence.Conversation); ok {
		leases := map[string]fence.Millis{}
		for id, until := range c.Leases {
			leases[id.Run+" "+id.Nonce] = until
		}
		x = map[string]any{"head": c.Head, "rows": c.Rows, "leases": leases}
	}
	if c, ok := x.(fence.Change); ok {
		c.Learn = nil
		x = changeOf(c)
	}
	b, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return b
}

func changeOf(c fence.Change) map[string]any {
	var rows []string
	for _, rec := range c.Rows {
		rows = append(rows, rec.RowKey()+" "+string(dump(rec)))
	}
	return map[string]any{
		"head": c.Head, "rows": strings.Join(rows, "\n"), "delete": fmt.Sprint(c.Delete), "lease": fmt.Sprint(c.Lease),
		"home": c.Home, "forget": fmt.Sprint(c.Forget), "durable": c.Durable, "events": fmt.Sprint(c.Events),
	}
}

// decoded is what a store that keeps bytes gives back for a record.
func decoded(rec fence.Record) (fence.Record, error) {
	var copied fence.Record
	switch rec.(type) {
	case *fence.Head:
		copied = new(fence.Head)
	case *fence.Run:
		copied = new(fence.Run)
	case *fence.Effect:
		copied = new(fence.Effect)
	case *fence.Inbound:
		copied = new(fence.Inbound)
	case *fence.Report:
		copied = new(fence.Report)
	case *fence.Reference:
		copied = new(fence.Reference)
	}
	return copied, json.Unmarshal(dump(rec), copied)
}

package guides

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

// counts is a program's metrics, by name.
type counts map[string]int

// observe counts the events, and pages somebody for the one that must never come.
func observe(metrics counts, page func(text string)) func(context.Context, runs.Event) {
	return func(_ context.Context, e runs.Event) {
		metrics["fencedrun_events{kind="+string(e.Kind)+",intent="+e.Effect.Intent+"}"]++
		if e.Kind == runs.EventDuplicate {
			page("an effect may have been made twice: fencedrun why " + e.Conversation)
		}
	}
}

func Example_alerts() {
	metrics := counts{}
	keeper, err := runs.New(memledger.New(), &runs.Config{Observer: observe(metrics, func(text string) { fmt.Println(text) })})
	if err != nil {
		panic(err)
	}
	defer keeper.Close()
	_ = keeper.Once(context.Background(), "thread-7", runs.Effect{Intent: "tag", Key: runs.ID("vip")}, func(context.Context, *runs.Call) error { return nil })
	fmt.Println(metrics["fencedrun_events{kind=committed,intent=tag}"])
	// Output: 1
}

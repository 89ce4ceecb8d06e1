package fence_test

import (
	"fmt"
	"testing"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/race"
)

// past is a conversation with a history. It decides on bounded views alone and writes in
// place, so that a history of ten thousand is made in a moment.
type past struct {
	t *testing.T
	w *world
}

func newPast(t *testing.T) *past {
	w := newWorld(rules())
	w.inPlace = true
	return &past{t, w}
}

func through[V any](p *past, run fence.RunKey, transition func(fence.View) (V, fence.Change)) V {
	p.t.Helper()
	v, change, err := p.w.bounded(p.w.conv("c"), run, func(view fence.View) (any, fence.Change) { return transition(view) })
	if err != nil {
		p.t.Fatal(err)
	}
	p.w.apply("c", change)
	return v.(V)
}

func (p *past) begin(run string, order int64) *fence.Delivery {
	p.t.Helper()
	q := fence.BeginRequest{
		Identity: p.w.identity("c"), Run: runKey(run), Order: fence.Order{Source: "msg", Number: order}, Digest: "p",
		Mode: fence.Supersede, Reads: fence.AfterBegin,
	}
	v := through(p, q.Run, func(view fence.View) (fence.BeginVerdict, fence.Change) { return p.w.rules.Begin(view, q) })
	if v.Delivery == nil {
		p.t.Fatal(fence.Describe(v))
	}
	return v.Delivery
}

func (p *past) claim(d *fence.Delivery, effect string) fence.ClaimVerdict {
	p.t.Helper()
	e := effectOf(effect)
	q := fence.ClaimRequest{
		Identity: p.w.identity("c"), Delivery: d, Effect: e.id, Intent: e.intent, Key: e.key, KeyID: e.keyID,
		Claim: p.w.draw("claim"), For: 120_000,
	}
	return through(p, fence.RunKey{}, func(view fence.View) (fence.ClaimVerdict, fence.Change) { return p.w.rules.Claim(view, q) })
}

// did claims and settles an effect.
func (p *past) did(d *fence.Delivery, effect string) *fence.Delivery {
	p.t.Helper()
	v := p.claim(d, effect)
	if v.Call == nil {
		p.t.Fatal(fence.Describe(v))
	}
	q := fence.SettleRequest{Identity: p.w.identity("c"), Effect: v.Effect.ID, Claim: v.Call.Claim, State: fence.Committed, Delivery: v.Delivery}
	return through(p, fence.RunKey{}, func(view fence.View) (fence.SettleVerdict, fence.Change) { return p.w.rules.Settle(view, q) }).Delivery
}

func (p *past) end(d *fence.Delivery, reason fence.EndReason) {
	p.t.Helper()
	q := fence.EndRequest{Identity: p.w.identity("c"), Delivery: d, Reason: reason}
	v := through(p, fence.RunKey{}, func(view fence.View) (fence.EndVerdict, fence.Change) { return p.w.rules.End(view, q) })
	if v.Refusal != nil {
		p.t.Fatal(fence.Describe(v))
	}
}

// cost is what one decision needed.
type cost struct {
	rows, head int
	granted    bool
}

func (p *past) cost(v fence.ClaimVerdict) cost {
	return cost{rows: p.w.loads, head: len(dump(p.w.conv("c").head)), granted: v.Call != nil}
}

// TestAClaimCostsTheSameWhateverTheConversationHolds is rule S10.6: the rows in the view, and
// the size of the head, with a history of ten and of ten thousand.
func TestAClaimCostsTheSameWhateverTheConversationHolds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		many    int
		granted bool
		history func(p *past, n int) fence.ClaimVerdict // ends with the claim that is measured
	}{
		{"settled effects of other runs", 10_000, true, func(p *past, n int) fence.ClaimVerdict {
			for i := range n {
				p.end(p.did(p.begin(fmt.Sprint(1000000+i), int64(i)), fmt.Sprintf("note:%d", 1000000+i)), fence.EndSuccess)
			}
			return p.claim(p.begin("last", 1e9), "note:new")
		}},
		{"settled effects of its own", 1000, true, func(p *past, n int) fence.ClaimVerdict {
			d := p.begin("last", 1e9)
			for i := range n {
				d = p.did(d, fmt.Sprintf("note:%d", 1000000+i))
			}
			return p.claim(d, "note:new")
		}},
		{"superseded runs", 10_000, true, func(p *past, n int) fence.ClaimVerdict {
			for i := range n {
				p.end(p.begin(fmt.Sprint(1000000+i), int64(i)), fence.EndSuperseded)
			}
			return p.claim(p.begin("last", 1e9), "note:new")
		}},
		{"runs that died", 1000, true, func(p *past, n int) fence.ClaimVerdict {
			for i := range n {
				p.begin(fmt.Sprint(1000000+i), int64(i))
				p.w.now += 31_000
			}
			return p.claim(p.begin("last", 1e9), "note:new")
		}},
		{"landed since it looked", 1000, false, func(p *past, n int) fence.ClaimVerdict {
			slow := p.begin("slow", 1e9)
			d := p.begin("busy", 1e9)
			for i := range n {
				d = p.did(d, fmt.Sprintf("note:%d", 1000000+i))
			}
			return p.claim(slow, "note:new")
		}},
		{"steps of an earlier delivery, replayed", 1000, true, func(p *past, n int) fence.ClaimVerdict {
			d := p.begin("last", 1e9)
			for i := range n {
				d = p.did(d, fmt.Sprintf("note:%d", 1000000+i))
			}
			d = p.begin("last", 1e9)
			for i := range n {
				d = p.claim(d, fmt.Sprintf("note:%d", 1000000+i)).Delivery
			}
			// The first new step reads what earlier deliveries landed, once; what is measured is
			// the second.
			return p.claim(p.did(d, "note:first-new"), "note:new")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			few, many := 10, tt.many
			if race.Enabled {
				many = 100
			}
			var costs []cost
			for _, n := range []int{few, many} {
				p := newPast(t)
				costs = append(costs, p.cost(tt.history(p, n)))
			}
			if costs[0].granted != tt.granted || costs[1].granted != tt.granted {
				t.Fatalf("granted: %v with %d, %v with %d", costs[0].granted, few, costs[1].granted, many)
			}
			if costs[0].rows != costs[1].rows || costs[1].rows > 4 {
				t.Errorf("%d rows in the view with %d, %d with %d", costs[0].rows, few, costs[1].rows, many)
			}
			// A number may have more digits, and there are never more than the head remembers.
			if costs[1].head > costs[0].head+64 || costs[1].head > 4096 {
				t.Errorf("a head of %d bytes with %d, %d with %d", costs[0].head, few, costs[1].head, many)
			}
			t.Logf("%d rows, a head of %d and %d bytes", costs[1].rows, costs[0].head, costs[1].head)
		})
	}
}

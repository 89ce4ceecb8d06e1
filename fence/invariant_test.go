package fence_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/fence"
)

// staged plays commands, given as in a scenario, and returns the state they lead to.
func staged(t *testing.T, text string) *stage {
	t.Helper()
	s := newStage(rules())
	for _, td := range loadScenario(strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n----\n\n") + "\n----\n") {
		out := s.run(&td)
		if s.broken != nil || strings.HasPrefix(out, "refused") {
			t.Fatalf("%s %v: %s (%v)", td.Cmd, td.CmdArgs, out, s.broken)
		}
	}
	return s
}

// everything has a record of every kind in most of its states.
const everything = `
begin run=1 order=msg:1 brings=(m1, m2)
claim run=1 effect=reply:m1 answers=m1
settle effect=reply:m1 committed result=v reference=R1
claim run=1 effect=note:a
settle effect=note:a failed
claim run=1 effect=note:a
settle effect=note:a ambiguous
begin run=2 order=river:9
catchup run=2
claim run=2 effect=tag:x
settle effect=tag:x committed
end run=2
report id=w1 intent=reply answers=m9 reference=RW
catchup run=1
claim run=1 effect=reply:m2 answers=m2
begin run=3
cancel run=3
begin run=4
release run=4 parked=unresolved
dismiss ids=m8 why=spam`

// copied is a deep copy that may be spoilt.
func copied(t *testing.T, c fence.Conversation) fence.Conversation {
	t.Helper()
	out := fence.Conversation{Rows: map[string]fence.Record{}, Leases: maps.Clone(c.Leases)}
	deep := func(rec fence.Record) fence.Record {
		got, err := decoded(rec)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if c.Head != nil {
		out.Head = deep(c.Head).(*fence.Head)
	}
	for key, rec := range c.Rows {
		out.Rows[key] = deep(rec)
	}
	return out
}

func runRow(c fence.Conversation, id string) *fence.Run {
	return c.Rows[fence.RunRow(runKey(id))].(*fence.Run)
}

func effectRow(c fence.Conversation, name string) *fence.Effect {
	return c.Rows[fence.EffectRow(effectOf(name).id)].(*fence.Effect)
}

func inboundRow(c fence.Conversation, id string) *fence.Inbound {
	return c.Rows[fence.InboundRow(id)].(*fence.Inbound)
}

// TestCheckFindsWhatIsBroken breaks each invariant once.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	s := staged(t, everything)
	good := s.w.state("c")
	if err := fence.Check(good.Head, good.Rows, s.w.now); err != nil {
		t.Fatal(err)
	}
	if err := fence.Check(nil, nil, s.w.now); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		want  string
		spoil func(c *fence.Conversation)
	}{
		{"without a head", func(c *fence.Conversation) { c.Head = nil }},
		{"lacks its epoch", func(c *fence.Conversation) { c.Head.Epoch = "" }},
		{"holds another record", func(c *fence.Conversation) { c.Rows["r/1:q/zzz"] = runRow(*c, "1") }},
		{"is a *fence.Head", func(c *fence.Conversation) { c.Rows[""] = c.Head }},
		{"is in no state", func(c *fence.Conversation) { runRow(*c, "1").State = "asleep" }},
		{"with end", func(c *fence.Conversation) { runRow(*c, "1").End = fence.EndSuccess }},
		{"was never begun", func(c *fence.Conversation) { runRow(*c, "4").Delivery.Nonce = "" }},
		{"parked or waiting", func(c *fence.Conversation) { runRow(*c, "2").Parked = fence.ReasonBusy }},
		{"has generation 0", func(c *fence.Conversation) { runRow(*c, "1").Generation = 0 }},
		{"above the head's", func(c *fence.Conversation) { runRow(*c, "1").FirstSeq = 1e9 }},
		{"has no call", func(c *fence.Conversation) { effectRow(*c, "note:a").Calls = nil }},
		{"call 1 follows call 1", func(c *fence.Conversation) { effectRow(*c, "note:a").Calls[1].Number = 1 }},
		{"share a claim", func(c *fence.Conversation) {
			effectRow(*c, "note:a").Calls[1].Claim = effectRow(*c, "reply:m1").Calls[0].Claim
		}},
		{"share fence number", func(c *fence.Conversation) {
			effectRow(*c, "note:a").Calls[1].Fence = effectRow(*c, "reply:m1").Calls[0].Fence
		}},
		{"has fence 1000000000", func(c *fence.Conversation) { effectRow(*c, "note:a").Calls[1].Fence = 1e9 }},
		{"has 2 pending calls", func(c *fence.Conversation) {
			e := effectRow(*c, "note:a")
			e.Calls[0].State, e.Calls[1].State = fence.Pending, fence.Pending
		}},
		{"is not said to have written", func(c *fence.Conversation) { runRow(*c, "1").Wrote = false }},
		{"call 1 is in no state", func(c *fence.Conversation) { effectRow(*c, "reply:m1").Calls[0].State = "done" }},
		{"belongs to another state", func(c *fence.Conversation) { effectRow(*c, "reply:m1").Calls[0].NotStarted = true }},
		{"was never settled", func(c *fence.Conversation) { effectRow(*c, "reply:m1").Calls[0].Settled = 0 }},
		{"does not know that", func(c *fence.Conversation) { inboundRow(*c, "m1").Answered = nil; inboundRow(*c, "m1").ClosedAt = 0 }},
		{"closed true, since 0", func(c *fence.Conversation) { inboundRow(*c, "m1").ClosedAt = 0 }},
		{"was named by nobody", func(c *fence.Conversation) { inboundRow(*c, "m2").Registered = false }},
		{"has committed no such answer", func(c *fence.Conversation) {
			inboundRow(*c, "m8").Answered = []fence.Answer{{ID: effectOf("note:a").id}}
		}},
		{"which does not say so", func(c *fence.Conversation) {
			inboundRow(*c, "m8").Answered = []fence.Answer{{ID: "w1", Report: true}}
		}},
		{`report "w1" has seq`, func(c *fence.Conversation) { c.Rows[fence.ReportRow("w1")].(*fence.Report).Seq = 1e9 }},
		{"not of one effect or one report", func(c *fence.Conversation) { c.Rows[fence.ReferenceRow("R1")].(*fence.Reference).Report = "w1" }},
		{"has two seats", func(c *fence.Conversation) { c.Head.Seats = append(c.Head.Seats, c.Head.Seats[0]) }},
		{"has a seat and is not active", func(c *fence.Conversation) { c.Head.Seats[0].Run = runKey("3") }},
		{"has the seat of delivery", func(c *fence.Conversation) { c.Head.Seats[0].Delivery.Number++ }},
		{"has a seat of another order", func(c *fence.Conversation) { c.Head.Seats[0].Order.Number++ }},
		{"lists note \"a\" twice", func(c *fence.Conversation) { c.Head.Unresolved = append(c.Head.Unresolved, c.Head.Unresolved[0]) }},
		{"which has no row", func(c *fence.Conversation) { delete(c.Rows, fence.EffectRow(effectOf("note:a").id)) }},
		{"its row as ambiguous", func(c *fence.Conversation) { c.Head.Unresolved[0].State = fence.Pending }},
		{"its row as pending", func(c *fence.Conversation) { c.Head.Unresolved[1].State = fence.Ambiguous }},
		{"with the latest deadline", func(c *fence.Conversation) { c.Head.Unresolved[0].Latest = 1e12 }},
		{"and is being probed", func(c *fence.Conversation) { effectRow(*c, "reply:m1").Probing.Tries = 1 }},
		{"by another call than its row", func(c *fence.Conversation) { c.Head.Unresolved[0].Call = 7 }},
		{"above its own", func(c *fence.Conversation) { c.Head.Unresolved[0].Seq = 1e9 }},
		{"among the owners", func(c *fence.Conversation) {
			e := effectRow(*c, "note:a")
			e.Calls[0].State, e.Calls[0].Run = fence.Ambiguous, runKey("2")
		}},
		{"2 effects are unresolved, the head lists 1", func(c *fence.Conversation) { c.Head.Unresolved = c.Head.Unresolved[1:] }},
		{"remembers 9 landings", func(c *fence.Conversation) {
			for len(c.Head.Landed) < 9 {
				c.Head.Landed = append(c.Head.Landed, c.Head.Landed[0])
			}
		}},
		{"follows seq", func(c *fence.Conversation) { c.Head.Floor = c.Head.Landed[0].Seq }},
		{"remembers the landing of \"gone\"", func(c *fence.Conversation) { c.Head.Landed[0].ID = "gone" }},
		{"remembers another landing", func(c *fence.Conversation) { c.Head.Landed[0].Summary = "else" }},
		{"does not remember the landing", func(c *fence.Conversation) { c.Head.Landed = c.Head.Landed[1:] }},
		{"those that wrote twice", func(c *fence.Conversation) { c.Head.Wrote = append(c.Head.Wrote, c.Head.Wrote[0]) }},
		{"knows no such order", func(c *fence.Conversation) { c.Head.Wrote[0].Number-- }},
	} {
		t.Run(tt.want, func(t *testing.T) {
			bad := copied(t, good)
			tt.spoil(&bad)
			err := fence.Check(bad.Head, bad.Rows, s.w.now)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check says: %v", err)
			}
		})
	}
}

// TestCheckStepFindsWhatMustNotHappen takes something back that happened.
func TestCheckStepFindsWhatMustNotHappen(t *testing.T) {
	s := staged(t, everything)
	good := s.w.state("c")
	if err := fence.CheckStep(good, good, s.w.now); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want  string
		spoil func(c *fence.Conversation)
	}{
		{"dropped the head", func(c *fence.Conversation) { c.Head, c.Rows = nil, nil }},
		{"the epoch changed", func(c *fence.Conversation) { c.Head.Epoch = "other" }},
		{"went down", func(c *fence.Conversation) { c.Head.Seq-- }},
		{"went down", func(c *fence.Conversation) { c.Head.Fence-- }},
		{"deleted before its time", func(c *fence.Conversation) { delete(c.Rows, fence.InboundRow("m1")) }},
		{"deleted before its time", func(c *fence.Conversation) { delete(c.Rows, fence.EffectRow(effectOf("note:a").id)) }},
		{"was reported anew", func(c *fence.Conversation) { c.Rows[fence.ReportRow("w1")].(*fence.Report).Seq++ }},
		{"delivery 1 of generation 1 became 0", func(c *fence.Conversation) { runRow(*c, "1").Delivery.Number = 0 }},
		{"changed its nonce", func(c *fence.Conversation) { runRow(*c, "1").Delivery.Nonce = "other" }},
		{"order, beginning or writing changed", func(c *fence.Conversation) { runRow(*c, "1").Order.Number++ }},
		{"order, beginning or writing changed", func(c *fence.Conversation) { runRow(*c, "1").Wrote = false }},
		{"with a delivery", func(c *fence.Conversation) {
			r := runRow(*c, "1")
			r.State, r.End, r.Delivery = fence.RunEnded, fence.EndSuccess, fence.DeliveryID{Number: 2, Nonce: "n"}
		}},
		{"with no delivery", func(c *fence.Conversation) { runRow(*c, "2").State, runRow(*c, "2").End = fence.RunActive, "" }},
		{"entered in the same generation", func(c *fence.Conversation) {
			r := runRow(*c, "3")
			r.State, r.Delivery = fence.RunActive, fence.DeliveryID{Number: 2, Nonce: "n"}
		}},
		{"had ended with success", func(c *fence.Conversation) { runRow(*c, "2").End = fence.EndDiscarded }},
		{"lost a call", func(c *fence.Conversation) { e := effectRow(*c, "note:a"); e.Calls = e.Calls[:1] }},
		{"became another call", func(c *fence.Conversation) { effectRow(*c, "note:a").Calls[0].Deadline++ }},
		{"was committed and is failed", func(c *fence.Conversation) { effectRow(*c, "reply:m1").Calls[0].State = fence.Failed }},
		{"was failed and is ambiguous", func(c *fence.Conversation) { effectRow(*c, "note:a").Calls[0].State = fence.Ambiguous }},
		{"was ambiguous and is pending", func(c *fence.Conversation) { effectRow(*c, "note:a").Calls[1].State = fence.Pending }},
		{"went from seq", func(c *fence.Conversation) { effectRow(*c, "reply:m1").Calls[0].Seq++ }},
		{"changed its result", func(c *fence.Conversation) { effectRow(*c, "reply:m1").Calls[0].Result = []byte("other") }},
		{"forgot something", func(c *fence.Conversation) { inboundRow(*c, "m1").Answered = nil }},
		{"forgot something", func(c *fence.Conversation) { inboundRow(*c, "m8").Dismissed = "" }},
		{"forgot something", func(c *fence.Conversation) { inboundRow(*c, "m1").Registered = false }},
		{"took fence number", func(c *fence.Conversation) {
			e := effectRow(*c, "note:a")
			e.Calls = append(e.Calls, fence.Call{Number: 3, Claim: "new", State: fence.Pending})
		}},
		{"was claimed while its call 2 is ambiguous", func(c *fence.Conversation) {
			e := effectRow(*c, "note:a")
			e.Calls = append(e.Calls, fence.Call{Number: 3, Claim: "new", State: fence.Pending, Fence: 1e9})
		}},
		{"made 2 claims", func(c *fence.Conversation) {
			for _, id := range []string{"a", "b"} {
				c.Rows[fence.EffectRow(id)] = &fence.Effect{ID: id, Calls: []fence.Call{{Number: 1, Claim: id, State: fence.Pending, Fence: 1e9}}}
			}
		}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			bad := copied(t, good)
			tt.spoil(&bad)
			err := fence.CheckStep(good, bad, s.w.now)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("CheckStep says: %v", err)
			}
		})
	}
	late := copied(t, good)
	effectRow(late, "reply:m1").Calls[0].Late = true
	if err := fence.CheckStep(late, good, s.w.now); err == nil || !strings.Contains(err.Error(), "lost its mark") {
		t.Errorf("CheckStep says: %v", err)
	}
}

package ledgertest

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var loadTests = []test{
	{"a conversation that does not exist has no tag", loadsNothing},
	{"the tail is what landed above a seq, in its order", loadsTail},
	{"the newest open messages, and how many there are", loadsOpen},
	{"what was read is the reader's own", readersOwn},
	{"the clock goes on", clockGoesOn},
}

func contextWithCancel(b *bench) (context.Context, context.CancelFunc) {
	return context.WithCancel(b.ctx)
}

func loadsNothing(b *bench) {
	b.write("c", ledger.Write{Put: []ledger.Row{row("a", "1", fence.Index{Landed: 1})}, Home: &ledger.HomeWrite{Run: "r"}})
	snap := b.load("nothing", ledger.Query{Keys: []string{"a"}, Run: "r", Tail: true, Open: true})
	if snap.Tag != "" || len(snap.Rows)+len(snap.Tail)+len(snap.Open)+len(snap.Leases) != 0 {
		b.Errorf("an unknown conversation shows %+v", snap)
	}
	if snap.Home.Conversation != "c" {
		b.Errorf("the run's home is %+v, wherever one asks from", snap.Home)
	}
	snap = b.load("c", ledger.Query{})
	if len(snap.Rows)+len(snap.Tail)+len(snap.Open) != 0 || snap.Home.Found {
		b.Errorf("Load gave what nobody asked for: %+v", snap)
	}
}

func loadsTail(b *bench) {
	var rows []ledger.Row
	for i := range 30 {
		seq := int64((i*7)%30) * 1000
		rows = append(rows, row(fmt.Sprintf("k%d", i), "x", fence.Index{Landed: seq}))
	}
	b.write("c", ledger.Write{Put: rows})
	b.write("other", ledger.Write{Put: rows})
	for since, first := range map[int64]int64{-1: 1000, 0: 1000, 999: 1000, 1000: 2000, 14_500: 15_000, 29_000: 30_000} {
		tail := b.load("c", ledger.Query{Tail: true, Since: since}).Tail
		if want := int((30_000 - first) / 1000); len(tail) != want {
			b.Errorf("above %d: %d rows, want %d", since, len(tail), want)
			continue
		}
		for i, r := range tail {
			if want := first + int64(i)*1000; r.Index.Landed != want {
				b.Errorf("above %d: row %d landed at %d, want %d", since, i, r.Index.Landed, want)
			}
		}
	}
}

func loadsOpen(b *bench) {
	total := fence.MaxOpen + 7
	var rows []ledger.Row
	for i := range total {
		at := fence.Millis((i * 31) % total / 2) // twice each
		rows = append(rows, row(fmt.Sprintf("i/%03d", i), "x", fence.Index{Open: fence.OpenInbound, At: at, Due: 5}))
	}
	rows = append(rows, row("e/1", "x", fence.Index{Open: fence.UnresolvedEffect, At: 1 << 40}), row("i/closed", "x", fence.Index{At: 1 << 41}))
	b.write("c", ledger.Write{Put: rows})
	b.write("other", ledger.Write{Put: rows[:3]})
	snap := b.load("c", ledger.Query{Open: true})
	if snap.OpenCount != total || len(snap.Open) != fence.MaxOpen {
		b.Fatalf("%d open messages and %d of them shown, want %d and %d", snap.OpenCount, len(snap.Open), total, fence.MaxOpen)
	}
	for i, r := range snap.Open {
		if r.Index.Open != fence.OpenInbound {
			b.Errorf("%q is no open message", r.Key)
		}
		if i > 0 && r.Index.At > snap.Open[i-1].Index.At {
			b.Errorf("%q, open since %d, comes after one since %d", r.Key, r.Index.At, snap.Open[i-1].Index.At)
		}
	}
	if oldest := snap.Open[fence.MaxOpen-1].Index.At; oldest < 3 {
		b.Errorf("the oldest shown is since %d: the newest were to be shown", oldest)
	}
}

// readersOwn: who sorts or cuts what was loaded must not change the store.
func readersOwn(b *bench) {
	b.write("c", ledger.Write{
		Put:    []ledger.Row{row("a", "1", fence.Index{Landed: 1}), row("b", "2", fence.Index{Landed: 2})},
		Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: 1e12}},
	})
	for range 2 {
		snap := b.load("c", ledger.Query{Keys: []string{"a", "b"}, Tail: true})
		if len(snap.Rows) != 2 || len(snap.Tail) != 2 || len(snap.Leases) != 1 || snap.Leases[0].Nonce != "n" {
			b.Fatalf("Load gave %+v", snap)
		}
		snap.Rows[0], snap.Tail[0], snap.Leases[0] = ledger.Row{}, ledger.Row{}, ledger.Lease{}
	}
	found := b.scan(ledger.Scan{Kind: ledger.ScanRows, Conversation: "c"})
	found[0] = ledger.Found{}
	b.wantRows("c", row("a", "1", fence.Index{Landed: 1}), row("b", "2", fence.Index{Landed: 2}))
}

func clockGoesOn(b *bench) {
	var last fence.Millis
	for i := range 50 {
		tag := b.load("c", ledger.Query{}).Tag
		r := b.apply("c", ledger.Write{Tag: tag, NewTag: b.tag(), Head: row("", "h")})
		refused := b.apply("c", ledger.Write{Tag: "no", NewTag: b.tag(), Head: row("", "h")})
		load := b.load("c", ledger.Query{})
		for _, now := range []fence.Millis{r.Now, refused.Now, load.Now} {
			if now < last || now <= 0 {
				b.Fatalf("round %d: the clock says %d after %d", i, now, last)
			}
			last = now
		}
	}
	b.wait(last)
}

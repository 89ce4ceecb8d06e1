package ledgertest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
)

var raceTests = []test{
	{"of changes decided on one tag, exactly one is applied", oneWins},
	{"of those who would make a conversation, exactly one does", oneCreates},
	{"a run moves in once", oneMovesIn},
	{"a reader sees one state", oneState},
	{"what another handle wrote is seen at once", otherHandle},
	{"a lock keeps others out, and writes all or nothing", locks},
}

// race runs n goroutines at once over two handles and returns how many said yes.
func (b *bench) race(n int, do func(s ledger.Store, i int) (bool, error)) int {
	b.Helper()
	handles := []ledger.Store{b.store, b.other()}
	var yes atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			ok, err := do(handles[i%2], i)
			if err != nil {
				b.Errorf("racer %d: %v", i, err)
			}
			if ok {
				yes.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(yes.Load())
}

func oneWins(b *bench) {
	tag := b.write("c", ledger.Write{Put: []ledger.Row{row("k", "start")}})
	for round := range 20 {
		n := b.race(8, func(s ledger.Store, i int) (bool, error) {
			me := fmt.Sprintf("round %d, racer %d", round, i)
			r, err := s.Apply(b.ctx, "c", ledger.Write{
				Tag: tag, NewTag: me, Head: row("", me), Put: []ledger.Row{row("k", me), row(fmt.Sprintf("mine%d", i), me)}, Durable: i%3 == 0,
			})
			return r.Applied, err
		})
		snap := b.load("c", ledger.Query{Keys: []string{"k"}})
		if n != 1 {
			b.Fatalf("round %d: %d of 8 were applied", round, n)
		}
		b.sameRow(snap.Head, row("", snap.Tag))
		b.sameRow(snap.Rows[0], row("k", snap.Tag))
		tag = snap.Tag
	}
}

func oneCreates(b *bench) {
	for round := range 10 {
		c := fmt.Sprint("c", round)
		n := b.race(8, func(s ledger.Store, i int) (bool, error) {
			me := fmt.Sprint("racer ", i)
			r, err := s.Apply(b.ctx, c, ledger.Write{NewTag: me, Head: row("", me), Put: []ledger.Row{row("k", me)}})
			return r.Applied, err
		})
		if n != 1 {
			b.Fatalf("round %d: %d of 8 made the conversation", round, n)
		}
		b.wantRows(c, row("k", b.load(c, ledger.Query{}).Tag))
	}
}

func oneMovesIn(b *bench) {
	for round := range 10 {
		run := fmt.Sprint("r", round)
		n := b.race(8, func(s ledger.Store, i int) (bool, error) {
			if i == 7 {
				return s.Bury(b.ctx, run, []byte("x"), 1<<50)
			}
			c := fmt.Sprint("c", round, "-", i)
			r, err := s.Apply(b.ctx, c, ledger.Write{NewTag: c, Head: row("", c), Home: &ledger.HomeWrite{Run: run}})
			return r.Applied, err
		})
		if n != 1 {
			b.Fatalf("round %d: %d of 8 moved in", round, n)
		}
		h := b.home(run)
		for i := range 7 {
			c := fmt.Sprint("c", round, "-", i)
			if there := b.load(c, ledger.Query{}).Tag != ""; there != (h.Conversation == c) {
				b.Errorf("the run lives at %+v, and %s exists: %v", h, c, there)
			}
		}
	}
}

// oneState: a head of one state with rows of another is a view whose compare-and-swap passes.
func oneState(b *bench) {
	other := b.other()
	state := func(i int) ledger.Write {
		v := fmt.Sprint(i)
		return ledger.Write{NewTag: v, Head: row("", v), Put: []ledger.Row{row("k1", v), row("k2", v)}, Leases: []ledger.LeaseWrite{
			{Run: v, Nonce: v, For: time.Minute}, {Run: fmt.Sprint(i - 1), Nonce: fmt.Sprint(i - 1)},
		}}
	}
	b.apply("c", state(0))
	var wg sync.WaitGroup
	var stop atomic.Bool
	var written atomic.Int64
	wg.Go(func() {
		for i := 1; !stop.Load(); i++ {
			written.Store(int64(i))
			w := state(i)
			w.Tag = fmt.Sprint(i - 1)
			if r, err := other.Apply(b.ctx, "c", w); err != nil || !r.Applied {
				b.Errorf("writer: %v, %v", r.Applied, err)
				return
			}
		}
	})
	for n := 0; n < 200 || written.Load() < 100 && !b.Failed(); n++ {
		snap := b.load("c", ledger.Query{Keys: []string{"k1", "k2"}})
		head, _ := snap.Head.Body()
		if len(snap.Rows) != 2 || len(snap.Leases) != 1 {
			b.Fatalf("a reader saw %d rows and %d leases", len(snap.Rows), len(snap.Leases))
		}
		k1, _ := snap.Rows[0].Body()
		k2, _ := snap.Rows[1].Body()
		if t := snap.Tag; string(head) != t || string(k1) != t || string(k2) != t || snap.Leases[0].Run != t {
			b.Fatalf("a reader saw tag %s, head %s, rows %s and %s, lease %s", t, head, k1, k2, snap.Leases[0].Run)
		}
	}
	stop.Store(true)
	wg.Wait()
}

func otherHandle(b *bench) {
	other := b.other()
	for i := range 20 {
		tag := b.write("c", ledger.Write{Put: []ledger.Row{row("k", fmt.Sprint(i))}})
		snap, err := other.Load(b.ctx, "c", ledger.Query{Keys: []string{"k"}})
		if err != nil || snap.Tag != tag || len(snap.Rows) != 1 {
			b.Fatalf("round %d: the other handle sees %+v, %v", i, snap, err)
		}
		b.sameRow(snap.Rows[0], row("k", fmt.Sprint(i)))
		r, err := other.Apply(b.ctx, "c", ledger.Write{Tag: tag, NewTag: b.tag(), Head: row("", "h")})
		if err != nil || !r.Applied {
			b.Fatalf("round %d: the other handle's change: %+v, %v", i, r, err)
		}
		if r := b.apply("c", ledger.Write{Tag: tag, NewTag: b.tag(), Head: row("", "h")}); r.Applied {
			b.Fatalf("round %d: a change of what the other handle had changed was applied", i)
		}
	}
}

func locks(b *bench) {
	locker, ok := b.store.(ledger.Locker)
	if !ok {
		b.Skip("this store is no ledger.Locker")
	}
	tag := b.write("c", ledger.Write{Put: []ledger.Row{row("k", "0")}})
	boom := errors.New("boom")
	was := b.state("c")
	err := locker.WithLock(b.ctx, "c", func(tx ledger.Tx) error {
		r, err := tx.Apply(b.ctx, "c", ledger.Write{Tag: tag, NewTag: "x", Head: row("", "h"), Put: []ledger.Row{row("k", "1")}, Home: &ledger.HomeWrite{Run: "r"}})
		if err != nil || !r.Applied {
			b.Errorf("in the lock: %+v, %v", r, err)
		}
		snap, err := tx.Load(b.ctx, "c", ledger.Query{Keys: []string{"k"}})
		if err != nil || snap.Tag != "x" {
			b.Errorf("in the lock its own change is not seen: %+v, %v", snap, err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		b.Errorf("WithLock gave %v, want the error of fn", err)
	}
	b.unchanged("fn failed", "c", was)
	if b.home("r").Found {
		b.Error("the directory kept what fn had written before it failed")
	}

	// Many add one, each on what it reads under the lock: none is lost.
	calls := atomic.Int64{}
	n := b.race(16, func(s ledger.Store, i int) (bool, error) {
		err := s.(ledger.Locker).WithLock(b.ctx, "c", func(tx ledger.Tx) error {
			calls.Add(1)
			snap, err := tx.Load(b.ctx, "c", ledger.Query{Keys: []string{"n"}})
			if err != nil {
				return err
			}
			length := 0
			if len(snap.Rows) > 0 {
				body, _ := snap.Rows[0].Body()
				length = len(body)
			}
			body := make([]byte, length+1)
			r, err := tx.Apply(b.ctx, "c", ledger.Write{Tag: snap.Tag, NewTag: fmt.Sprint("racer", i), Head: row("", "h"), Put: []ledger.Row{row("n", string(body))}})
			if err == nil && !r.Applied {
				err = errors.New("refused under the lock")
			}
			return err
		})
		return err == nil, err
	})
	if n != 16 || calls.Load() != 16 {
		b.Errorf("%d of 16 locked changes were made, in %d calls", n, calls.Load())
	}
	if body, _ := b.rows("c")["n"].Body(); len(body) != 16 {
		b.Errorf("16 added one each: %d", len(body))
	}
}

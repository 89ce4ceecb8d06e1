package ledgertest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var racingTests = []test{
	{"of fifty who claim one effect, one may call", racers},
	{"a hot conversation is fair", fair},
	{"purging beside claims takes nothing that lives", purgesBeside},
	{"a cancel and a Begin at once: one of them knows", cancelsBeside},
	{"Begins of one job at once: one delivery holds the right", beginsBeside},
}

// workers starts n processes, every other one on a handle of its own.
func (b *bench) workers(n int, change ...func(*ledger.Options)) []*worker {
	b.Helper()
	stores := []ledger.Store{b.store, b.other()}
	all := make([]*worker, n)
	for i := range all {
		all[i] = b.worker(stores[i%2], change...)
	}
	return all
}

// at runs do n times at once and waits for all.
func at(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}

func racers(b *bench) {
	workers := b.workers(5)
	for round := range 3 {
		c := fmt.Sprint("c", round)
		var granted, inFlight atomic.Int64
		at(50, func(i int) {
			w := workers[i%5]
			h, v, _, err := w.Begin(b.ctx, c, job(fmt.Sprint(c, " j", i)))
			if err != nil || h == nil {
				b.Errorf("begin: %+v, %v", v, err)
				return
			}
			defer h.Close()
			got, _, err := h.Claim(b.ctx, w.effect(c, "reply", "m", "m"))
			switch {
			case err != nil:
				b.Errorf("claim: %v", err)
			case got.Call != nil:
				granted.Add(1)
			case got.Refusal != nil && got.Refusal.Reason == fence.ReasonInFlight:
				inFlight.Add(1)
			default:
				b.Errorf("claim: %s", verdict(got))
			}
		})
		if granted.Load() != 1 || inFlight.Load() != 49 {
			b.Errorf("round %d: %d granted, %d told that it is in flight", round, granted.Load(), inFlight.Load())
		}
	}
}

func fair(b *bench) {
	for _, processes := range []int{1, 4} {
		goroutines, claims := 50, 20
		switch {
		case brief():
			goroutines, claims = 16, 4
		case processes > 1:
			claims = 5
		}
		c := fmt.Sprint("c", processes)
		stores := []ledger.Store{b.store, b.other()}
		workers := make([]*worker, processes)
		counters := make([]*Counter, processes)
		for i := range workers {
			var store ledger.Store
			store, counters[i] = Counting(stores[i%2])
			workers[i] = b.worker(store)
			workers[i].begin(c, job(fmt.Sprint(c, " watcher ", i))) // the process goes on knowing the conversation
		}
		at(goroutines, func(i int) {
			w := workers[i%processes]
			h, _, _, err := w.Begin(b.ctx, c, job(fmt.Sprint(c, " j", i)))
			if err != nil || h == nil {
				b.Errorf("begin: %v", err)
				return
			}
			defer h.Close()
			for n := range claims {
				q := w.effect(c, "tag", fmt.Sprint(i, "-", n))
				q.Policy = fence.NoChange
				v, _, err := h.Claim(b.ctx, q)
				if err != nil || v.Call == nil {
					b.Errorf("claim %d of %d: %s, %v", n, i, verdict(v), err)
					return
				}
				if _, _, err := h.Settle(b.ctx, outcome(v, fence.Committed, "done")); err != nil {
					b.Errorf("settle %d of %d: %v", n, i, err)
					return
				}
			}
		})
		total := Counts{}
		for _, n := range counters {
			got := n.Take()
			total.Applies += got.Applies
			total.Refused += got.Refused
			total.Locks += got.Locks
		}
		changes := goroutines * (2*claims + 1)
		switch _, locker := b.store.(ledger.Locker); {
		case processes == 1 && total.Refused > 1:
			b.Errorf("one process: %d of %d changes were refused: it races itself", total.Refused, total.Applies)
		case locker && total.Refused > changes:
			b.Errorf("%d processes: %d refusals for %d changes, want at most one each", processes, total.Refused, changes)
		}
		if h, err := workers[0].History(b.ctx, c); err != nil || len(h.Effects) != goroutines*claims || len(h.Head.Unresolved) != 0 {
			b.Errorf("%d effects, %v, want %d", len(h.Effects), err, goroutines*claims)
		}
	}
}

func purgesBeside(b *bench) {
	soon := func(o *ledger.Options) { o.Rules.Retention = 1 }
	workers := b.workers(4, soon)
	var stop atomic.Bool
	var wg sync.WaitGroup
	purged := purgeTotal{}
	wg.Go(func() {
		for !stop.Load() {
			p, err := workers[3].Purge(b.ctx, 50)
			if err != nil {
				b.Errorf("purge: %v", err)
				return
			}
			purged.add(p)
		}
	})
	at(3, func(i int) {
		w := workers[i]
		for n := range 30 {
			c := fmt.Sprint("c", n%3)
			h, v, _, err := w.Begin(b.ctx, c, job(fmt.Sprint("j", i, "-", n), fmt.Sprint("m", i, "-", n)))
			if err != nil || h == nil {
				b.Errorf("begin: %+v, %v", v, err)
				return
			}
			q := w.effect(c, "tag", fmt.Sprint(i, "-", n))
			q.Policy = fence.NoChange
			got, _, err := h.Claim(b.ctx, q)
			if err != nil || got.Call == nil {
				b.Errorf("claim: %s, %v", verdict(got), err)
			} else if s, _, err := h.Settle(b.ctx, outcome(got, fence.Committed, "done")); err != nil || !s.Recorded || s.Vanished {
				b.Errorf("settle: %+v, %v", s, err)
			}
			if e, _, err := h.End(b.ctx, fence.EndSuccess); err != nil || e.Refusal != nil {
				b.Errorf("end: %+v, %v", e.Refusal, err)
			}
			h.Close()
		}
	})
	stop.Store(true)
	wg.Wait()
	p, err := workers[3].Purge(b.ctx, 1000)
	if err != nil {
		b.Fatal(err)
	}
	purged.add(p)
	known := 0
	for i := range 3 {
		for n := range 30 {
			where, found, err := workers[0].FindRun(b.ctx, job(fmt.Sprint("j", i, "-", n)).Run)
			if err != nil || found && where != fmt.Sprint("c", n%3) {
				b.Errorf("run %d-%d lives on %q, %v", i, n, where, err)
			}
			if found {
				known++
			}
		}
	}
	if purged.Runs == 0 || purged.Runs+known != 90 {
		b.Errorf("of 90 runs %d were purged and %d are in the directory", purged.Runs, known)
	}
}

// purgeTotal adds up what several purges did.
type purgeTotal ledger.Purged

func (p *purgeTotal) add(o ledger.Purged) {
	p.Runs += o.Runs
	p.Effects += o.Effects
	p.Others += o.Others
	p.Conversations += o.Conversations
}

func cancelsBeside(b *bench) {
	workers := b.workers(2)
	for n := range 40 {
		c, q := fmt.Sprint("c", n%4), job(fmt.Sprint("j", n), "m")
		var granted bool
		at(2, func(i int) {
			if i == 0 {
				v, err := workers[0].Cancel(b.ctx, fence.CancelRequest{Run: q.Run, By: "op"})
				if err != nil || !v.Cancelled {
					b.Errorf("cancel: %+v, %v", v, err)
				}
				return
			}
			h, v, _, err := workers[1].Begin(b.ctx, c, q)
			if err != nil || h == nil && (v.Refusal == nil || v.Refusal.Reason != fence.ReasonCancelled) {
				b.Errorf("begin: %+v, %v", v, err)
			}
			if h != nil {
				granted = true
				defer h.Close()
			}
		})
		// Whoever came first: from now on it is cancelled.
		again := q
		again.Nonce = newID()
		h, v, _, err := workers[n%2].Begin(b.ctx, c, again)
		if err != nil || h != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonCancelled {
			b.Errorf("round %d: Begin after a cancel (the first was granted: %v): %+v, %v", n, granted, v, err)
		}
	}
}

func beginsBeside(b *bench) {
	workers := b.workers(4)
	for n := range 10 {
		c := fmt.Sprint("c", n)
		handles := make([]*ledger.Handle, 8)
		at(8, func(i int) {
			w := workers[i%4]
			h, v, _, err := w.Begin(b.ctx, c, job(c+" j"))
			if err != nil || h == nil {
				b.Errorf("begin: %+v, %v", v, err)
				return
			}
			handles[i] = h
		})
		numbers := map[int64]bool{}
		right := 0
		for i, h := range handles {
			if h == nil {
				return
			}
			numbers[h.Delivery().ID.Number] = true
			v, _, err := h.Claim(b.ctx, workers[i%4].effect(c, "tag", fmt.Sprint(i)))
			if err != nil {
				b.Error(err)
			}
			if v.Call != nil {
				right++
				if h.Delivery().ID.Number != 8 {
					b.Errorf("delivery %d of 8 may write", h.Delivery().ID.Number)
				}
			}
			h.Close()
		}
		if len(numbers) != 8 || right != 1 {
			b.Errorf("8 deliveries have %d numbers, and %d of them may write", len(numbers), right)
		}
	}
}

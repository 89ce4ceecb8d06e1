package pgledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

func BenchmarkLedger(b *testing.B) {
	pool := poolOf(b, postgres(b))
	ledgertest.Benchmark(b, func(b *testing.B) ledger.Store {
		return opened(b, pool, pgledger.Config{Schema: fresh(b, pool)})
	})
}

// BenchmarkRatio measures the ledger against the least that a durable record of an effect can cost,
// one worker, all variants shuffled within each round: on a disk that others use too, nothing else can
// be compared. It reports medians and their ratios to the floor, an autocommitted INSERT and UPDATE
// of one row, and for replays to a SELECT by primary key.
func BenchmarkRatio(b *testing.B) {
	pool := poolOf(b, postgres(b))
	schema := fresh(b, pool)
	store := opened(b, pool, pgledger.Config{Schema: schema})
	run(b, pool, "create table "+schema+".bare (id text primary key, state int not null, body bytea)")
	h := begun(b, newLedger(store), "c", "j")
	done := effect("c", "done")
	settle(b, h, claim(b, h, done))
	ctx := b.Context()
	update := "update " + schema + ".bare set state = 1, body = $2 where id = $1"
	async := "with off as (select set_config('synchronous_commit', 'off', true)) update " + schema + ".bare set state = 1, body = $2 from off where id = $1 and off.set_config is not null"
	bare := func(update string) func(i int) {
		return func(i int) {
			id := fmt.Sprint(update[:1], i)
			run(b, pool, "insert into "+schema+".bare (id, state) values ($1, 0)", id)
			run(b, pool, update, id, []byte("done"))
		}
	}
	run(b, pool, "insert into "+schema+".bare (id, state) values ('fixed', 0)")
	variants := []struct {
		name string
		do   func(i int)
	}{
		{"floor", bare(update)},
		{"floor-async", bare(async)},
		{"once", func(i int) { settle(b, h, claim(b, h, effect("c", fmt.Sprint(i)))) }},
		{"select", func(int) { scalar[int](b, pool, "select state from "+schema+".bare where id = 'fixed'") }},
		{"replay", func(int) {
			q := done
			q.Claim = newID()
			if v, _, err := h.Claim(ctx, q); err != nil || v.Replay == nil {
				b.Fatalf("%+v, %v", v, err)
			}
		}},
		{"begin", func(i int) {
			h, v, _, err := newLedger(store).Begin(ctx, fmt.Sprint("new ", i), fence.BeginRequest{
				Run: fence.RunKey{Queue: "q", ID: fmt.Sprint("new ", i)}, Mode: fence.Supersede, Reads: fence.AfterBegin, Identity: fence.Identity{Nonce: newID()},
			})
			if err != nil || h == nil {
				b.Fatalf("%+v, %v", v, err)
			}
			h.Close()
		}},
	}
	took := make([][]time.Duration, len(variants))
	order := make([]int, len(variants))
	for i := range order {
		order[i] = i
	}
	n := 0
	for ; b.Loop(); n++ {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, v := range order {
			began := time.Now()
			variants[v].do(n)
			if n >= 10 || b.N < 20 { // statements are planned anew at first
				took[v] = append(took[v], time.Since(began))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	median := map[string]float64{}
	for i, v := range variants {
		slices.Sort(took[i])
		if len(took[i]) > 0 {
			median[v.name] = float64(took[i][len(took[i])/2].Microseconds())
			b.ReportMetric(median[v.name], v.name+"-µs")
		}
	}
	b.ReportMetric(median["once"]/median["floor"], "once/floor")
	b.ReportMetric(median["once"]/median["floor-async"], "once/floor-async")
	b.ReportMetric(median["begin"]/median["floor"], "begin/floor")
	b.ReportMetric(median["replay"]/median["select"], "replay/select")
}

// BenchmarkThroughput compares effects per second of many workers, each with a conversation of its
// own, with the floor of BenchmarkRatio, in short alternating spells. One iteration is one spell of each.
func BenchmarkThroughput(b *testing.B) {
	const spell = 300 * time.Millisecond
	for _, workers := range []int{8, 32} {
		b.Run(fmt.Sprint(workers, " workers"), func(b *testing.B) {
			pool := poolOf(b, postgres(b), func(c *pgxpool.Config) { c.MaxConns = int32(workers) })
			schema := fresh(b, pool)
			store := opened(b, pool, pgledger.Config{Schema: schema})
			run(b, pool, "create table "+schema+".bare (id text primary key, state int not null, body bytea)")
			handles := make([]*ledger.Handle, workers)
			for i := range handles {
				handles[i] = begun(b, newLedger(store), fmt.Sprint("c", i), fmt.Sprint("j", i))
			}
			var drawn atomic.Int64
			once := func(worker int) {
				settle(b, handles[worker], claim(b, handles[worker], effect(fmt.Sprint("c", worker), fmt.Sprint(drawn.Add(1)))))
			}
			floor := func(int) {
				id := fmt.Sprint(drawn.Add(1))
				run(b, pool, "insert into "+schema+".bare (id, state) values ($1, 0)", id)
				run(b, pool, "update "+schema+".bare set state = 1, body = $2 where id = $1", id, []byte("done"))
			}
			count := func(do func(worker int)) float64 {
				var n atomic.Int64
				var wg sync.WaitGroup
				until := time.Now().Add(spell)
				for worker := range workers {
					wg.Go(func() {
						for time.Now().Before(until) {
							do(worker)
							n.Add(1)
						}
					})
				}
				wg.Wait()
				return float64(n.Load())
			}
			count(once)
			count(floor)
			var onces, floors float64
			n := 0
			for ; b.Loop(); n++ {
				if rand.IntN(2) == 0 {
					onces += count(once)
					floors += count(floor)
				} else {
					floors += count(floor)
					onces += count(once)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(onces/spell.Seconds()/float64(n), "once/s")
			b.ReportMetric(floors/spell.Seconds()/float64(n), "floor/s")
			b.ReportMetric(onces/floors, "once/floor")
		})
	}
}

package redisledger_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/ledgertest"
)

func BenchmarkLedger(b *testing.B) {
	ledgertest.Benchmark(b, func(b *testing.B) ledger.Store { return fresh(b, plain(b)) })
}

func BenchmarkLedgerOnCluster(b *testing.B) {
	ledgertest.Benchmark(b, func(b *testing.B) ledger.Store { return fresh(b, cluster(b)) })
}

// BenchmarkFloor compares the two writes of an effect with what people write by hand, SET NX before
// it and SET after it. The machine's noise is larger than the difference between runs, so all are
// measured in one loop, shuffled, and compared by their medians.
func BenchmarkFloor(b *testing.B) {
	client := plain(b)
	store := fresh(b, client)
	prefix := "test-" + rand.Text()
	deleteLater(b, client, prefix)
	ctx := b.Context()
	body := []byte(fmt.Sprintf("%0500d", 0))
	head := ledger.NewRow("", fence.Index{Due: 1}, []byte(fmt.Sprintf("%0400d", 0)))
	tag := ""
	apply := func(w ledger.Write) {
		w.Tag, w.NewTag, w.Head = tag, rand.Text(), head
		r, err := store.Apply(ctx, "c", w)
		if err != nil || !r.Applied {
			b.Fatal(r, err)
		}
		tag = w.NewTag
	}
	n := 0
	variants := []struct {
		name string
		once func(key string)
	}{
		{"floor", func(key string) {
			// What becomes of the reply is the same for all: an error ends the benchmark.
			if ok, err := client.SetNX(ctx, prefix+":"+key, body, 0).Result(); err != nil || !ok {
				b.Fatal(ok, err)
			}
			if err := client.Set(ctx, prefix+":"+key, body, 0).Err(); err != nil {
				b.Fatal(err)
			}
		}},
		{"once", func(key string) {
			apply(ledger.Write{Absent: []string{key}, Put: []ledger.Row{ledger.NewRow(key, fence.Index{Open: fence.UnresolvedEffect, At: 5}, body)}, Durable: true})
			apply(ledger.Write{Put: []ledger.Row{ledger.NewRow(key, fence.Index{Landed: int64(n), Due: 9}, body)}})
		}},
		{"replay", func(string) {
			if snap, err := store.Load(ctx, "c", ledger.Query{Keys: []string{"e/1"}}); err != nil || snap.Tag != tag {
				b.Fatal(snap, err)
			}
		}},
		{"get", func(string) {
			if err := client.Get(ctx, prefix+":0").Err(); err != nil && !errors.Is(err, redis.Nil) {
				b.Fatal(err)
			}
		}},
	}
	took := make([][]time.Duration, len(variants))
	apply(ledger.Write{})
	for b.Loop() {
		for _, i := range mathrand.Perm(len(variants)) {
			n++
			key := fmt.Sprint("e/", n)
			start := time.Now()
			variants[i].once(key)
			took[i] = append(took[i], time.Since(start))
		}
	}
	median := func(i int) float64 {
		slices.Sort(took[i])
		return float64(took[i][len(took[i])/2])
	}
	for i, v := range variants {
		b.ReportMetric(math.Round(median(i)/100)/10, v.name+"-µs")
	}
	b.ReportMetric(median(1)/median(0), "once/floor")
	b.ReportMetric(median(2)/median(3), "replay/get")
	b.ReportMetric(0, "ns/op")
}

package runs_test

import (
	"context"
	"testing"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func benchmark(b *testing.B, key func(i int) runs.EffectKey) {
	k, err := runs.New(memledger.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	err = k.Do(b.Context(), job(1), func(ctx context.Context) error {
		run := runs.FromContext(ctx)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := run.Once(ctx, runs.Effect{Intent: "tag", Key: key(i)}, nothing); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOnce is a fresh effect: claim, call, settle.
func BenchmarkOnce(b *testing.B) {
	benchmark(b, func(i int) runs.EffectKey { return runs.Key("n", i) })
}

func BenchmarkReplay(b *testing.B) {
	benchmark(b, func(int) runs.EffectKey { return runs.ID("x") })
}

// BenchmarkDeliver is a whole job that does nothing.
func BenchmarkDeliver(b *testing.B) {
	k, err := runs.New(memledger.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := k.Do(b.Context(), job(1), failing); err == nil {
			b.Fatal("no error")
		}
	}
}

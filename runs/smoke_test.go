package runs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func TestSmoke(t *testing.T) {
	k, err := runs.New(memledger.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	job := runs.Job{Queue: "q", ID: "1", Conversation: "c", Inbound: []string{"m1"}, Reads: runs.AfterBegin, Order: runs.Order{Source: "seq", Number: 1}}
	n := 0
	h := func(ctx context.Context) error {
		return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
			open := view.OpenIDs()
			t.Log("open", open)
			if len(open) == 0 {
				return nil
			}
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open, Summary: "hi"}, func(ctx context.Context, call *runs.Call) error {
				n++
				return nil
			})
		})
	}
	v := k.Deliver(t.Context(), job, runs.Delivery{}, func(ctx context.Context) error {
		if err := h(ctx); err != nil {
			return err
		}
		return errors.New("boom")
	})
	t.Logf("%+v", v)
	v = k.Deliver(t.Context(), job, runs.Delivery{}, h)
	t.Logf("%+v", v)
	v = k.Deliver(t.Context(), job, runs.Delivery{}, h)
	t.Logf("%+v", v)
	if n != 1 {
		t.Fatal(n)
	}
	hist, err := k.History(t.Context(), "c")
	t.Log(err, len(hist.Effects), len(hist.Runs), hist.Inbound[0].Closed())
}

func BenchmarkOnce(b *testing.B) {
	k, _ := runs.New(memledger.New(), nil)
	defer k.Close()
	job := runs.Job{Queue: "q", ID: "1", Conversation: "c", NoInbound: true, Reads: runs.AfterBegin}
	_ = k.Do(b.Context(), job, func(ctx context.Context) error {
		r := runs.FromContext(ctx)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			if err := r.Once(ctx, runs.Effect{Intent: "tag", Key: runs.Key("n", i)}, func(context.Context, *runs.Call) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		return nil
	})
}

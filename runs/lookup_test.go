package runs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

func TestAVerdictBringsTheValueThatReplaysReturn(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		p.deliver(job(1), func(ctx context.Context) error {
			_, err := refund.Once(ctx, runs.ID("o1"), func(context.Context, *runs.Call) (receipt, error) { return receipt{}, errors.New("reset") })
			return err
		})
		id := p.effect("c").ID
		for _, bad := range []runs.Resolution{
			{By: "anna", Value: []byte(`{}`)},
			{By: "anna", Happened: true, Value: []byte(`{`)},
			{By: "anna", Happened: true, Value: make([]byte, 64<<10+1)},
		} {
			if _, _, err := p.Resolve(b.Context(), "c", id, bad); err == nil {
				b.Errorf("%.20s is taken for a value", bad.Value)
			}
		}
		if _, _, err := p.Resolve(b.Context(), "c", id, runs.Resolution{By: "anna", Happened: true, Force: true, Value: []byte(`{"ID":"re_77"}`)}); err != nil {
			b.Fatal(err)
		}
		again := receipt{}
		v := p.deliver(job(1), func(ctx context.Context) (err error) {
			again, err = refund.Once(ctx, runs.ID("o1"), func(context.Context, *runs.Call) (receipt, error) {
				b.Error("called again")
				return receipt{}, nil
			})
			return err
		})
		if v.Action != runs.ActionDone || again.ID != "re_77" {
			b.Errorf("got %+v, %+v", v, again)
		}
	})
}

func TestARunIsFoundByItsKey(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		j := job(1)
		key := runs.RunKey{Queue: j.Queue, ID: j.ID}
		find := func(conversation string, known bool) {
			b.Helper()
			c, ok, err := p.FindRun(b.Context(), key)
			if c != conversation || ok != known || err != nil {
				b.Errorf("got %q, %v, %v, want %q, %v", c, ok, err, conversation, known)
			}
		}
		find("", false)
		p.deliver(j, func(context.Context) error {
			if live := p.history("c").Live; len(live) != 1 || live[0].Run != key || live[0].Delivery.Number != 1 {
				b.Errorf("at work are %+v", live)
			}
			return nil
		})
		find("c", true)
		if live := p.history("c").Live; len(live) != 0 {
			b.Errorf("at work are %+v", live)
		}
		key.ID = "never came"
		if _, err := p.Cancel(b.Context(), key, runs.CancelOptions{}); err != nil {
			b.Fatal(err)
		}
		find("", true)
		if _, _, err := p.FindRun(b.Context(), runs.RunKey{Queue: "q"}); err == nil {
			b.Error("an empty id is taken")
		}
	})
}

// An operator's age keeps records longer than their retention, never shorter; the count is what
// the purge then deletes.
func TestPurgeOlderKeepsWhatIsYoung(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		p.deliver(job(1, "m1"), func(ctx context.Context) error {
			return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(_ context.Context, call *runs.Call) error {
				call.SetReference("msg_1")
				return nil
			})
		})
		purge := func(older time.Duration, want runs.Purged) {
			b.Helper()
			count, err := p.CountPurge(b.Context(), older, 0)
			if err != nil {
				b.Fatal(err)
			}
			got, err := p.PurgeOlder(b.Context(), older, 100)
			if got != want || err != nil {
				b.Errorf("purged %+v, %v, want %+v", got, err, want)
			}
			if want.Conversations = 0; count != want {
				b.Errorf("counted %+v, want %+v", count, want)
			}
		}
		none := runs.Purged{}
		time.Sleep(29 * 24 * time.Hour)
		purge(0, none)
		time.Sleep(2 * 24 * time.Hour)
		purge(32*24*time.Hour, none)
		for _, limit := range []int{1, 2} {
			if n, err := p.CountPurge(b.Context(), 0, limit); !n.More || err != nil {
				b.Errorf("a count of %d says %+v, %v", limit, n, err)
			}
		}
		purge(31*24*time.Hour-time.Minute, runs.Purged{Runs: 1, Effects: 1, Others: 2, Conversations: 1})
		purge(0, none)
		if _, err := p.PurgeOlder(b.Context(), -1, 1); err == nil {
			b.Error("a negative age is taken")
		}
		if _, err := p.PurgeOlder(b.Context(), 0, 0); err == nil {
			b.Error("no limit is taken")
		}
	})
}

func TestACountOfAPurgeKeepsWhatIsUnknown(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		p.deliver(job(1), func(ctx context.Context) error {
			_, err := refund.Once(ctx, runs.ID("o1"), func(context.Context, *runs.Call) (receipt, error) { return receipt{}, errors.New("reset") })
			return err
		})
		time.Sleep(365 * 24 * time.Hour)
		if n, err := p.CountPurge(b.Context(), 0, 0); n != (runs.Purged{}) || err != nil {
			b.Errorf("counted %+v, %v", n, err)
		}
	})
}

package runs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

func numbered(i int) runs.Job {
	j := job(1)
	j.ID, j.Conversation = fmt.Sprint(i), fmt.Sprint("c", i)
	return j
}

func TestOneStatementAPeriodRenewsTheLeasesOfAllRuns(t *testing.T) {
	for _, many := range []int{1, 100} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				asked := make(chan int, 100)
				p.spy.OnRenew(func(_ context.Context, k []ledger.LeaseKey) error {
					asked <- len(k)
					return nil
				})
				var wg sync.WaitGroup
				for i := range many {
					wg.Go(func() {
						v := p.deliver(numbered(i), func(ctx context.Context) error {
							// Its own writes are no news to it.
							if err := once(ctx, tag("x"), nothing); err != nil {
								b.Error(err)
							}
							time.Sleep(65 * time.Second)
							return nil
						})
						wantVerdict(b, v, runs.ActionDone, "")
					})
				}
				time.Sleep(time.Second)
				loads := p.spy.count(&p.spy.loads)
				time.Sleep(63 * time.Second)
				if len(asked) != 6 {
					b.Errorf("renewed %d times", len(asked))
				}
				for range len(asked) {
					if n := <-asked; n != many {
						b.Errorf("renewed %d leases", n)
					}
				}
				if p.spy.count(&p.spy.loads) != loads {
					b.Errorf("%d loads though nothing moved", p.spy.count(&p.spy.loads)-loads)
				}
				wg.Wait()
			})
		})
	}
}

func TestABeatTellsARunThatItWasSuperseded(t *testing.T) {
	for name, same := range map[string]bool{"by the same process": true, "by another": false} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(b *bench) {
				p := b.process()
				q := p
				if !same {
					q = b.process()
				}
				began := time.Now()
				v := p.deliver(job(1), func(ctx context.Context) error {
					done := make(chan struct{})
					go func() {
						defer close(done)
						time.Sleep(3 * time.Second)
						_ = q.deliver(job(2), func(context.Context) error { time.Sleep(15 * time.Second); return nil })
					}()
					<-ctx.Done() // a model call that takes for ever
					if took := time.Since(began); took != 10*time.Second {
						b.Errorf("learned after %v", took)
					}
					if !errors.Is(context.Cause(ctx), runs.ErrSuperseded) {
						b.Errorf("cause %v", context.Cause(ctx))
					}
					err := context.Cause(ctx)
					<-done
					return err
				})
				wantVerdict(b, v, runs.ActionComeBack, "superseded")
				if told := p.told("lease_lost"); len(told) != 1 || told[0].Reason != "superseded" {
					b.Errorf("told %v", told)
				}
			})
		})
	}
}

func TestABeatTellsARunThatItWasCancelledOrIsStale(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		v := p.deliver(job(1), func(ctx context.Context) error {
			if _, err := q.Cancel(ctx, key(job(1)), runs.CancelOptions{By: "me"}); err != nil {
				b.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantVerdict(b, v, runs.ActionDrop, "cancelled")
		v = p.deliver(job(2), func(ctx context.Context) error {
			_ = q.deliver(job(2), func(context.Context) error { return errors.New("later") })
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantVerdict(b, v, runs.ActionStale, "superseded")
	})
}

func TestLostToldAnEffectUnderWayAndItsCtxIsNotCancelled(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		v := p.deliver(job(1), func(ctx context.Context) error {
			return once(ctx, tag("x"), func(ctx context.Context, call *runs.Call) error {
				select {
				case <-call.Lost():
					b.Error("lost before anything happened")
				default:
				}
				_ = q.deliver(job(2), func(context.Context) error { time.Sleep(15 * time.Second); return nil })
				<-call.Lost()
				if ctx.Err() != nil {
					b.Errorf("the effect was cancelled: %v", ctx.Err())
				}
				return nil
			})
		})
		wantVerdict(b, v, runs.ActionComeBack, "superseded")
		if e := p.effect("c"); e.State() != "committed" {
			b.Errorf("is %s", e.State())
		}
	})
}

func TestRenewalEndsWithTheQueuesCtxThoughTheHandlerIgnoresIt(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		ctx, cancel := context.WithCancel(b.Context())
		hung := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Deliver(ctx, exclusive(job(1)), runs.Delivery{}, func(context.Context) error { <-hung; return nil })
		}()
		time.Sleep(25 * time.Second)
		cancel()
		renews := p.spy.count(&p.spy.renews)
		wantVerdict(b, q.deliver(exclusive(job(2)), idle), runs.ActionComeBack, "busy")
		time.Sleep(31 * time.Second)
		wantVerdict(b, q.deliver(exclusive(job(2)), idle), runs.ActionDone, "")
		if p.spy.count(&p.spy.renews) != renews {
			b.Errorf("renewed %d times after the queue's ctx was done", p.spy.count(&p.spy.renews)-renews)
		}
		close(hung)
		<-done
	})
}

func TestRenewalEndsWhenAHandlerReturnsPanicsOrLeaves(t *testing.T) {
	for name, handler := range map[string]func(context.Context) error{
		"returns": idle,
		"panics":  func(context.Context) error { panic("boom") },
		"leaves":  func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_ = p.deliver(job(1), handler)
				}()
				<-done
				time.Sleep(time.Hour)
				if p.spy.count(&p.spy.renews) != 0 {
					b.Errorf("renewed %d times", p.spy.count(&p.spy.renews))
				}
			})
		})
	}
}

func TestOneFailedBeatIsNotLossAndIsTriedAgainSoon(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		var beats atomic.Int32
		p.spy.OnRenew(func(context.Context, []ledger.LeaseKey) error {
			if beats.Add(1) <= 2 {
				return errors.New("connection reset")
			}
			return nil
		})
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			time.Sleep(16 * time.Second) // the beats of 10 s and 12.5 s fail, that of 15 s lands
			if n := beats.Load(); n != 3 {
				b.Errorf("beat %d times", n)
			}
			time.Sleep(24 * time.Second)
			wantVerdict(b, q.deliver(exclusive(job(2)), idle), runs.ActionComeBack, "busy")
			return context.Cause(ctx)
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if told := p.told("ledger_error"); len(told) != 2 || told[0].Text != "renew" {
			b.Errorf("told %v", told)
		}
	})
}

func TestABeatThatHangsIsGivenUpInsideTheLease(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		var asked atomic.Int32
		p.spy.OnRenew(func(ctx context.Context, _ []ledger.LeaseKey) error {
			if asked.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		v := p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			time.Sleep(2 * time.Minute)
			return context.Cause(ctx)
		})
		wantVerdict(b, v, runs.ActionDone, "")
	})
}

func TestASlowLedgerDoesNotSlowTheBeatDown(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		p.spy.OnRenew(func(context.Context, []ledger.LeaseKey) error { time.Sleep(4 * time.Second); return nil })
		_ = p.deliver(job(1), func(context.Context) error { time.Sleep(101 * time.Second); return nil })
		if n := p.spy.count(&p.spy.renews); n != 10 {
			b.Errorf("%d beats in 100 s", n)
		}
	})
}

func TestConversationsThatHangKeepNoOtherFromLearning(t *testing.T) {
	onMemory(t, func(b *bench) {
		p, q := b.process(), b.process()
		var wg sync.WaitGroup
		hang := make(chan struct{})
		p.spy.OnLoad(func(ctx context.Context) error {
			if ctx.Value(hangs{}) != nil {
				<-hang
			}
			return nil
		})
		// These runs wait in the ledger for ever, each holding its conversation in this process,
		// and were there first.
		for i := range 6 {
			wg.Go(func() {
				_ = p.deliver(numbered(i), func(ctx context.Context) error {
					meanwhileOn(b, q, fmt.Sprint("c", i))
					_, err := runs.FromContext(ctx).CatchUp(context.WithValue(ctx, hangs{}, true))
					return err
				})
			})
		}
		time.Sleep(time.Second)
		// Another is superseded meanwhile.
		late := numbered(9)
		newer := late
		newer.ID, newer.Order.Number = "newer", 2
		wg.Go(func() {
			v := p.deliver(late, func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			wantVerdict(b, v, runs.ActionComeBack, "superseded")
		})
		time.Sleep(time.Second)
		_ = q.deliver(newer, func(context.Context) error { time.Sleep(time.Minute); return nil })
		if told := p.told("lease_lost"); len(told) != 1 {
			b.Errorf("told %v", told)
		}
		close(hang)
		wg.Wait()
	})
}

type hangs struct{}

func meanwhileOn(b *bench, p *process, conversation string) {
	if _, err := p.Report(b.Context(), conversation, runs.Write{ID: "w"}); err != nil {
		b.Error(err)
	}
}

func TestALapsedLeaseThatNobodyUsedIsTakenUpAgain(t *testing.T) {
	onEach(t, func(b *bench) {
		p, q := b.process(), b.process()
		v := p.deliver(job(1), func(ctx context.Context) error {
			p.spy.breaks(errors.New("partitioned"))
			time.Sleep(31 * time.Second) // the lease lapses
			// A peer sweeps the lapsed seat away and is gone again.
			peer := job(2)
			peer.Order.Source = "another"
			wantVerdict(b, q.deliver(peer, idle), runs.ActionDone, "")
			p.spy.breaks(nil)
			time.Sleep(3 * time.Second)
			// In mode supersede a lease only says who is alive; this one is again.
			if told := p.told("lease_rejoined"); len(told) != 1 {
				b.Errorf("told %v", told)
			}
			return once(ctx, tag("x"), nothing)
		})
		wantVerdict(b, v, runs.ActionDone, "")
	})
}

func TestABeatThatCrossesTheHandlersReturnTakesNoLeaseUpAgain(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		beating, released := make(chan struct{}), make(chan struct{})
		p.spy.OnRenew(func(context.Context, []ledger.LeaseKey) error {
			close(beating)
			<-released
			return nil
		})
		v := p.deliver(job(1), func(context.Context) error {
			<-beating
			return errors.New("later")
		})
		wantVerdict(b, v, runs.ActionReturn, "")
		// Nor is it lost, now that nobody holds it.
		cancel(b, b.process(), job(1))
		close(released)
		synctest.Wait()
		if told := p.told("lease_lost"); len(told) != 0 {
			b.Errorf("told %v", told)
		}
	})
	onEach(t, func(b *bench) {
		p := b.process()
		beating, released := make(chan struct{}), make(chan struct{})
		p.spy.OnRenew(func(context.Context, []ledger.LeaseKey) error {
			close(beating)
			<-released
			return nil
		})
		_ = p.deliver(job(1), func(context.Context) error {
			<-beating
			return errors.New("later")
		})
		close(released)
		synctest.Wait()
		wantVerdict(b, p.deliver(exclusive(job(2)), idle), runs.ActionDone, "")
	})
}

func TestALedgerThatBlinksDoesNotKillAHealthyModelCall(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		v := p.deliver(job(1), func(ctx context.Context) error {
			p.spy.breaks(errors.New("down"))
			time.Sleep(10 * time.Minute)
			if ctx.Err() != nil {
				b.Errorf("cancelled: %v", context.Cause(ctx))
			}
			p.spy.breaks(nil)
			return once(ctx, tag("x"), nothing)
		})
		wantVerdict(b, v, runs.ActionDone, "")
	})
}

func TestCloseWaitsForTheBeatingGoroutine(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		in, out := make(chan struct{}), make(chan struct{})
		p.spy.OnRenew(func(ctx context.Context, _ []ledger.LeaseKey) error {
			close(in)
			<-ctx.Done()
			time.Sleep(time.Second) // a store that is slow to notice
			return ctx.Err()
		})
		go func() {
			defer close(out)
			_ = p.deliver(job(1), func(context.Context) error { time.Sleep(30 * time.Second); return nil })
		}()
		<-in
		start := time.Now()
		if err := p.Close(); err != nil {
			b.Error(err)
		}
		if took := time.Since(start); took != time.Second {
			b.Errorf("Close took %v", took)
		}
		<-out
	})
}

func TestTheBeatingGoroutineEndsWithTheLastRunAndComesBackWithTheNext(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		for range 3 {
			v := p.deliver(job(1), func(ctx context.Context) error {
				time.Sleep(45 * time.Second)
				return errors.New("later")
			})
			wantVerdict(b, v, runs.ActionReturn, "")
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if p.spy.count(&p.spy.renews) != 12 {
			b.Errorf("renewed %d times", p.spy.count(&p.spy.renews))
		}
	})
}

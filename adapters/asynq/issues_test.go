package asynqruns_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/runs"
)

// What users of Asynq have reported, played on the real Asynq with the adapter, with
// the outcomes that docs/semantics.md decides. Here: one task and its deliveries.

// https://github.com/hibiken/asynq/issues/642: a task that did its work is run again
// because it returned a moment after its deadline. A half-minute stands for the half
// hour that a task has by default.
func TestQ01TaskThatReturnsAfterItsDeadlineIsNotDoneTwice(t *testing.T) {
	const timeout = 30 * time.Second
	for name, c := range map[string]struct {
		delay   time.Duration // of Asynq's retry
		follow  func(ctx context.Context) context.Context
		refused error // what the follow-up of the first delivery meets
		entered string
		again   int // finished_again
	}{
		"ctx respected":       {time.Second, func(ctx context.Context) context.Context { return ctx }, context.DeadlineExceeded, "[w:j/0 w:j/1]", 0},
		"ended before retry":  {time.Minute, context.WithoutCancel, nil, "[w:j/0]", 1},
		"retried before ends": {time.Second, context.WithoutCancel, runs.ErrSuperseded, "[w:j/0 w:j/1]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				s.delay = c.delay
				w := s.process("w")
				w.serve(func(ctx context.Context, p *process, _ *asynq.Task) error {
					first := s.entered.len() == 1
					if first {
						time.Sleep(timeout - time.Second)
					}
					if err := p.act(ctx, "charge o1"); err != nil {
						return err
					}
					if !first {
						time.Sleep(20 * time.Second) // the first one's follow-up comes meanwhile
						return p.act(ctx, "enqueue more")
					}
					time.Sleep(15 * time.Second)
					err := p.act(c.follow(ctx), "enqueue more")
					if !errors.Is(err, c.refused) {
						t.Errorf("the follow-up of the first delivery: %v, want %v", err, c.refused)
					}
					return err
				})
				s.task("j", nil, asynq.Timeout(timeout))
				s.untilGone("j")
				time.Sleep(time.Minute)
				s.wantSent("[charge o1 enqueue more]")
				s.wantEntered(c.entered)
				if n := s.told(runs.EventFinishedAgain); n != c.again {
					t.Errorf("finished_again was told %d times, want %d", n, c.again)
				}
			})
		})
	}
}

// https://github.com/hibiken/asynq/issues/532: CancelProcessing makes a retry,
// whatever the handler returns.
func TestQ02CancelledProcessingRepeatsNothing(t *testing.T) {
	handler := func(ctx context.Context, p *process, task *asynq.Task) error {
		err := p.act(ctx, "note "+string(task.Payload()))
		if string(task.Payload()) == "j" && p.entered.len() == 1 {
			<-ctx.Done()
			return asynq.SkipRetry
		}
		return err
	}
	play := func(t *testing.T, f func(s *site)) {
		t.Helper()
		onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
			s.delay = 30 * time.Second
			s.process("w").serve(handler)
			s.task("j", nil, asynq.Retention(time.Hour))
			s.untilEntered(1)
			time.Sleep(5 * time.Second)
			if err := s.Inspector.CancelProcessing("j"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if info := wantState(t, s.Bench, "j", asynq.TaskStateRetry); info.Retried != 1 {
				t.Errorf("retried %d, want 1", info.Retried)
			}
			f(s)
		})
	}
	t.Run("resumed", func(t *testing.T) {
		play(t, func(s *site) {
			time.Sleep(time.Minute)
			wantState(t, s.Bench, "j", asynq.TaskStateCompleted)
			s.wantSent("[note j]")
			s.wantEntered("[w:j/0 w:j/1]")
		})
	})
	t.Run("superseded meanwhile", func(t *testing.T) {
		play(t, func(s *site) {
			s.task("newer", nil)
			time.Sleep(time.Minute)
			info := wantState(t, s.Bench, "j", asynq.TaskStateCompleted)
			if !strings.Contains(string(info.Result), "superseded") {
				t.Errorf("Result = %q, want a note that says so", info.Result)
			}
			s.wantSent("[note j note newer]")
			s.wantEntered("[w:j/0 w:newer/0]")
		})
	})
}

// https://github.com/hibiken/asynq/issues/524: a handler that ignores its ctx goes
// on after it was superseded.
func TestQ03HandlerThatIgnoresItsCtxIsRefused(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		begun, asked := make(gate), make(gate)
		s.process("w").serve(func(ctx context.Context, p *process, task *asynq.Task) error {
			if string(task.Payload()) == "b" {
				begun.open()
				s.wait(asked)
				return p.act(ctx, "reply m2")
			}
			s.wait(begun)
			time.Sleep(30 * time.Second) // a heartbeat has told it
			if cause := context.Cause(ctx); !errors.Is(cause, runs.ErrSuperseded) {
				t.Errorf("cause of a's ctx: %v, want superseded", cause)
			}
			err := p.act(context.WithoutCancel(ctx), "reply m1")
			if !errors.Is(err, runs.ErrSuperseded) {
				t.Errorf("a's effect: %v, want superseded", err)
			}
			asked.open()
			return nil // and swallows it
		})
		s.task("a", nil)
		s.untilEntered(1)
		s.task("b", nil)
		s.untilGone("b")
		s.untilGone("a")
		s.wantSent("[reply m2]")
		s.wantEntered("[w:a/0 w:b/0]")
	})
}

// https://github.com/hibiken/asynq/issues/612, 799, 1030: "task lease expired". The
// worker lost touch with Redis, its handler lives on, and another worker has the task.
func TestQ04WorkerThatLostItsLease(t *testing.T) {
	t.Run("writes nothing after the takeover", func(t *testing.T) {
		onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
			taken, asked := make(gate), make(gate)
			w1, w2 := s.process("w1"), s.process("w2")
			handler := func(ctx context.Context, p *process, _ *asynq.Task) error {
				if p == w2 {
					taken.open()
					s.wait(asked)
					return p.act(ctx, "reply m1")
				}
				s.wait(taken)
				if ctx.Err() == nil {
					t.Error("asynq did not cancel the ctx of the lease that it lost")
				}
				err := p.act(context.WithoutCancel(ctx), "reply m1")
				if !errors.Is(err, runs.ErrSuperseded) {
					t.Errorf("the zombie's effect: %v, want superseded", err)
				}
				asked.open()
				return err
			}
			w1.serve(handler)
			s.task("j", []string{"m1"})
			s.untilEntered(1)
			w1.redis.down.Store(true)
			w2.serve(handler)
			s.untilGone("j")
			s.wantSent("[reply m1]")
			s.wantEntered("[w1:j/0 w2:j/1]")
		})
	})
	t.Run("and died with an effect under way", func(t *testing.T) {
		onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
			w1, w2 := s.process("w1"), s.process("w2")
			handler := func(ctx context.Context, p *process, _ *asynq.Task) error {
				if p == w1 {
					return p.actAndDie(ctx, "reply m1", true)
				}
				return p.act(ctx, "reply m1")
			}
			w1.serve(handler)
			s.task("j", []string{"m1"})
			s.untilEntered(1)
			w2.serve(handler)
			info := s.untilArchived("j")
			if info.Retried != 1 || !strings.Contains(info.LastErr, "unknown") {
				t.Errorf("retried %d, %q, want 1 for the crash, and that the outcome is unknown", info.Retried, info.LastErr)
			}
			s.wantSent("[reply m1]")
			s.resolve(true)
			s.runTask("j")
			s.untilGone("j")
			s.wantSent("[reply m1]")
		})
	})
}

// https://github.com/hibiken/asynq/issues/1015: a worker killed with a task of
// MaxRetry(0). Asynq archives it; an operator runs it again, under the same count.
func TestQ05KilledOnItsOnlyAttemptIsResumedByAnOperator(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		w1, w2 := s.process("w1"), s.process("w2")
		handler := func(ctx context.Context, p *process, _ *asynq.Task) error {
			if err := p.act(ctx, "note found"); err != nil {
				return err
			}
			if p == w1 {
				return p.actAndDie(ctx, "refund o1", false)
			}
			return p.act(ctx, "refund o1")
		}
		w1.serve(handler)
		s.task("j", nil, asynq.MaxRetry(0))
		s.untilEntered(1)
		w2.serve(handler)
		if info := s.untilArchived("j"); info.LastErr != asynq.ErrLeaseExpired.Error() {
			t.Errorf("archived with %q, want asynq's own lease expired", info.LastErr)
		}
		time.Sleep(5 * time.Minute)

		s.runTask("j")
		time.Sleep(time.Minute)
		if info := s.untilArchived("j"); !strings.Contains(info.LastErr, "unknown") {
			t.Errorf("archived with %q, want that the outcome is unknown", info.LastErr)
		}
		s.wantSent("[note found]") // replayed
		s.resolve(false)           // nothing arrived there
		s.runTask("j")
		s.untilGone("j")
		s.wantSent("[note found refund o1]")
		s.wantEntered("[w1:j/0 w2:j/0 w2:j/0]")
	})
}

// https://github.com/hibiken/asynq/issues/764: a crashed worker's task is gone, with
// a lease of it left behind. New work under its id is new work.
func TestQ06NewWorkUnderTheIDOfALostTaskIsHandled(t *testing.T) {
	for name, finished := range map[string]bool{"the run had not ended": false, "the run had ended": true} {
		t.Run(name, func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				w1, w2 := s.process("w1"), s.process("w2")
				what := map[*process]string{w1: "note one", w2: "tag two"}
				handler := func(ctx context.Context, p *process, _ *asynq.Task) error {
					err := p.act(ctx, what[p])
					if p == w1 {
						w1.redis.down.Store(true) // whether or not it ends its run
						if !finished {
							w1.kill()
						}
					}
					return err
				}
				w1.serve(handler)
				s.task("j", nil)
				s.untilEntered(1)
				s.Mini.Del("asynq:{default}:t:j")
				time.Sleep(5 * time.Minute)
				if got, err := s.Mini.ZScore(leaseKey, "j"); err != nil || got == 0 {
					t.Fatalf("lease %v, %v, want it left behind", got, err)
				}

				// Asynq's recoverer must not look before the task has a lease of its own: it would bring
				// the new task back for the old lease, beside the first delivery of it.
				w2.serve(handler)
				time.Sleep(5 * time.Second)
				s.task("j", nil)
				s.untilEntered(2)
				s.untilGone("j")
				s.wantSent("[note one tag two]")
				s.wantEntered("[w1:j/0 w2:j/0]")
				kind := runs.EventDigestChanged // the run goes on with a payload that somebody changed
				if finished {
					kind = runs.EventNewGeneration
				}
				if n := s.told(kind); n != 1 {
					t.Errorf("%s was told %d times, want 1", kind, n)
				}
				if n := s.told(runs.EventFinishedAgain); n != 0 {
					t.Errorf("new work was taken for finished %d times", n)
				}
			})
		})
	}
}

// https://github.com/hibiken/asynq/issues/717: two recoverers bring one task back
// twice, under one retry count.
func TestQ07TwoRecoverersDoItOnce(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		w1 := s.process("w1")
		w1.serve(func(_ context.Context, p *process, _ *asynq.Task) error {
			p.kill()
			p.hang()
			return nil
		})
		s.task("j", []string{"m1"})
		s.untilEntered(1)

		third, fourth := make(gate), make(gate)
		entered := make(chan struct{}, 2)
		w := s.process("w")
		release := raceOfRecoverers(s.Bench, w.fenced.Config(asynq.Config{
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
		}), "j", w.fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			n := runs.FromContext(ctx).Delivery()
			s.entered.add(strings.Repeat("I", int(n)))
			if retried(ctx) != 1 {
				t.Errorf("retry count %d, want 1", retried(ctx))
			}
			entered <- struct{}{}
			if n == 2 {
				s.wait(third)
				err := w.act(ctx, "reply m1")
				if !errors.Is(err, runs.ErrSuperseded) {
					t.Errorf("the older delivery's effect: %v, want superseded", err)
				}
				fourth.open()
				return err
			}
			third.open()
			s.wait(fourth)
			return w.act(ctx, "reply m1")
		})))
		<-entered
		release()
		<-entered
		s.untilGone("j")
		time.Sleep(time.Minute)
		s.wantSent("[reply m1]")
		s.wantEntered("[w1:j/0 II III]")
	})
}

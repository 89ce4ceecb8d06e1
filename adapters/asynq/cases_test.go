package asynqruns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	"github.com/fencedrun/fencedrun/runs"
)

// Field cases that concern Asynq, on the real Asynq: what people have reported of
// their own systems.

// A worker loses touch with Redis for longer than a lease, does its work, and
// cannot say so.
//
// https://github.com/hibiken/asynq/issues/1030
// https://github.com/hibiken/asynq/issues/612
func TestF01QueueForgotThatTheHandlerFinished(t *testing.T) {
	handler := func(late time.Duration) func(context.Context, *process, *asynq.Task) error {
		return func(ctx context.Context, p *process, _ *asynq.Task) error {
			err := p.act(ctx, "reply m1")
			if err == nil {
				err = p.act(ctx, "tag billing")
			}
			if p.name == "w1" {
				time.Sleep(late)
			}
			return err
		}
	}
	// Another store is the ledger. With 40 s the handler returns when the lease is
	// lost already.
	for _, late := range []time.Duration{20 * time.Second, 40 * time.Second} {
		t.Run(fmt.Sprintf("the ledger stayed up, the handler returned after %v", late), func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				w1, w2 := s.process("w1"), s.process("w2")
				w1.serve(handler(late))
				s.task("j", []string{"m1"})
				s.untilEntered(1)
				w1.redis.down.Store(true)
				w2.serve(handler(0))
				time.Sleep(50 * time.Second)
				w1.redis.down.Store(false)
				s.untilGone("j")
				s.wantSent("[reply m1 tag billing]")
				s.wantEntered("[w1:j/0]") // the redelivery ends at Begin
				if n := s.told(runs.EventFinishedAgain); n != 1 {
					t.Errorf("finished_again was told %d times, want 1", n)
				}
			})
		})
	}
	// The same Redis is the ledger: the reply went out, and could not be settled.
	t.Run("the ledger went down with the queue", func(t *testing.T) {
		onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
			w1, w2 := s.process("w1"), s.process("w2")
			w1.serve(func(ctx context.Context, p *process, _ *asynq.Task) error {
				err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(context.Context, *runs.Call) error {
					p.kill() // for now
					s.sent.add("reply m1")
					return nil
				})
				if err != nil {
					return err
				}
				return p.act(ctx, "tag billing")
			})
			s.task("j", []string{"m1"})
			s.untilEntered(1)
			w2.serve(handler(0))
			time.Sleep(50 * time.Second)
			w1.redis.down.Store(false)
			w1.ledger.down.Store(false)

			info := s.untilArchived("j")
			if info.Retried != 1 || !strings.Contains(info.LastErr, "unknown") {
				t.Errorf("retried %d, %q, want 1 and that the outcome is unknown", info.Retried, info.LastErr)
			}
			s.wantSent("[reply m1]")
			s.resolve(true)
			s.runTask("j")
			s.untilGone("j")
			s.wantSent("[reply m1 tag billing]")
		})
	})
}

// Killed between the provider's yes and our record, or at any other point; and the
// next process is killed too, before it could record anything new.
//
// https://github.com/openclaw/openclaw/issues/29106
func TestF07KilledAtAnyPointAndAgainRepliesOnce(t *testing.T) {
	unknown, done := 0, 0
	for n := int64(1); ; n++ {
		killed := true
		t.Run(fmt.Sprint("yield ", n), func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				reply := func(ctx context.Context, p *process, _ *asynq.Task) error { return p.act(ctx, "reply m1") }
				w1, w2, w3 := s.process("w1"), s.process("w2"), s.process("w3")
				w1.killAt = n
				w1.serve(reply)
				s.task("j", []string{"m1"})
				time.Sleep(5 * time.Second)
				if killed = w1.redis.down.Load(); !killed {
					s.wantSent("[reply m1]")
					wantGone(t, s.Bench, "j")
					return
				}
				// The second one dies at its first yield: its Begin is not recorded.
				s.moveLeaseBack("j")
				w2.killAt = 1
				w2.serve(reply)
				time.Sleep(10 * time.Second)
				if !w2.redis.down.Load() {
					t.Fatal("the second process was not killed")
				}
				s.moveLeaseBack("j")
				w3.serve(reply)
				s.await("the task is at its end", func() bool {
					info := s.Info("j")
					return info == nil || info.State == asynq.TaskStateArchived
				})
				if s.Info("j") == nil {
					done++
					s.wantSent("[reply m1]")
					return
				}
				unknown++
				before := s.sent.String() // at most once, and it stays so whatever people press
				if s.sent.len() > 1 {
					t.Errorf("the provider did %s", before)
				}
				s.unknown()
				s.runTask("j")
				time.Sleep(time.Minute)
				s.untilArchived("j")
				s.wantSent(before)
				s.resolve(s.sent.len() == 1)
				s.runTask("j")
				s.untilGone("j")
				s.wantSent("[reply m1]")
			})
		})
		if !killed || t.Failed() {
			break
		}
	}
	// Begin, claim, effect, settle and End, each with a before and an after.
	if unknown < 3 || done < 6 {
		t.Errorf("%d kills left something unknown and %d did not: they missed most of the task", unknown, done)
	}
}

// timeoutError is how a client library says that it ran out of time.
type timeoutError struct{ error }

func (e timeoutError) Unwrap() error { return e.error }
func (timeoutError) Timeout() bool   { return true }

// The provider acts after the client's deadline; the client, the handler and the
// queue each have a retry of their own.
//
// https://github.com/NousResearch/hermes-agent/pull/3899
func TestF08TimeoutIsNotANo(t *testing.T) {
	t.Run("acts after the deadline", func(t *testing.T) {
		onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
			s.process("w").serve(func(ctx context.Context, _ *process, _ *asynq.Task) error {
				var errs []error
				for range 3 { // the handler's own retries
					errs = append(errs, runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1"), Timeout: 30 * time.Second}, func(ctx context.Context, _ *runs.Call) error {
						s.sent.add("call")
						time.AfterFunc(45*time.Second, func() { s.sent.add("acted") })
						<-ctx.Done()
						return fmt.Errorf("sdk: request failed: %w", timeoutError{ctx.Err()})
					}))
				}
				for _, err := range errs {
					if told := runs.Explain(err); told.Retryable || !strings.Contains(told.Message, "Do not repeat") {
						t.Errorf("a model is told %+v, want that nobody knows, and not to repeat it", told)
					}
				}
				return errors.Join(errs...)
			})
			s.task("j", []string{"m1"})
			s.untilArchived("j")
			s.wantSent("[call acted]")
			s.unknown()
			s.runTask("j") // and again by hand
			time.Sleep(time.Minute)
			s.untilArchived("j")
			s.wantSent("[call acted]")
		})
	})
	for name, c := range map[string]struct {
		err      error
		definite bool
	}{
		"429, nothing was done":           {runs.NotApplied(errors.New("429 too many requests")), true},
		"connection refused":              {runs.NotApplied(errors.New("connection refused")), true},
		"reset after the body was sent":   {errors.New("connection reset by peer"), false},
		"a deadline that the SDK wrapped": {fmt.Errorf("sdk: %w", context.DeadlineExceeded), false},
		"one leaf of two says no":         {errors.Join(runs.NotApplied(errors.New("503")), errors.New("timeout")), false},
	} {
		t.Run(name, func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				s.process("w").serve(func(ctx context.Context, _ *process, _ *asynq.Task) error {
					return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(_ context.Context, call *runs.Call) error {
						s.sent.add(fmt.Sprint(call.Number))
						return c.err
					})
				})
				s.task("j", []string{"m1"}, asynq.MaxRetry(10))
				info := s.untilArchived("j")
				if c.definite {
					// Retried by the queue, up to the limit of calls.
					s.wantSent("[1 2 3]")
					if !strings.Contains(info.LastErr, "exhausted") {
						t.Errorf("%q, want that the calls are exhausted", info.LastErr)
					}
					return
				}
				s.wantSent("[1]")
				if info.Retried != 0 {
					t.Errorf("retried %d, want no attempt spent", info.Retried)
				}
				s.unknown()
			})
		})
	}
}

// The key for the provider is minted for each attempt, or from the amount only.
//
// https://github.com/medusajs/medusa/issues/16681
func TestF09RefundHasOneKeyOverAllDeliveries(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		lineOne := runs.Effect{Intent: "refund", Key: runs.Key("order", "A", "line", 1), Params: map[string]any{"amount": "3.92"}}
		lineTwo := runs.Effect{Intent: "refund", Key: runs.Key("order", "A", "line", 2), Params: map[string]any{"amount": "3.92"}}
		charge := runs.Effect{Intent: "charge", Key: runs.Key("order", "A", "line", 1)}
		refund := runs.Intent[string]{Name: "refund", Distinct: true}
		keys := map[string]map[string]bool{} // what each effect's calls brought
		acted := map[string]int{}
		w1, w2 := s.process("w1"), s.process("w2")
		call := func(what string, outcome func(n int) error) func(context.Context, *runs.Call) error {
			return func(_ context.Context, c *runs.Call) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if keys[what] == nil {
					keys[what] = map[string]bool{}
				}
				keys[what][c.IdempotencyKey] = true
				if len(c.IdempotencyKey) > 255 || strings.ContainsFunc(c.IdempotencyKey, func(r rune) bool { return r < '!' || r > '~' }) {
					t.Errorf("key %q, want at most 255 printable characters", c.IdempotencyKey)
				}
				err := outcome(c.Number)
				if err == nil {
					acted[what]++
				}
				return err
			}
		}
		handler := func(ctx context.Context, p *process, _ *asynq.Task) error {
			run := runs.FromContext(ctx)
			if _, err := run.CatchUp(ctx); err != nil {
				return err
			}
			if err := run.Once(ctx, charge, call("charge", func(int) error { return nil })); err != nil {
				return err
			}
			for what, e := range map[string]runs.Effect{"line 1": lineOne, "line 2": lineTwo} {
				_, err := refund.Once(ctx, e.Key, func(ctx context.Context, c *runs.Call) (string, error) {
					return "", call(what, func(n int) error {
						switch {
						case what == "line 2":
							return nil
						case n == 1:
							return runs.NotApplied(errors.New("503")) // first delivery
						case n == 2:
							return errors.New("the response is lost") // it was not done
						}
						return nil
					})(ctx, c)
				}, runs.With{Params: e.Params})
				if err != nil && what == "line 1" {
					if p == w1 {
						w1.redis.down.Store(true) // the next delivery is another process's
					}
					return err
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		w1.serve(handler)
		s.task("j", nil)
		s.untilEntered(1)
		w2.serve(handler)
		s.untilArchived("j") // call 2 of line 1: unknown
		s.resolve(false)     // a person looked
		s.runTask("j")
		s.untilGone("j")

		s.mu.Lock()
		defer s.mu.Unlock()
		all := map[string]bool{}
		for what, seen := range keys {
			if len(seen) != 1 || acted[what] != 1 {
				t.Errorf("%s: %d keys over all calls, done %d times, want one and once", what, len(seen), acted[what])
			}
			for key := range seen {
				all[key] = true
			}
		}
		if len(all) != 3 {
			t.Errorf("%d keys for three effects, want 3", len(all))
		}
	})
}

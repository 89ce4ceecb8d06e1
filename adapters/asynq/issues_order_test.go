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

// As in issues_test.go. Here: shutdowns, tasks that Asynq forgot, and several tasks
// on one conversation.

// https://github.com/hibiken/asynq/issues/1144, 1051, 55: a task is active for ever,
// because Redis lost its lease; it may well have been done. People enqueue it anew.
func TestQ08TaskThatAsynqForgotDoesNotBlockANewOne(t *testing.T) {
	for name, ends := range map[string]bool{"its run had ended": true, "its worker died": false} {
		t.Run(name, func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				w1, w2 := s.process("w1"), s.process("w2")
				handler := func(ctx context.Context, p *process, _ *asynq.Task) error {
					// The key is the message's, so it is the same effect in a new task.
					if err := p.act(ctx, "tag billing"); err != nil {
						return err
					}
					if p == w1 {
						w1.redis.down.Store(true)
						if !ends {
							w1.kill()
							p.hang()
						}
						return nil
					}
					return p.act(ctx, "note again")
				}
				w1.serve(handler)
				s.task("old", nil)
				s.untilEntered(1)
				time.Sleep(2 * time.Second)
				s.Mini.Del(leaseKey)
				w2.serve(handler)
				time.Sleep(5 * time.Minute)
				wantState(t, s.Bench, "old", asynq.TaskStateActive)

				s.task("new", nil)
				s.untilGone("new")
				s.wantSent("[tag billing note again]") // the tag is replayed
				s.wantEntered("[w1:old/0 w2:new/0]")
				if r := s.run("old"); r.Finished() != ends {
					t.Errorf("the forgotten task's run is %s (%s)", r.State, r.End)
				}
				h, err := s.office.keeper.History(t.Context(), "c")
				if err != nil || len(h.Live) != 0 {
					t.Errorf("%d live runs, %v, want none: people see that nobody works on it", len(h.Live), err)
				}
			})
		})
	}
}

// https://github.com/hibiken/asynq/issues/525, 286, 277, 688: the shutdown does not
// wait, and the task is delivered again while the old handler is in an effect.
func TestQ09ShutdownDuringAnEffect(t *testing.T) {
	play := func(t *testing.T, dies bool) {
		t.Helper()
		onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
			answer := make(gate)
			w1, w2 := s.process("w1"), s.process("w2")
			handler := func(ctx context.Context, p *process, _ *asynq.Task) error {
				return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(ctx context.Context, _ *runs.Call) error {
					s.sent.add(p.name)
					s.wait(answer)
					if !dies && ctx.Err() != nil {
						t.Errorf("the effect under way was cancelled: %v", context.Cause(ctx))
					}
					return nil
				})
			}
			server := w1.serve(handler)
			s.task("j", []string{"m1"}, asynq.MaxRetry(2))
			s.untilEntered(1)
			server.Shutdown() // its 8 s
			wantState(t, s.Bench, "j", asynq.TaskStatePending)
			if dies {
				w1.kill()
			}
			w2.serve(handler)
			time.Sleep(20 * time.Second)
			if info := s.Info("j"); info.Retried != 0 {
				t.Errorf("retried %d, want none spent while the effect is under way", info.Retried)
			}
			s.wantSent("[w1]")
			if !dies {
				answer.open()
				s.untilGone("j")
				s.wantSent("[w1]")
				return
			}
			if info := s.untilArchived("j"); info.Retried != 0 || !strings.Contains(info.LastErr, "unknown") {
				t.Errorf("retried %d, %q, want none spent and that the outcome is unknown", info.Retried, info.LastErr)
			}
			answer.open()
			s.resolve(true)
			s.runTask("j")
			s.untilGone("j")
			s.wantSent("[w1]")
		})
	}
	t.Run("which ends", func(t *testing.T) { play(t, false) })
	t.Run("whose process dies", func(t *testing.T) { play(t, true) })
}

// https://github.com/hibiken/asynq/issues/396, 334: mux.ProcessTask called by hand.
func TestQ10TaskProcessedByHandMakesNoRun(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		mux := asynq.NewServeMux()
		mux.Use(s.office.fenced.Middleware)
		mux.HandleFunc("t", func(context.Context, *asynq.Task) error {
			t.Error("the handler was entered")
			return nil
		})
		headers, err := asynqruns.Headers(asynqruns.Conversation{ID: "c", NoInbound: true, Nonce: "n"})
		if err != nil {
			t.Fatal(err)
		}
		if err := mux.ProcessTask(t.Context(), asynq.NewTaskWithHeaders("t", nil, headers)); err == nil || !strings.Contains(err.Error(), "called by hand") {
			t.Errorf("%v, want an error that says so", err)
		}
		if h, err := s.office.keeper.History(t.Context(), "c"); err != nil || h.Head != nil || len(h.Runs) != 0 {
			t.Errorf("%+v, %v, want that nothing was written", h, err)
		}
	})
}

// https://github.com/hibiken/asynq/issues/1050, 1038: a queued task that a newer one
// replaces. It is delivered when the newer one is at work already.
func TestQ11ReplacedTaskIsDroppedWithoutAnEffect(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		work := make(gate)
		s.process("w").serve(func(ctx context.Context, p *process, task *asynq.Task) error {
			if string(task.Payload()) == "b" {
				s.wait(work)
			}
			return p.act(ctx, "note "+string(task.Payload()))
		})
		s.task("a", nil, asynq.ProcessIn(10*time.Second), asynq.Retention(time.Hour)) // enqueued first
		s.task("b", nil)
		s.untilEntered(1)
		time.Sleep(30 * time.Second)
		s.wantEntered("[w:b/0]") // a has come and gone, several times
		work.open()
		s.untilGone("b")
		time.Sleep(20 * time.Second)
		info := wantState(t, s.Bench, "a", asynq.TaskStateCompleted)
		if info.Retried != 0 || !strings.Contains(string(info.Result), "superseded") {
			t.Errorf("retried %d, result %q, want it acknowledged with a note", info.Retried, info.Result)
		}
		s.wantSent("[note b]")
		s.wantEntered("[w:b/0]")
	})
}

// https://github.com/hibiken/asynq/issues/1090: two tasks for one wallet on two workers
// at once.
func TestQ12TwoTasksForOneWallet(t *testing.T) {
	t.Run("the newer one may write", func(t *testing.T) {
		onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
			second, asked := make(gate), make(gate)
			w1, w2 := s.process("w1"), s.process("w2")
			handler := func(ctx context.Context, p *process, task *asynq.Task) error {
				if string(task.Payload()) == "a2" {
					second.open()
					s.wait(asked)
					return p.act(ctx, "debit a2")
				}
				s.wait(second)
				err := p.act(ctx, "debit a1")
				if !errors.Is(err, runs.ErrSuperseded) {
					t.Errorf("the older task's effect: %v, want superseded", err)
				}
				asked.open()
				return err
			}
			server := w1.serve(handler)
			s.task("a1", nil)
			s.untilEntered(1)
			server.Stop()
			w2.serve(handler)
			s.task("a2", nil)
			s.untilGone("a2")
			s.untilGone("a1")
			s.wantSent("[debit a2]")
			s.wantEntered("[w1:a1/0 w2:a2/0]")
		})
	})
	t.Run("or both, one after the other", func(t *testing.T) {
		onSite(t, asynqruns.Config{Mode: runs.Exclusive}, func(t *testing.T, s *site) {
			work := make(gate)
			handler := func(ctx context.Context, p *process, task *asynq.Task) error {
				if string(task.Payload()) == "a1" {
					s.wait(work)
				}
				return p.act(ctx, "debit "+string(task.Payload()))
			}
			server := s.process("w1").serve(handler)
			s.task("a1", nil)
			s.untilEntered(1)
			server.Stop()
			s.process("w2").serve(handler)
			s.task("a2", nil, asynq.MaxRetry(1))
			time.Sleep(time.Minute)
			s.wantEntered("[w1:a1/0]")
			work.open()
			s.untilGone("a1")
			s.untilGone("a2")
			s.wantSent("[debit a1 debit a2]")
			s.wantEntered("[w1:a1/0 w2:a2/0]")
		})
	})
}

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

// What the adapter makes of the hazards of hazards_ids_test.go and
// hazards_redis_test.go, where no report in issues_test.go does.

// One intent became two tasks under two ids: an enqueue whose reply was lost, a
// Unique lock that ended, two schedulers. The effect's key decides, not the task's.
func TestOneMessageAsTwoTasksIsAnsweredOnce(t *testing.T) {
	for name, together := range map[string]bool{"at once": true, "one after the other": false} {
		t.Run(name, func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				task, err := s.office.fenced.NewTask(t.Context(), "t", []byte("p"), asynqruns.Conversation{ID: "c", Inbound: []string{"m1"}})
				if err != nil {
					t.Fatal(err)
				}
				s.process("w").serve(func(ctx context.Context, p *process, _ *asynq.Task) error {
					return p.act(ctx, "reply m1")
				})
				for _, id := range []string{"a", "b"} {
					s.Enqueue(task, asynq.TaskID(id))
					if !together {
						time.Sleep(time.Minute)
					}
				}
				s.untilGone("a")
				s.untilGone("b")
				s.wantSent("[reply m1]")
			})
		})
	}
}

// A scheduler's ticks carry one set of headers, so they are peers, and each is work
// of its own.
func TestEveryTickOfASchedulerIsARunOfItsOwn(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		task, err := s.office.fenced.NewTask(t.Context(), "t", []byte("p"), asynqruns.Conversation{ID: "c", NoInbound: true})
		if err != nil {
			t.Fatal(err)
		}
		s.process("w").serve(func(ctx context.Context, p *process, _ *asynq.Task) error {
			return p.act(ctx, "digest "+time.Now().Format("15:04")) // the day would be usual
		})
		for range 2 { // two schedulers by mistake
			scheduler := asynq.NewSchedulerFromRedisClient(dial(s.Bench, nil, nil), &asynq.SchedulerOpts{Logger: quiet{}})
			if _, err := scheduler.Register("@every 1m", task); err != nil {
				t.Fatal(err)
			}
			if err := scheduler.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(scheduler.Shutdown)
		}
		time.Sleep(3*time.Minute + 30*time.Second)
		if n := s.sent.len(); n != 3 {
			t.Errorf("the provider did %s, want one for each of three ticks", s.sent.String())
		}
		if n := s.told(runs.EventFinishedAgain); n != 0 {
			t.Errorf("a tick was taken for an earlier one %d times", n)
		}
	})
}

// A batch has headers of its own, or it is an error: its members' do not count.
func TestAggregatedTaskNeedsHeadersOfItsOwn(t *testing.T) {
	for name, fenced := range map[string]bool{"given": true, "not given": false} {
		t.Run(name, func(t *testing.T) {
			onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
				w := s.process("w")
				config := batching(func([]*asynq.Task) *asynq.Task {
					if !fenced {
						return asynq.NewTask("t", []byte("batch"), asynq.TaskID("batch"), asynq.MaxRetry(0))
					}
					task, err := w.fenced.NewTask(context.Background(), "t", []byte("batch"), asynqruns.Conversation{ID: "c", NoInbound: true}, asynq.TaskID("batch"))
					if err != nil {
						t.Error(err)
					}
					return task
				})
				startTapped(s.Bench, nil, w.fenced.Config(config), w.fenced.Middleware(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					return w.act(ctx, "note "+string(task.Payload()))
				})))
				s.task("a", nil, asynq.Group("g"))
				s.task("b", nil, asynq.Group("g"))
				if fenced {
					s.await("the batch is done", func() bool { return s.sent.len() > 0 })
					s.untilGone("batch")
					s.wantSent("[note batch]")
					return
				}
				if info := s.untilArchived("batch"); !strings.Contains(info.LastErr, "has no conversation") {
					t.Errorf("%q, want that it has no conversation", info.LastErr)
				}
			})
		})
	}
}

// Somebody edits the payload of a task that waits.
func TestEditedTaskIsHandledWithItsNewPayload(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		s.process("w").serve(func(ctx context.Context, p *process, task *asynq.Task) error {
			return p.act(ctx, "note "+string(task.Payload()))
		})
		s.task("j", nil, asynq.ProcessIn(time.Minute))
		if err := s.Inspector.UpdateTaskPayload("default", "j", []byte("edited")); err != nil {
			t.Fatal(err)
		}
		s.untilGone("j")
		s.wantSent("[note edited]")
	})
}

// The reply to a dequeue is lost: Asynq counts an attempt, no run has begun.
func TestTaskThatNeverReachedItsWorkerIsDoneLater(t *testing.T) {
	onSite(t, asynqruns.Config{}, func(t *testing.T, s *site) {
		s.task("j", []string{"m1"}, asynq.MaxRetry(0))
		if err := s.Redis.LMove(t.Context(), "asynq:{default}:pending", "asynq:{default}:active", "right", "left").Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Redis.HSet(t.Context(), "asynq:{default}:t:j", "state", "active").Err(); err != nil {
			t.Fatal(err)
		}
		s.Mini.ZAdd(leaseKey, 1, "j") // a lease that nobody knows of, long expired
		s.process("w").serve(func(ctx context.Context, p *process, _ *asynq.Task) error { return p.act(ctx, "reply m1") })
		s.untilArchived("j")
		if r := s.run("j"); r != nil {
			t.Errorf("there is a run: %+v", r)
		}
		s.runTask("j")
		s.untilGone("j")
		s.wantSent("[reply m1]")
	})
}

// A clock that is behind: both deliveries live, nobody was told, and the ledger's own
// clock and numbers decide.
func TestClockThatIsBehindWritesOnce(t *testing.T) {
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
			if err := ctx.Err(); err != nil {
				t.Errorf("the old handler was told already: %v", err)
			}
			err := p.act(ctx, "reply m1")
			if !errors.Is(err, runs.ErrSuperseded) {
				t.Errorf("the old handler's effect: %v, want superseded", err)
			}
			asked.open()
			return err
		}
		server := w1.serve(handler)
		s.task("j", []string{"m1"})
		s.untilEntered(1)
		server.Stop()
		s.moveLeaseBack("j")
		w2.serve(handler)
		s.untilGone("j")
		time.Sleep(time.Minute)
		s.wantSent("[reply m1]")
		s.wantEntered("[w1:j/0 w2:j/1]")
	})
}

package asynqruns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/runs"
)

// worded gives an error of the run's asynq's own word. asynq.SkipRetry and
// asynq.RevokeTask are found by errors.Is, and so is what err matches.
type worded struct {
	error
	word error
}

func (e worded) Unwrap() []error { return []error{e.error, e.word} }

// result says what asynq gets for a verdict. revoke is Config.Revoke.
func result(v runs.Verdict, revoke bool) error {
	switch v.Action {
	case runs.ActionDone:
		return nil
	case runs.ActionDrop:
		if revoke {
			return worded{&runs.VerdictError{Action: v.Action, Reason: v.Reason, Note: v.Note}, asynq.RevokeTask}
		}
		return nil
	case runs.ActionComeBack, runs.ActionRetry, runs.ActionStale, runs.ActionReturn:
		return v.Err
	case runs.ActionPark, runs.ActionDiscard:
		return worded{v.Err, asynq.SkipRetry}
	}
	return fmt.Errorf("fencedrun: asynqruns: unknown verdict %q", v.Action)
}

// notAFailure reports whether err sends the task back without spending a retry,
// and after how long.
func notAFailure(err error) (after time.Duration, ok bool) {
	var e *runs.VerdictError
	if !errors.As(err, &e) {
		return 0, false
	}
	return max(e.After, 0), e.Action == runs.ActionComeBack || e.Action == runs.ActionStale
}

// permanent reports whether asynq will never deliver the task again if the
// handler returns err.
func permanent(ctx context.Context, err error, last bool) bool {
	switch done := ctx.Err(); {
	case done == nil:
		return last || errors.Is(err, asynq.RevokeTask) || errors.Is(err, asynq.SkipRetry)
	case errors.Is(done, context.DeadlineExceeded):
		return last // what the handler returns no longer counts
	}
	// A shutdown puts the task back, a lost lease or CancelProcessing retries it
	// or, on the last attempt, archives it. They look alike; "not for good" is
	// right for the first and harmless for the others.
	return false
}

// note leaves a line for people as the result of a dropped task, which asynq
// shows for tasks with a Retention. safe says that asynq still has the task:
// it writes the result of one that is gone as readily, and the record that this
// leaves behind blocks the id for ever.
func (a *Adapter) note(task *asynq.Task, v runs.Verdict, safe bool) {
	if v.Action != runs.ActionDrop || v.Note == "" || a.config.Revoke || !safe {
		return
	}
	if w := task.ResultWriter(); w != nil {
		_, _ = w.Write([]byte(v.Note))
	}
}

// Config returns c with its IsFailure and RetryDelayFunc wrapped, so that a task
// that is sent back because its conversation is busy spends no retry and comes
// back when the verdict says. c's own funcs, or asynq's defaults, decide for
// every other error.
//
// Without it the middleware waits inside instead, in a worker's slot.
func (a *Adapter) Config(c asynq.Config) asynq.Config {
	a.wired.Store(true)
	isFailure, delay := c.IsFailure, c.RetryDelayFunc
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	c.IsFailure = func(err error) bool {
		if _, ok := notAFailure(err); ok {
			return false
		}
		if isFailure == nil {
			return err != nil
		}
		return isFailure(err)
	}
	c.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if after, ok := notAFailure(err); ok {
			return after
		}
		return delay(n, err, task)
	}
	return c
}

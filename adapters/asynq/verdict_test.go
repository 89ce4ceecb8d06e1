package asynqruns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fencedrun/fencedrun/runs"
)

var errUsers = errors.New("the user's own")

// asynq asks errors.Is for these two, RevokeTask first.
func word(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, asynq.RevokeTask):
		return "revoke"
	case errors.Is(err, asynq.SkipRetry):
		return "skip"
	}
	return "error"
}

// ours is a verdict as package runs makes them.
func ours(action runs.Action, after time.Duration) runs.Verdict {
	v := runs.Verdict{Action: action, After: after, Note: "the note"}
	if action != runs.ActionDone && action != runs.ActionDrop {
		v.Err = &runs.VerdictError{Action: action, After: after, Note: v.Note, Cause: errors.Join(asynq.RevokeTask, asynq.SkipRetry)}
	}
	return v
}

func TestEveryVerdictHasOneWordForAsynq(t *testing.T) {
	for _, c := range []struct {
		action runs.Action
		revoke bool
		want   string
		spends bool // a retry
	}{
		{runs.ActionDone, false, "nil", false},
		{runs.ActionDone, true, "nil", false},
		{runs.ActionDrop, false, "nil", false},
		{runs.ActionDrop, true, "revoke", false},
		{runs.ActionComeBack, false, "error", false},
		{runs.ActionStale, false, "error", false},
		{runs.ActionRetry, false, "error", true},
		{runs.ActionPark, true, "skip", true},
		{runs.ActionDiscard, true, "skip", true},
		{"", false, "error", true},
		{"something new", false, "error", true},
	} {
		err := result(ours(c.action, 0), c.revoke)
		if got := word(err); got != c.want {
			t.Errorf("%q (revoke %v): %s, want %s", c.action, c.revoke, got, c.want)
		}
		if err == nil {
			continue
		}
		config := (&Adapter{}).Config(asynq.Config{})
		if got := config.IsFailure(fmt.Errorf("outer middleware: %w", err)); got != c.spends && c.want == "error" {
			t.Errorf("%q: IsFailure %v, want %v", c.action, got, c.spends)
		}
		var verdict *runs.VerdictError
		known := c.action != "" && c.action != "something new"
		if known && (!errors.As(err, &verdict) || verdict.Action != c.action) {
			t.Errorf("%q: an ErrorHandler cannot find the verdict in %v", c.action, err)
		}
		if known && !strings.Contains(err.Error(), "the note") {
			t.Errorf("%q: text %q is not the note", c.action, err)
		}
	}
}

func TestHandlersErrorGoesToAsynqAsItCame(t *testing.T) {
	for _, err := range []error{errUsers, asynq.SkipRetry, fmt.Errorf("x: %w", asynq.RevokeTask), context.Canceled} {
		if got := result(runs.Verdict{Action: runs.ActionReturn, Err: err}, false); got != err { //nolint:errorlint // the very value
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestConfigKeepsTheUsersOwnFuncs(t *testing.T) {
	a := &Adapter{}
	busy := result(ours(runs.ActionComeBack, 3*time.Second), false)
	config := a.Config(asynq.Config{
		Concurrency:    7,
		IsFailure:      func(err error) bool { return errors.Is(err, errUsers) },
		RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) * time.Hour },
	})
	if config.Concurrency != 7 {
		t.Error("another setting was lost")
	}
	if !config.IsFailure(errUsers) || config.IsFailure(errors.New("other")) || config.IsFailure(busy) {
		t.Error("IsFailure: want the user's own word for the user's errors, false for busy")
	}
	if d := config.RetryDelayFunc(2, errUsers, nil); d != 2*time.Hour {
		t.Errorf("delay %v of the user's error, want the user's own", d)
	}
	if d := config.RetryDelayFunc(2, busy, nil); d != 3*time.Second {
		t.Errorf("delay %v of busy, want the verdict's", d)
	}
	negative := result(ours(runs.ActionComeBack, -time.Second), false)
	if d := config.RetryDelayFunc(2, negative, nil); d != 0 {
		t.Errorf("delay %v, want 0", d)
	}
	if d := a.Config(asynq.Config{}).RetryDelayFunc(0, errUsers, nil); d < 15*time.Second {
		t.Errorf("delay %v, want asynq's default", d)
	}
	if a.Config(asynq.Config{}).IsFailure(nil) {
		t.Error("nil is a failure by default")
	}
}

func TestPermanentIsWhatAsynqWouldDo(t *testing.T) {
	live := context.Background()
	canceled, cancel := context.WithCancel(live)
	cancel()
	expired, cancel := context.WithDeadline(live, time.Time{})
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		last bool
		want bool
	}{
		{"an error", live, errUsers, false, false},
		{"an error on the last attempt", live, errUsers, true, true},
		{"SkipRetry", live, fmt.Errorf("x: %w", asynq.SkipRetry), false, true},
		{"RevokeTask", live, errors.Join(errUsers, asynq.RevokeTask), false, true},
		{"SkipRetry after a shutdown", canceled, asynq.SkipRetry, false, false},
		{"an error after a shutdown on the last attempt", canceled, errUsers, true, false},
		{"SkipRetry after the timeout", expired, asynq.SkipRetry, false, false},
		{"an error after the timeout of the last attempt", expired, errUsers, true, true},
	} {
		if got := permanent(c.ctx, c.err, c.last); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOnlyIDsOfAsynqsOwnMakingLookRandom(t *testing.T) {
	for id, want := range map[string]bool{
		"9f0b3c1e-58b4-4c8e-9d3e-0123456789ab":  true,
		"9f0b3c1e-58b4-1c8e-9d3e-0123456789ab":  false, // version 1
		"9F0B3C1E-58B4-4C8E-9D3E-0123456789AB":  false,
		"9f0b3c1e58b44c8e9d3e0123456789ab":      false,
		"9f0b3c1e-58b4-4c8e-9d3e-0123456789ab0": false,
		"9f0b3c1e-58b4-4c8e-9d3e+0123456789ab":  false,
		"order-7":                               false,
		"":                                      false,
	} {
		if got := randomUUID(id); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
}

package runs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

func TestExplainSaysOfEveryReasonWhetherTheRunIsOverAndWhetherToTryAgain(t *testing.T) {
	type answer struct{ terminal, retryable bool }
	over, again, neither := answer{true, false}, answer{false, true}, answer{}
	wants := map[runs.Reason]answer{
		"superseded":            over,
		"cancelled":             over,
		"ended":                 over,
		"lease_lost":            over,
		"busy":                  over,
		"no_run":                over,
		"conversation_mismatch": over,
		"exhausted":             over,
		"value_not_kept":        over,
		"stale_payload":         over,
		"refused_twice":         over,
		"open_again":            over,
		"invalid":               over,
		"in_flight":             again,
		"wait_timeout":          again,
		"ledger":                again,
		"conversation_changed":  neither, // read it first
		"already_answered":      neither,
		"params_changed":        neither,
		"unresolved":            neither, // unknown: must not be repeated
		"ambiguous":             neither,
	}
	for reason, want := range wants {
		e := runs.Explain(fmt.Errorf("wrapped: %w", &runs.RefusedError{
			Reason: reason, RetryAfter: time.Minute, Effect: runs.EffectRef{Intent: "refund", Key: `"secret"`},
		}))
		if e.Terminal != want.terminal || e.Retryable != want.retryable {
			t.Errorf("%s: terminal %v, retryable %v", reason, e.Terminal, e.Retryable)
		}
		if (e.RetryAfter == time.Minute) != want.retryable {
			t.Errorf("%s: retry after %v", reason, e.RetryAfter)
		}
		if e.Message == "" || strings.Contains(e.Message, "secret") || strings.Contains(e.Message, string(reason)) && strings.Contains(string(reason), "_") {
			t.Errorf("%s: %q is not for a model", reason, e.Message)
		}
	}
	// Every sentinel has its reason in the list.
	for _, sentinel := range []error{
		runs.ErrSuperseded, runs.ErrConversationChanged, runs.ErrAlreadyAnswered, runs.ErrUnresolved, runs.ErrParamsChanged,
		runs.ErrInFlight, runs.ErrAmbiguous, runs.ErrNoRun, runs.ErrCancelled, runs.ErrEnded, runs.ErrBusy, runs.ErrExhausted,
		runs.ErrConversationMismatch, runs.ErrWaitTimeout, runs.ErrLeaseLost, runs.ErrValueNotKept,
	} {
		reason := runs.Reason(strings.TrimPrefix(sentinel.Error(), "fencedrun: "))
		if _, ok := wants[reason]; !ok || !errors.Is(&runs.RefusedError{Reason: reason}, sentinel) {
			t.Errorf("%v has no reason", sentinel)
		}
	}
}

func TestExplainOfOutcomesAndOtherErrors(t *testing.T) {
	for _, c := range []struct {
		name                string
		err                 error
		terminal, retryable bool
		says                string
	}{
		{"nil", nil, false, false, "Done."},
		{"failed", &runs.OutcomeError{Outcome: runs.OutcomeFailed}, false, true, "did not happen"},
		{"ambiguous", &runs.OutcomeError{Outcome: runs.OutcomeAmbiguous}, false, false, "Nobody knows"},
		{"not recorded", &runs.OutcomeError{Outcome: runs.OutcomeNotRecorded}, true, false, "happened"},
		{"the ledger", &runs.LedgerError{Verb: "claim", Err: errors.New("down")}, false, true, "cannot be reached"},
		{"stopped", context.Canceled, true, false, "stopped"},
		{"out of time", fmt.Errorf("x: %w", context.DeadlineExceeded), true, false, "stopped"},
		{"a stranger that says so", runs.NotApplied(errors.New("x")), false, true, "did not happen"},
		{"a stranger", errors.New("no such order"), false, false, "no such order"},
		{"a verdict", &runs.VerdictError{Action: runs.ActionPark, Reason: "stale_payload"}, true, false, "stopped for a person"},
		{"an unknown reason", &runs.RefusedError{Reason: "approval"}, false, false, "refused: approval"},
	} {
		e := runs.Explain(c.err)
		if e.Terminal != c.terminal || e.Retryable != c.retryable || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: got %+v", c.name, e)
		}
	}
}

func TestErrorsSayInOneLineWhatAndWhyWithoutKeys(t *testing.T) {
	ref := runs.EffectRef{ID: "e1", Intent: "refund", Key: `"secret"`}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&runs.RefusedError{Reason: "params_changed", Effect: ref}, "fencedrun: refund refused: params_changed"},
		{&runs.RefusedError{Reason: "unresolved", Conflicts: make([]runs.Conflict, 2), RetryAfter: time.Minute}, "fencedrun: refused: unresolved (2 in the way); try again in 1m0s"},
		{&runs.OutcomeError{Outcome: runs.OutcomeFailed, Effect: ref, Call: 2, Err: errors.New("declined")}, "fencedrun: refund: call 2: failed: declined"},
		{&runs.OutcomeError{Outcome: runs.OutcomeAmbiguous, Effect: ref, Call: 1}, "fencedrun: refund: call 1: ambiguous"},
		{&runs.VerdictError{Action: "park", Reason: "stale_payload", Note: "note", Cause: errors.New("cause")}, "fencedrun: park: stale_payload: note: cause"},
		{&runs.VerdictError{Action: "retry"}, "fencedrun: retry"},
		{&runs.NotResolvedError{Why: "no such effect"}, "fencedrun: resolve: refused: no such effect"},
		{runs.ErrSuperseded, "fencedrun: superseded"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

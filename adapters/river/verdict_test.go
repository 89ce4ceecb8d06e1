package riverruns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fencedrun/fencedrun/runs"
)

var errUsers = errors.New("the user's own")

// word says what River makes of an error, asking in River's order.
func word(err error) string {
	var snooze *river.JobSnoozeError
	var cancel *river.JobCancelError
	_, untouched := err.(interface {
		Jobs() []*rivertype.JobRow
		ErrorsByID() map[int64]error
	})
	switch {
	case err == nil:
		return "nil"
	case untouched:
		return "untouched"
	case errors.As(err, &snooze):
		return "snooze " + snooze.Duration.String()
	case errors.As(err, &cancel):
		return "cancel"
	}
	return "error"
}

// ours is a verdict as package runs makes them.
func ours(action runs.Action, after time.Duration) runs.Verdict {
	v := runs.Verdict{Action: action, After: after, Note: "the note"}
	if action != runs.ActionDone && action != runs.ActionDrop {
		v.Err = &runs.VerdictError{Action: action, After: after, Note: v.Note, Cause: errors.Join(river.JobSnooze(0), river.JobCancel(errUsers))}
	}
	return v
}

func TestEveryVerdictHasOneWordForRiver(t *testing.T) {
	for _, c := range []struct {
		action runs.Action
		after  time.Duration
		cancel bool
		want   string
	}{
		{runs.ActionDone, 0, false, "nil"},
		{runs.ActionDone, 0, true, "nil"},
		{runs.ActionDrop, 0, false, "nil"},
		{runs.ActionDrop, 0, true, "cancel"},
		{runs.ActionComeBack, 3 * time.Second, false, "snooze 3s"},
		{runs.ActionComeBack, -time.Second, false, "snooze 0s"},
		{runs.ActionRetry, 0, true, "error"},
		{runs.ActionPark, 0, false, "cancel"},
		{runs.ActionDiscard, 0, false, "cancel"},
		{runs.ActionStale, 0, true, "untouched"},
		{"", 0, false, "error"},
		{"something new", 0, false, "error"},
	} {
		err := result(ours(c.action, c.after), c.cancel)
		if got := word(err); got != c.want {
			t.Errorf("%q (cancel %v): %s, want %s", c.action, c.cancel, got, c.want)
		}
		if (c.want == "cancel" || c.want == "untouched") && !strings.Contains(err.Error(), "the note") {
			t.Errorf("%q: text %q is not the note", c.action, err)
		}
	}
}

func TestWorkersErrorGoesToRiverAsItCame(t *testing.T) {
	for _, err := range []error{errUsers, river.JobCancel(errUsers), river.JobSnooze(time.Hour), context.Canceled} {
		if got := result(runs.Verdict{Action: runs.ActionReturn, Err: err}, true); got != err { //nolint:errorlint // the very value
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestPermanentIsWhatRiverWouldDo(t *testing.T) {
	live := context.Background()
	stopped, stop := context.WithCancelCause(live)
	stop(errors.New("River's own, which nobody outside can name"))
	remote, cancel := context.WithCancelCause(live)
	cancel(river.ErrJobCancelledRemotely)
	row := &rivertype.JobRow{Attempt: 1, MaxAttempts: 2}
	last := &rivertype.JobRow{Attempt: 2, MaxAttempts: 2}
	for _, c := range []struct {
		name string
		ctx  context.Context
		row  *rivertype.JobRow
		err  error
		want bool
	}{
		{"an error", live, row, errUsers, false},
		{"an error on the last attempt", live, last, errUsers, true},
		{"JobCancel", live, row, fmt.Errorf("x: %w", river.JobCancel(errUsers)), true},
		{"JobSnooze on the last attempt", live, last, river.JobSnooze(1), false},
		{"JobSnooze in JobCancel", live, row, river.JobCancel(river.JobSnooze(1)), false},
		{"remote cancel", remote, row, context.Canceled, true},
		{"remote cancel and JobSnooze", remote, row, river.JobSnooze(1), true},
		{"soft stop", stopped, last, context.Canceled, false},
		{"soft stop in JobCancel", stopped, row, river.JobCancel(context.Canceled), false},
		{"soft stop and an error on the last attempt", stopped, last, errUsers, true},
		{"soft stop and JobCancel", stopped, row, river.JobCancel(errUsers), true},
	} {
		if got := permanent(c.ctx, c.row, c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestALateFetchDoesNotTakeOver(t *testing.T) {
	var f fetched
	early := time.Now()
	late := early.Add(time.Second)
	if !f.enter(1, early) {
		t.Fatal("the first delivery was refused")
	}
	if !f.enter(1, late) {
		t.Fatal("a newer delivery was refused")
	}
	if f.enter(1, early) {
		t.Error("a delivery fetched earlier was let in")
	}
	if !f.enter(2, early) {
		t.Error("another job was refused")
	}
	f.leave(1, early)
	if f.enter(1, early) {
		t.Error("the older delivery's end made the newer one forgotten")
	}
	f.leave(1, late)
	if !f.enter(1, early) {
		t.Error("the newer delivery's end was not noticed")
	}
	if !f.enter(1, early) {
		t.Error("an equal time, which SQLite's milliseconds make possible, was refused")
	}
}

func TestOnlyRiversOwnCodeMayStandBetween(t *testing.T) {
	const (
		work     = ownPackage + "(*Plugin).Work"
		chain    = riverInternal + "execution.MiddlewareChain.func1"
		executor = riverInternal + "jobexecutor.(*JobExecutor).execute"
		renamed  = riverInternal + "jobexecutor.(*Executor).run"
		theirs   = "example.com/app.(*Tracing).Work"
		wrapper  = riverModule + ".WorkerMiddlewareFunc.Work"
	)
	for _, c := range []struct {
		name  string
		stack []string
		whole bool
		want  bool
	}{
		{"River alone", []string{work, chain, chain, executor, "runtime.goexit"}, true, true},
		{"another plugin", []string{work, chain, theirs, chain, executor}, true, false},
		{"a func of River's", []string{work, chain, wrapper, chain, executor}, true, false},
		{"called by another plugin", []string{work, theirs, chain, executor}, true, false},
		{"called by hand", []string{work, "example.com/app.TestX", "testing.tRunner"}, true, true},
		{"a River that we do not know", []string{work, chain, renamed, "runtime.goexit"}, true, false},
		{"too deep", []string{work, theirs}, false, false},
	} {
		if got := direct(c.stack, c.whole); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestStaleValueIsTrustedOnTheProvenRiverOnly(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), riverModule+" "+provenRiver+"\n") {
		t.Errorf("go.mod has another River than %s: if the hazard tests pass on it, change provenRiver", provenRiver)
	}
	other := &debug.Module{Path: "example.com/x", Version: "v1.0.0"}
	for name, c := range map[string]struct {
		deps []*debug.Module
		want bool
	}{
		"not said":    {nil, true},
		"proven":      {[]*debug.Module{other, {Path: riverModule, Version: provenRiver}}, true},
		"another":     {[]*debug.Module{{Path: riverModule, Version: "v0.52.0"}, other}, false},
		"a fork":      {[]*debug.Module{{Path: riverModule, Version: provenRiver, Replace: other}}, false},
		"its drivers": {[]*debug.Module{{Path: riverModule + "/rivertype", Version: "v0.52.0"}}, true},
	} {
		if got := trusted(c.deps); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

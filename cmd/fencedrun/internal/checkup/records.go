package checkup

import (
	"context"
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// retryHorizon is how long the queues go on retrying a job by default: River's and Asynq's 25
// attempts take about three weeks.
const retryHorizon = 21 * 24 * time.Hour

// retention judges for how long records are kept (rule S10.4).
func (l *list) retention(d time.Duration) {
	if d < retryHorizon {
		l.problem("retention", fmt.Sprintf("records are kept for %s, and the queues retry for about %s", days(d), days(retryHorizon)),
			"A retry that comes after its records are deleted does its effects again.",
			"Set Config.Retention to "+days(30*24*time.Hour)+", or above the longest retry of your queue.")
		return
	}
	l.ok("retention", fmt.Sprintf("records are kept for %s, longer than the queues retry by default (about %s)", days(d), days(retryHorizon)))
}

// countAtMost is how many records are counted.
const countAtMost = 1000

// forgotten is how long a message may be open before somebody should look: what a job at work
// will answer has been named since.
const forgotten = 10 * time.Minute

// records looks for what nobody has taken care of.
func (l *list) records(ctx context.Context, t *Target) {
	if t.Records == nil {
		if t.OpenError == nil {
			l.hidden("unresolved", "could not look at the records", "The ledger is not open.", "")
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if effects, err := t.Records.Unresolved(ctx, 0, countAtMost); err != nil {
		l.unseen("unresolved", "unresolved effects", err, "Try fencedrun audit.")
	} else {
		l.unresolved(effects)
	}
	if open, err := t.Records.Open(ctx, forgotten, countAtMost); err != nil {
		l.unseen("open_messages", "open messages", err, "Try fencedrun open.")
	} else {
		l.open(open, t.Retention)
	}
}

func (l *list) unresolved(effects []runs.UnresolvedEffect) {
	unknown, oldest := 0, time.Duration(0)
	for _, e := range effects {
		if e.Effect.State() == runs.Ambiguous {
			unknown++
			oldest = max(oldest, e.Age)
		}
	}
	if unknown == 0 {
		l.ok("unresolved", "no effect's outcome is unknown")
		return
	}
	level := Warning
	if oldest >= 24*time.Hour {
		level = Problem
	}
	l.add(level, "unresolved", fmt.Sprintf("the outcome of %s is unknown, of the oldest for %s", count(unknown, len(effects), "effect"), age(oldest)),
		"Their jobs stand still, and the customers wait, until a probe or a person decides.",
		"See fencedrun audit. If nobody is told of them, alert on its exit code.")
}

func (l *list) open(open []runs.OpenMessage, retention time.Duration) {
	oldest := time.Duration(0)
	for _, m := range open {
		oldest = max(oldest, m.Age)
	}
	if len(open) == 0 {
		l.ok("open_messages", "no message has been waiting for longer than "+age(forgotten)+" without a job that brings it")
		return
	}
	level, why := Warning, "No job has brought them for that long, so it may be that none will answer them."
	if oldest > retention/2 {
		level, why = Problem, why+" What is open for longer than the retention ("+days(retention)+") is deleted."
	}
	l.add(level, "open_messages", fmt.Sprintf("%s unanswered, the oldest for %s", count(len(open), len(open), "message"), age(oldest)), why,
		"See fencedrun open. If nobody is told of them, alert on its exit code.")
}

// count says how many, of a list that may have been cut.
func count(n, of int, one string) string {
	if of >= countAtMost {
		return "at least " + plural(n, one)
	}
	return plural(n, one)
}

func plural[N ~int | ~int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", int64(n), one)
}

func days(d time.Duration) string {
	if d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return age(d)
}

// age is a length of time with one unit.
func age(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return plural(d/time.Second, "second")
	case d < 2*time.Hour:
		return plural(d/time.Minute, "minute")
	case d < 48*time.Hour:
		return plural(d/time.Hour, "hour")
	}
	return plural(d/(24*time.Hour), "day")
}

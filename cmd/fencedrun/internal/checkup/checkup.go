// Package checkup looks at what about a ledger's server, file and records would hurt: settings that
// lose what was acknowledged, clocks that disagree, records that nobody looks after.
//
// It changes nothing. What it may not look at is a finding and not an error.
package checkup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/runs"
)

// Kind is what a ledger is kept in.
type Kind string

// The kinds.
const (
	Postgres Kind = "postgres"
	Redis    Kind = "redis"
	SQLite   Kind = "sqlite"
)

// Target is what to look at. The field of its Kind must be set.
type Target struct {
	Kind Kind

	// Postgres is the database, with Schema; "" means pgledger.DefaultSchema. One connection is
	// taken.
	Postgres *pgxpool.Pool
	Schema   string

	// Redis is the server or the Cluster, with Prefix; "" means "fencedrun". Waits says that the
	// service sets redisledger.Config.Wait.
	Redis  redis.UniversalClient
	Prefix string
	Waits  bool

	// SQLite is the path of the file.
	SQLite string

	// Retention is the service's runs.Config.Retention; 0 means its default, 30 days.
	Retention time.Duration

	// Records are what the ledger keeps, nil if it could not be opened; then OpenError says why.
	Records   Records
	OpenError error

	// Now is the clock of this machine. Defaults to time.Now.
	Now func() time.Time
}

// Records lists what nobody has taken care of. *runs.Keeper is one.
type Records interface {
	Unresolved(ctx context.Context, older time.Duration, limit int) ([]runs.UnresolvedEffect, error)
	Open(ctx context.Context, older time.Duration, limit int) ([]runs.OpenMessage, error)
}

// Level says how much a finding matters.
type Level string

// The levels.
const (
	OK      Level = "ok"      // as it should be
	Warning Level = "warning" // it hurts on a bad day, or could not be looked at
	Problem Level = "problem" // it loses what was acknowledged, or stops the service
)

// Finding is what one check found.
type Finding struct {
	Level Level  `json:"level"`
	Check string `json:"check"` // the check's stable name
	What  string `json:"what"`  // one line
	Why   string `json:"why,omitempty"`
	Do    string `json:"do,omitempty"`
}

// Report is what Check found: problems first, then warnings, then what is well.
type Report struct {
	Ledger   Kind      `json:"ledger"`
	Findings []Finding `json:"findings"`
}

// Worst returns the worst level in the report.
func (r Report) Worst() Level {
	worst := OK
	for _, f := range r.Findings {
		if f.Level.rank() > worst.rank() {
			worst = f.Level
		}
	}
	return worst
}

func (l Level) rank() int { return slices.Index([]Level{OK, Warning, Problem}, l) }

// Each check is given so long; a server that hangs is a finding, too.
const bound = 10 * time.Second

// Check looks at t. It changes nothing there, and never fails: what cannot be looked at is a finding.
func Check(ctx context.Context, t Target) Report {
	if t.Now == nil {
		t.Now = time.Now
	}
	if t.Retention == 0 {
		t.Retention = 30 * 24 * time.Hour
	}
	l := &list{}
	if t.OpenError != nil {
		l.problem("open", "the ledger cannot be opened: "+t.OpenError.Error(), "A service that starts now fails the same way.", "Mend what the error says. The checks below may say more.")
	}
	switch {
	case t.Kind == Postgres && t.Postgres != nil:
		checkPostgres(ctx, l, &t)
	case t.Kind == Redis && t.Redis != nil:
		checkRedis(ctx, l, &t)
	case t.Kind == SQLite && t.SQLite != "":
		checkSQLite(ctx, l, &t)
	default:
		l.problem("target", fmt.Sprintf("there is nothing to look at: the ledger is of kind %q", t.Kind), "", "Say where the ledger is.")
	}
	l.retention(t.Retention)
	l.records(ctx, &t)
	slices.SortStableFunc(l.findings, func(a, b Finding) int { return b.Level.rank() - a.Level.rank() })
	return Report{Ledger: t.Kind, Findings: l.findings}
}

// list collects findings.
type list struct {
	findings []Finding
	node     string // said before each, "" if there is only one
}

func (l *list) add(level Level, check, what, why, do string) {
	if l.node != "" {
		what = l.node + ": " + what
	}
	l.findings = append(l.findings, Finding{Level: level, Check: check, What: what, Why: why, Do: do})
}

func (l *list) ok(check, what string)                { l.add(OK, check, what, "", "") }
func (l *list) warn(check, what, why, do string)     { l.add(Warning, check, what, why, do) }
func (l *list) problem(check, what, why, do string)  { l.add(Problem, check, what, why, do) }
func (l *list) hidden(check, what, why, need string) { l.add(Warning, check, what, why, need) }

// unseen notes that a check could not look, because of err.
func (l *list) unseen(check, at string, err error, do string) {
	why := "The check was not made: " + err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		why = fmt.Sprintf("It did not answer within %v.", bound)
	}
	l.hidden(check, "could not look at "+at, why, do)
}

// skew judges how far a clock is from here, measured with a question and its answer.
func (l *list) skew(check, whose string, sent, answered, said time.Time) {
	// The answer was made at some time between the two.
	off := max(sent.Sub(said), said.Sub(answered), 0)
	switch {
	case off >= 10*time.Minute:
		l.problem(check, fmt.Sprintf("the clock of %s and the one of this machine differ by %v", whose, off.Round(time.Second)),
			"The library judges by the ledger's clock alone, and withstands workers that are off by up to 10 minutes; people who compare logs do not.",
			"Synchronize both with NTP (chrony, systemd-timesyncd).")
	case off >= 5*time.Second:
		l.warn(check, fmt.Sprintf("the clock of %s and the one of this machine differ by %v", whose, off.Round(time.Second)),
			"No decision depends on it, but times in the ledger and in your logs do not match.",
			"Synchronize both with NTP (chrony, systemd-timesyncd).")
	default:
		l.ok(check, "the clock of "+whose+" agrees with the one of this machine")
	}
}

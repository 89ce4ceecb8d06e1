package runs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fencedrun/fencedrun/ledger/key"
)

// Config holds a keeper's settings. nil means all defaults; a zero field means its default.
// The keepers of one ledger should agree on Lease, Quiet and Retention.
type Config struct {
	// Namespace keeps two products or stages on one ledger apart: it is part of every
	// effect's identity, so changing it forgets everything that was done. At most 512
	// bytes. Defaults to empty.
	Namespace string

	// Lease is how long a run counts as alive after its last heartbeat. Too short, and a
	// pause makes a newer delivery take over from a healthy one; too long, and a crashed
	// worker keeps others waiting. Defaults to 30 s.
	Lease time.Duration
	// Beat is how often leases are renewed, with one statement for the whole process. Must be
	// shorter than Lease. Defaults to a third of Lease.
	Beat time.Duration

	// EffectTimeout is how long an effect may run before its ctx is done. Defaults to 1 min.
	EffectTimeout time.Duration
	// ClaimDeadline is when a claim whose outcome nobody recorded becomes unknown. Must be
	// longer than EffectTimeout, by what a claim and a settle may take: a call for which less
	// than EffectTimeout is left is not made (rule S6.3). Defaults to twice EffectTimeout.
	ClaimDeadline time.Duration
	// MaxCalls limits the calls of one effect that reached the provider and are known not to
	// have applied (rule S5.6). Defaults to 3.
	MaxCalls int
	// MaxResult is the largest result that is kept, in bytes of JSON. A larger one is recorded
	// as done without its value (rule S7.5). Defaults to 64 KiB.
	MaxResult int
	// SettleTimeout bounds how long recording an outcome may take; it is also the most,
	// within a tenth, that recording holds up a shutdown. Defaults to 10 s.
	SettleTimeout time.Duration
	// PollMin and PollMax bound the pauses while waiting for an effect in flight. Default to
	// 25 ms and 250 ms.
	PollMin, PollMax time.Duration
	// Rounds is how often UntilCurrent tries. Defaults to 3.
	Rounds int
	// Retention is how long finished records are kept, and open messages listed. It must
	// outlast the queue's retries (about three weeks by default on both queues), or a late
	// retry does its effects again. Defaults to 30 days.
	Retention time.Duration
	// Quiet is how long after a claim's deadline late evidence is waited for, before a probe
	// is believed or a job is parked. Defaults to ClaimDeadline.
	Quiet time.Duration

	// Intents declares intents that have a Probe, for Sweep and for everybody whom an unknown
	// outcome of theirs holds up; other intents may be in it. What is declared here is also true
	// of effects of that name that are asked for without their Intent, as Run.Once does. Defaults
	// to none.
	Intents []Declared

	// Observer is told of every event after it is true. It must return soon and must not
	// call the keeper. Defaults to none.
	Observer func(ctx context.Context, e Event)
	// Logger receives the events as log records; see SlogObserver. Defaults to silence.
	Logger *slog.Logger
	// Worker says in records who did something. Defaults to host name and process id.
	Worker string
}

// withDefaults returns a copy with every field set, or an error that names the settings which
// cannot work together.
func (c *Config) withDefaults() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	for _, f := range []struct {
		name string
		v    time.Duration
	}{
		{"Lease", d.Lease}, {"Beat", d.Beat}, {"EffectTimeout", d.EffectTimeout}, {"ClaimDeadline", d.ClaimDeadline},
		{"SettleTimeout", d.SettleTimeout}, {"PollMin", d.PollMin}, {"PollMax", d.PollMax},
		{"Retention", d.Retention}, {"Quiet", d.Quiet},
	} {
		if f.v < 0 {
			return d, fmt.Errorf("fencedrun: Config.%s is negative: %v", f.name, f.v)
		}
	}
	for _, f := range []struct {
		name string
		v    int
	}{{"MaxCalls", d.MaxCalls}, {"MaxResult", d.MaxResult}, {"Rounds", d.Rounds}} {
		if f.v < 0 {
			return d, fmt.Errorf("fencedrun: Config.%s is negative: %d", f.name, f.v)
		}
	}
	orDefault(&d.Lease, 30*time.Second)
	orDefault(&d.Beat, d.Lease/3)
	orDefault(&d.EffectTimeout, time.Minute)
	orDefault(&d.ClaimDeadline, 2*d.EffectTimeout)
	orDefault(&d.MaxCalls, 3)
	orDefault(&d.MaxResult, 64<<10)
	orDefault(&d.SettleTimeout, 10*time.Second)
	orDefault(&d.PollMin, 25*time.Millisecond)
	orDefault(&d.PollMax, max(250*time.Millisecond, d.PollMin))
	orDefault(&d.Rounds, 3)
	orDefault(&d.Retention, 30*24*time.Hour)
	orDefault(&d.Quiet, d.ClaimDeadline)
	if d.Worker == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		d.Worker = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	d.Worker = clean(d.Worker)
	if err := d.check(); err != nil {
		return d, err
	}
	return d, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) check() error {
	if c.Namespace != "" {
		if err := key.ValidateName("Config.Namespace", c.Namespace, key.MaxConversation); err != nil {
			return err
		}
	}
	switch {
	case c.Lease <= c.Beat:
		return fmt.Errorf("fencedrun: Config.Lease (%v) must be longer than Config.Beat (%v)", c.Lease, c.Beat)
	case c.ClaimDeadline <= c.EffectTimeout:
		return fmt.Errorf("fencedrun: Config.ClaimDeadline (%v) must be longer than Config.EffectTimeout (%v)", c.ClaimDeadline, c.EffectTimeout)
	case c.PollMax < c.PollMin:
		return fmt.Errorf("fencedrun: Config.PollMax (%v) must be at least Config.PollMin (%v)", c.PollMax, c.PollMin)
	case c.Retention < c.ClaimDeadline+c.Quiet:
		return fmt.Errorf("fencedrun: Config.Retention (%v) must be longer than Config.ClaimDeadline and Config.Quiet together (%v)", c.Retention, c.ClaimDeadline+c.Quiet)
	}
	return nil
}

package riverruns

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/riverqueue/river/rivertype"
)

// warnings remembers what was said, so that it is said once.
type warnings struct{ said sync.Map }

// warns reports whether to warn of something about a kind of jobs now.
func (p *Plugin) warns(kind, about string) bool {
	if p.config.Logger == nil {
		return false
	}
	_, again := p.warned.said.LoadOrStore([2]string{kind, about}, true)
	return !again
}

// WorkEnd implements rivertype.HookWorkEnd. It changes nothing: of all that River
// calls, it alone sees whether the job has a timeout.
func (p *Plugin) WorkEnd(ctx context.Context, job *rivertype.JobRow, err error) error {
	if ctx.Value(inside{}) == nil {
		return err
	}
	if _, ok := ctx.Deadline(); !ok && p.warns(job.Kind, "timeout") {
		p.config.Logger.LogAttrs(ctx, slog.LevelWarn, "fencedrun: riverruns: jobs without a timeout are never rescued by River after a crash",
			slog.String("kind", job.Kind))
	}
	return err
}

// warnAttempts warns of a job that River may retry when the ledger has forgotten
// it, which would do its effects again.
func (p *Plugin) warnAttempts(ctx context.Context, job *rivertype.JobRow) {
	if limit := p.maxAttempts(); job.MaxAttempts > limit && p.warns(job.Kind, "attempts") {
		p.config.Logger.LogAttrs(ctx, slog.LevelWarn, "fencedrun: riverruns: with River's default retry policy the job's last attempt comes after the keeper's retention",
			slog.String("kind", job.Kind), slog.Int("max_attempts", job.MaxAttempts), slog.Int("covered", limit))
	}
}

// maxAttempts is how many attempts the keeper's retention outlasts. River's
// default policy waits n⁴ seconds after the n-th error, give or take a tenth.
func (p *Plugin) maxAttempts() int {
	retention := p.keeper.Config().Retention
	var horizon time.Duration
	for n := 1; ; n++ {
		horizon += time.Duration(1.1 * math.Pow(float64(n), 4) * float64(time.Second))
		if horizon > retention {
			return n
		}
	}
}

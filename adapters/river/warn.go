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

func (p *Plugin) warn(ctx context.Context, kind, text string, attrs ...slog.Attr) {
	if p.config.Logger == nil {
		return
	}
	if _, again := p.warned.said.LoadOrStore(kind+"\x00"+text, true); again {
		return
	}
	attrs = append([]slog.Attr{slog.String("kind", kind)}, attrs...)
	p.config.Logger.LogAttrs(ctx, slog.LevelWarn, "fencedrun: riverruns: "+text, attrs...)
}

// WorkEnd implements rivertype.HookWorkEnd. It changes nothing: of all that River
// calls, it alone sees whether the job has a timeout.
func (p *Plugin) WorkEnd(ctx context.Context, job *rivertype.JobRow, err error) error {
	if ctx.Value(inside{}) != nil {
		if _, ok := ctx.Deadline(); !ok {
			p.warn(ctx, job.Kind, "jobs of this kind have no timeout: after a crash River never rescues them")
		}
	}
	return err
}

// warnAttempts warns of a job that River may retry when the ledger has forgotten
// it, which would do its effects again.
func (p *Plugin) warnAttempts(ctx context.Context, job *rivertype.JobRow) {
	if limit := p.maxAttempts(); job.MaxAttempts > limit {
		p.warn(ctx, job.Kind, "jobs of this kind have so many attempts that, with River's default retry policy, the last comes after the keeper's retention",
			slog.Int("max_attempts", job.MaxAttempts), slog.Int("covered", limit))
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

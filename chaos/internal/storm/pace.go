package storm

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// How fast everything goes: short enough that a minute holds thousands of jobs, and every deadline
// of the library is overrun by somebody every few seconds.
const (
	lease         = time.Second
	effectTimeout = 500 * time.Millisecond
	claimDeadline = time.Second
	quiet         = 300 * time.Millisecond

	jobTimeout  = 5 * time.Second // of one delivery
	maxAttempts = 10_000          // a storm must not use them up
	concurrency = 8               // of a worker
	poll        = 30 * time.Millisecond
	backOff     = 100 * time.Millisecond

	silence     = 900 * time.Millisecond // of a connection, before it ends
	orphanAfter = 900 * time.Millisecond // at work for the queue, in nobody's hands
	backlog     = 120                    // jobs that are not done, before customers wait
	startLimit  = 60 * time.Second       // for a child
	stopLimit   = 8 * time.Second
	drainLimit  = 60 * time.Second
)

// span is a range of times.
type span struct{ low, high time.Duration }

func (s span) in(rng *rand.Rand) time.Duration {
	return s.low + time.Duration(rng.Int64N(int64(s.high-s.low)))
}

var (
	typing   = span{3 * time.Millisecond, 40 * time.Millisecond}    // between the messages of a burst
	reading  = span{150 * time.Millisecond, 800 * time.Millisecond} // after a burst
	thinking = span{2 * time.Millisecond, 40 * time.Millisecond}    // of a handler

	kills    = span{400 * time.Millisecond, 1200 * time.Millisecond}
	away     = span{50 * time.Millisecond, 400 * time.Millisecond} // between a kill and the restart
	pauses   = span{700 * time.Millisecond, 2000 * time.Millisecond}
	frozen   = span{1200 * time.Millisecond, 2600 * time.Millisecond} // longer than a lease and a claim
	cuts     = span{20 * time.Millisecond, 120 * time.Millisecond}
	late     = span{50 * time.Millisecond, 800 * time.Millisecond} // of a frame
	seconds  = span{15 * time.Millisecond, 90 * time.Millisecond}
	drops    = span{300 * time.Millisecond, 900 * time.Millisecond}
	forgets  = span{200 * time.Millisecond, 700 * time.Millisecond}
	stops    = span{2 * time.Second, 5 * time.Second} // of a server, which is then frozen
	restarts = span{2500 * time.Millisecond, 5 * time.Second}
	lateness = span{550 * time.Millisecond, 1600 * time.Millisecond} // of the provider
	swiftly  = span{0, 8 * time.Millisecond}
)

func keeperConfig(worker string) *runs.Config {
	return &runs.Config{
		Lease: lease, Beat: lease * 3 / 10, EffectTimeout: effectTimeout, ClaimDeadline: claimDeadline, Quiet: quiet,
		PollMin: 5 * time.Millisecond, PollMax: 50 * time.Millisecond, SettleTimeout: 2 * time.Second, MaxCalls: 10, Worker: worker,
	}
}

// sleep reports false if ctx was done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

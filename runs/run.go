package runs

import (
	"context"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Run is one delivery of a job at work: what a handler finds in its ctx. Its methods may be
// called by many goroutines. A nil *Run refuses everything with ErrNoRun, so that a handler
// that was called outside its adapter fails closed.
type Run struct {
	k      *Keeper
	h      *ledger.Handle
	job    Job
	record fence.Run       // as Begin found or made it
	number int64           // among the keeper's runs
	queue  context.Context // the queue's own ctx: renewal is bound to it (rule S9.1)
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
	lost   chan struct{} // closed when the right to write is lost

	mu       sync.Mutex
	over     bool          // the handler has returned
	loss     *RefusedError // why the right to write was lost; sticky
	expires  time.Time     // when the watchdog of mode exclusive bites, by the process's clock
	stop     func() bool   // stops it
	progress []byte
	away     bool          // the ledger did not answer within the bound of a settle
	untold   []fence.Event // what a transaction of the handler's made true, if it was committed
}

// noteAway and ledgerAway keep a shutdown from waiting for the same ledger twice.
func (r *Run) noteAway() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.away = true
	r.mu.Unlock()
}

func (r *Run) ledgerAway() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

type runKey struct{}

// FromContext returns the run that ctx belongs to, or nil outside a run. All methods of a nil
// *Run refuse with ErrNoRun.
func FromContext(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// Job returns the job that the run was opened for.
func (r *Run) Job() Job {
	if r == nil {
		return Job{}
	}
	return r.job.own()
}

// Delivery returns the ledger's number of this execution of the job, from 1. It has nothing
// to do with the queue's retry counter.
func (r *Run) Delivery() int64 {
	if r == nil {
		return 0
	}
	return r.h.Delivery().ID.Number
}

// noRun is what a nil *Run answers.
func noRun(effect EffectRef) error { return localRefusal(fence.ReasonNoRun, effect) }

// Dismiss closes messages without an answer (rule S4.9): a "thanks" that needs none, spam. ids
// that are closed already stay as they are. why is for people.
func (r *Run) Dismiss(ctx context.Context, ids []string, why string) error {
	if r == nil {
		return noRun(EffectRef{})
	}
	if err := checkIDs("ids", ids); err != nil {
		return err
	}
	if refusal := r.may(); refusal != nil {
		return refusal
	}
	v, err := r.h.Dismiss(ctx, ids, clean(why))
	if err != nil {
		return r.k.failed(ctx, r.job, "dismiss", err)
	}
	return r.judged(v.Refusal, 0)
}

// judged returns a refusal of the run itself as an error, and keeps what it tells.
func (r *Run) judged(ref *fence.Refusal, now fence.Millis) error {
	if ref == nil {
		return nil
	}
	refused := r.k.refused(ref, EffectRef{}, now)
	r.refused(refused)
	return refused
}

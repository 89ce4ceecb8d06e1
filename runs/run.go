package runs

import (
	"context"
	"encoding/json"
	"fmt"
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
	queue  context.Context // the queue's own ctx: renewal is bound to it (rule S9.1)
	cancel context.CancelCauseFunc
	lost   chan struct{} // closed when the right to write is lost

	mu       sync.Mutex
	over     bool          // the handler has returned
	loss     *RefusedError // why the right to write was lost; sticky
	unknown  bool          // an effect of this run ended, or was refused, as unknown
	stop     func() bool   // the watchdog of mode exclusive
	progress []byte
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
	return r.job
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

// lose makes the run lose its right to write: the handler's ctx is cancelled with the cause,
// and effects under way are told. Only the first loss counts.
func (r *Run) lose(cause *RefusedError) {
	r.mu.Lock()
	if r.loss != nil || r.over {
		r.mu.Unlock()
		return
	}
	r.loss = cause
	r.mu.Unlock()
	close(r.lost)
	r.cancel(cause)
	r.k.tell(r.queue, Event{
		Kind: fence.EventLeaseLost, Conversation: r.job.Conversation, Run: r.job.key(),
		Delivery: r.Delivery(), Reason: cause.Reason,
	})
}

// state returns whether the handler has returned, and why the run may no longer write.
func (r *Run) state() (over bool, loss *RefusedError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over, r.loss
}

func (r *Run) noteUnknown() {
	r.mu.Lock()
	r.unknown = true
	r.mu.Unlock()
}

// SaveProgress stores v, as JSON, for the next delivery of this job (rule S9.1): how far a
// long job has come, a cursor, what the model said. At most Config.MaxResult bytes. The last
// one saved counts.
func (r *Run) SaveProgress(ctx context.Context, v any) error {
	if r == nil {
		return noRun(EffectRef{})
	}
	if over, loss := r.state(); over {
		return localRefusal(fence.ReasonEnded, EffectRef{})
	} else if loss != nil {
		return loss
	}
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("fencedrun: save progress: %w", err)
	}
	if len(value) > r.k.config.MaxResult {
		return fmt.Errorf("fencedrun: save progress: %d bytes of JSON, over Config.MaxResult (%d)", len(value), r.k.config.MaxResult)
	}
	ref, err := r.h.SaveProgress(ctx, value)
	if err != nil {
		return r.k.storeError(ctx, r.job, "save progress", err)
	}
	if ref != nil {
		return r.k.refused(ref, EffectRef{}, 0)
	}
	r.mu.Lock()
	r.progress = value
	r.mu.Unlock()
	return nil
}

// Progress decodes into v what this or an earlier delivery of the job saved last. It reports
// false when nothing was saved.
func (r *Run) Progress(v any) (bool, error) {
	if r == nil {
		return false, noRun(EffectRef{})
	}
	r.mu.Lock()
	value := r.progress
	r.mu.Unlock()
	if value == nil {
		return false, nil
	}
	if err := json.Unmarshal(value, v); err != nil {
		return false, fmt.Errorf("fencedrun: progress: %w", err)
	}
	return true, nil
}

// Dismiss closes messages without an answer (rule S4.9): a "thanks" that needs none, spam. ids
// that are closed already stay as they are.
func (r *Run) Dismiss(ctx context.Context, ids []string, why string) error {
	if r == nil {
		return noRun(EffectRef{})
	}
	if over, loss := r.state(); over {
		return localRefusal(fence.ReasonEnded, EffectRef{})
	} else if loss != nil {
		return loss
	}
	if err := checkIDs("ids", ids); err != nil {
		return err
	}
	v, err := r.h.Dismiss(ctx, ids, why)
	if err != nil {
		return r.k.storeError(ctx, r.job, "dismiss", err)
	}
	if v.Refusal != nil {
		return r.k.refused(v.Refusal, EffectRef{}, 0)
	}
	return nil
}

// storeError wraps an error of the ledger and tells the observer.
func (k *Keeper) storeError(ctx context.Context, job Job, verb string, err error) error {
	wrapped := &LedgerError{Verb: verb, Err: err}
	k.tell(ctx, Event{Kind: fence.EventLedgerError, Conversation: job.Conversation, Run: job.key(), Text: verb, Err: err})
	return wrapped
}

// LedgerError says that the ledger could not be asked. What was asked for did not happen, or
// will be recognised when it is asked for again: an effect is not called without its claim.
type LedgerError struct {
	Verb string
	Err  error
}

// Error names what was tried.
func (e *LedgerError) Error() string { return "fencedrun: " + e.Verb + ": " + e.Err.Error() }

// Unwrap returns the ledger's own error.
func (e *LedgerError) Unwrap() error { return e.Err }

// watch starts, or starts again, the watchdog of mode exclusive: it counts from the moment at
// which a renewal that landed was sent, and stops the handler before anybody else can take
// over (rule S9.4).
func (r *Run) watch(sent time.Time) {
	if r.job.Mode != Exclusive || r.k.seam.Off.Has(noWatchdog) {
		return
	}
	lease := r.k.config.Lease
	left := lease - lease/10 - r.k.seam.Now().Sub(sent)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.loss != nil {
		return
	}
	if r.stop != nil {
		r.stop()
	}
	r.stop = r.k.seam.AfterFunc(max(left, 0), func() {
		r.lose(localRefusal(fence.ReasonLeaseLost, EffectRef{}))
	})
}

// finish marks the handler as returned and stops the watchdog.
func (r *Run) finish() {
	r.mu.Lock()
	r.over = true
	stop := r.stop
	r.stop = nil
	r.mu.Unlock()
	if stop != nil {
		stop()
	}
}

package runs

import (
	"context"
	"fmt"
)

// SaveProgress stores v, as JSON, for the next delivery of this job (rule S9.1): how far a
// long job has come, a cursor, what the model said. At most Config.MaxResult bytes. The last
// one saved counts.
func (r *Run) SaveProgress(ctx context.Context, v any) error {
	if r == nil {
		return noRun(EffectRef{})
	}
	value, err := encode(v)
	if err != nil {
		return fmt.Errorf("fencedrun: save progress: %w", err)
	}
	if len(value) > r.k.config.MaxResult {
		return fmt.Errorf("fencedrun: save progress: %d bytes of JSON, over Config.MaxResult (%d)", len(value), r.k.config.MaxResult)
	}
	if refusal := r.may(); refusal != nil {
		return refusal
	}
	ref, err := r.h.SaveProgress(ctx, value)
	if err != nil {
		return r.k.failed(ctx, r.job, "save progress", err)
	}
	if err := r.judged(ref, 0); err != nil {
		return err
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
	if err := decode(value, v); err != nil {
		return false, fmt.Errorf("fencedrun: progress: %w", err)
	}
	return true, nil
}

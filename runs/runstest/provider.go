package runstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Mode is what a Provider does with a call.
type Mode int

// The modes.
const (
	// Act acts and says so.
	Act Mode = iota
	// Fail does not act, and says so with an error that is NotApplied.
	Fail
	// ActAndTimeout acts, and does not answer before the effect's ctx is done.
	ActAndTimeout
	// Timeout does not act, and does not answer either: nobody can tell it from ActAndTimeout.
	Timeout
	// ActAndCrash acts, and the process that called dies before it hears of it.
	ActAndCrash
)

// Provider is somebody else's system that counts what it did. It honours no idempotency key: a
// call that reaches it twice acts twice.
type Provider struct {
	k *Keeper

	mu     sync.Mutex
	script []Mode
	acted  map[string]int
	calls  int
	during func(ctx context.Context, call *runs.Call)
}

// NewProvider returns a provider that acts on every call.
func (k *Keeper) NewProvider() *Provider { return &Provider{k: k, acted: map[string]int{}} }

// Next says what to do with the calls to come, one mode each; then Act again.
func (p *Provider) Next(modes ...Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = append(p.script, modes...)
}

// During has f called in the midst of the next call, before the provider acts: a place to
// deliver another job, or to move the clock.
func (p *Provider) During(f func(ctx context.Context, call *runs.Call)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.during = f
}

// Do is one call, to be made in an effect.
func (p *Provider) Do(ctx context.Context, call *runs.Call) error {
	p.mu.Lock()
	p.calls++
	mode := Act
	if len(p.script) > 0 {
		mode, p.script = p.script[0], p.script[1:]
	}
	during := p.during
	p.during = nil
	p.mu.Unlock()
	if during != nil {
		during(ctx, call)
	}
	switch mode {
	case Fail:
		return runs.NotApplied(errors.New("runstest: the provider refused"))
	case Timeout:
		return p.silence(ctx)
	}
	p.act(call)
	switch mode {
	case ActAndTimeout:
		return p.silence(ctx)
	case ActAndCrash:
		Crash(ctx)
	}
	return nil
}

func (p *Provider) act(call *runs.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acted[call.IdempotencyKey]++
}

// silence moves the clock until ctx is done.
func (p *Provider) silence(ctx context.Context) error {
	p.k.clock.advance(24*time.Hour, func() bool { return ctx.Err() != nil })
	if ctx.Err() == nil {
		p.k.t.Errorf("runstest: the effect's ctx has no timeout; call Do with the ctx that the effect got")
		return errors.New("runstest: no answer")
	}
	return fmt.Errorf("runstest: no answer: %w", ctx.Err())
}

// Acted returns how often the provider acted.
func (p *Provider) Acted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, times := range p.acted {
		n += times
	}
	return n
}

// Duplicates returns how often the provider acted beyond the first time for the same
// idempotency key. It should be 0.
func (p *Provider) Duplicates() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, times := range p.acted {
		n += times - 1
	}
	return n
}

// Calls returns how many calls reached the provider, whether it acted or not.
func (p *Provider) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

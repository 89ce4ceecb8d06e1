package runs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
)

// Keeper opens runs over a ledger. Make one per process with [New], and [Keeper.Close] it. Its
// methods may be called by many goroutines.
//
// A keeper owns one goroutine while runs are open, which renews their leases.
type Keeper struct {
	config Config
	seam   *seam.Seam
	ledger *ledger.Ledger

	ctx    context.Context // done at Close
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	joined  int64             // runs that were ever opened, which is their order
	live    map[*Run]struct{} // runs whose handler is at work
	beating chan struct{}     // closed when the beating goroutine has ended; nil: none runs

	close func() error
}

// ErrClosed is returned by a keeper that was closed.
var ErrClosed = errors.New("fencedrun: the keeper is closed")

// New returns a keeper over store. config may be nil; settings that cannot work together are
// an error that names them. The keeper closes the store when it is closed.
func New(store ledger.Store, config *Config) (*Keeper, error) {
	return NewSeamed(store, config, seam.Real())
}

// NewSeamed is New on another clock and scheduler. It is for this module's own simulator:
// nobody outside can make a seam.
func NewSeamed(store ledger.Store, config *Config, s *seam.Seam) (*Keeper, error) {
	if store == nil {
		return nil, errors.New("fencedrun: new keeper: store is nil")
	}
	c, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	k := &Keeper{config: c, seam: s, live: map[*Run]struct{}{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.ledger = ledger.New(store, ledger.Options{
		Namespace: c.Namespace,
		Rules: fence.Rules{
			Lease: fence.MillisOf(c.Lease), Quiet: fence.MillisOf(c.Quiet),
			Retention: fence.MillisOf(c.Retention), MaxCalls: c.MaxCalls,
		}.Without(s.Off),
		Seam: s,
		Emit: k.emit,
	})
	k.close = sync.OnceValue(k.shut)
	return k, nil
}

// SeamOf returns the seam that the keeper was made with, for this module's own adapters.
func SeamOf(k *Keeper) *seam.Seam { return k.seam }

// Config returns the keeper's settings, defaults filled in.
func (k *Keeper) Config() Config { return k.config }

// Close stops renewing leases, waits for the keeper's goroutine and closes the store. Handlers
// that are still at work lose the ledger: stop the queue's server first. Closing again waits
// for the first Close and returns its error.
func (k *Keeper) Close() error { return k.close() }

func (k *Keeper) shut() error {
	k.mu.Lock()
	k.closed = true
	beating := k.beating
	k.mu.Unlock()
	k.cancel()
	if beating != nil {
		_ = k.seam.Wait(context.Background(), beating)
	}
	return k.ledger.Close()
}

func (k *Keeper) open() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	return nil
}

// settleCtx is the ctx for recording what is known: it outlives ctx's cancellation, keeps its
// values, and is bounded (rule S7.1).
func (k *Keeper) settleCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	return k.detached(ctx, k.config.SettleTimeout)
}

// detached returns a ctx with ctx's values that outlives its cancellation and ends after bound.
func (k *Keeper) detached(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	return k.seam.WithTimeout(context.WithoutCancel(ctx), bound)
}

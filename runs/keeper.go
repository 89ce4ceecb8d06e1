package runs

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

	declared map[string]traits // by intent
	probes   bool              // one of them has a probe

	ctx    context.Context // done at Close
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	joined  int64             // runs that were ever opened, which is their order
	live    map[*Run]struct{} // runs whose handler is at work
	beating chan struct{}     // closed when the beating goroutine has ended; nil: none runs
	busy    int               // deliveries and effects at work, what is written after them included
	drained chan struct{}     // closed when busy is 0; nil: nobody waits

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
	if err := k.declare(); err != nil {
		return nil, err
	}
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

// declare takes up Config.Intents.
func (k *Keeper) declare() error {
	k.declared = make(map[string]traits, len(k.config.Intents))
	for i, in := range k.config.Intents {
		if v := reflect.ValueOf(in); in == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return fmt.Errorf("fencedrun: Config.Intents[%d] is nil", i)
		}
		t := in.traits()
		if err := t.check(); err != nil {
			return fmt.Errorf("fencedrun: Config.Intents[%d]: %w", i, inner(err))
		}
		if err := (&order{}).times(&k.config, t, With{}); err != nil {
			return fmt.Errorf("fencedrun: Config.Intents[%d]: %w", i, err)
		}
		if _, twice := k.declared[t.name]; twice {
			return fmt.Errorf("fencedrun: Config.Intents declares %q twice", t.name)
		}
		k.declared[t.name] = t
		k.probes = k.probes || t.probe != nil
	}
	return nil
}

// SeamOf returns the seam that the keeper was made with, for this module's own adapters.
func SeamOf(k *Keeper) *seam.Seam { return k.seam }

// Config returns the keeper's settings, defaults filled in.
func (k *Keeper) Config() Config { return k.config }

// Drain waits until no delivery and no effect is at work with this keeper, what is recorded after
// them included, or ctx is done; it returns ctx's cause then. Call it between stopping the queue's
// server and Close, because a server may not wait for handlers that it has cancelled: Asynq's
// Shutdown does not, nor River's Stop once its ctx is done. What such a handler learns after Close
// is not recorded.
func (k *Keeper) Drain(ctx context.Context) error {
	for {
		k.mu.Lock()
		if k.busy == 0 {
			k.mu.Unlock()
			return nil
		}
		if k.drained == nil {
			k.drained = make(chan struct{})
		}
		drained := k.drained
		k.mu.Unlock()
		if cause := k.seam.Wait(ctx, drained); cause != nil {
			return cause
		}
	}
}

// enter and exit count what is at work.
func (k *Keeper) enter() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy++
}

func (k *Keeper) exit() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy--
	if k.busy == 0 && k.drained != nil {
		close(k.drained)
		k.drained = nil
	}
}

// Close stops renewing leases, waits for the keeper's goroutine and closes the store. Handlers
// that are still at work lose the ledger: stop the queue's server first, and see Drain. Closing
// again waits for the first Close and returns its error.
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

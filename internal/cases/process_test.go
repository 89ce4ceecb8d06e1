package cases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
)

// process stands between a worker and the ledger, so that a story can kill the worker or make
// the ledger slow or deaf at one exact moment.
type process struct {
	ledger.Store
	w *world

	mu       sync.Mutex
	dead     bool
	onWrite  func(ctx context.Context) error // before the next write, once
	deaf     bool                            // every call hangs until its ctx is done
	renewals []renewal
}

// renewal is one lease in one heartbeat.
type renewal struct {
	ledger.LeaseKey
	at time.Duration
}

var errKilled = errors.New("this process was killed")

// kill ends the process at this moment: nothing that it does from now on reaches the ledger,
// and nothing that it holds is given up.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// beforeNextWrite has f called just before the next write reaches the ledger. An error of f is
// the write's.
func (p *process) beforeNextWrite(f func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onWrite = f
}

// silence makes the ledger hang for this process: every call blocks for as long as it may.
func (p *process) silence(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = on
}

// renewed returns the heartbeats since t0 + from that carried a lease of this job.
func (p *process) renewed(jobID string, from time.Duration) []renewal {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []renewal
	for _, r := range p.renewals {
		if r.at > from && r.Run == runRow(jobID) {
			found = append(found, r)
		}
	}
	return found
}

func (p *process) reach(ctx context.Context) error {
	p.mu.Lock()
	dead, deaf := p.dead, p.deaf
	p.mu.Unlock()
	if dead {
		return errKilled
	}
	if deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (p *process) beforeWrite(ctx context.Context) error {
	if err := p.reach(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	f := p.onWrite
	p.onWrite = nil
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

// asStore returns what the keeper is given: a Locker if the ledger is one.
func (p *process) asStore() ledger.Store {
	if locker, ok := p.Store.(ledger.Locker); ok {
		return &lockingProcess{process: p, locker: locker}
	}
	return p
}

func (p *process) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	if err := p.reach(ctx); err != nil {
		return ledger.Snapshot{}, err
	}
	return p.Store.Load(ctx, conversation, q)
}

func (p *process) Apply(ctx context.Context, conversation string, write ledger.Write) (ledger.Result, error) {
	if err := p.beforeWrite(ctx); err != nil {
		return ledger.Result{}, err
	}
	return p.Store.Apply(ctx, conversation, write)
}

func (p *process) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if err := p.reach(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	for _, key := range leases {
		p.renewals = append(p.renewals, renewal{key, p.w.since()})
	}
	p.mu.Unlock()
	return p.Store.Renew(ctx, leases, d)
}

func (p *process) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	if err := p.reach(ctx); err != nil {
		return nil, err
	}
	return p.Store.Scan(ctx, q)
}

type lockingProcess struct {
	*process
	locker ledger.Locker
}

func (p *lockingProcess) WithLock(ctx context.Context, conversation string, fn func(tx ledger.Tx) error) error {
	if err := p.reach(ctx); err != nil {
		return err
	}
	return p.locker.WithLock(ctx, conversation, func(tx ledger.Tx) error { return fn(&processTx{Tx: tx, p: p.process}) })
}

type processTx struct {
	ledger.Tx
	p *process
}

func (t *processTx) Apply(ctx context.Context, conversation string, write ledger.Write) (ledger.Result, error) {
	if err := t.p.beforeWrite(ctx); err != nil {
		return ledger.Result{}, err
	}
	return t.Tx.Apply(ctx, conversation, write)
}

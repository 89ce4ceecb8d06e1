package runs

import (
	"sync"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
)

// Call is one try at an effect, as its function sees it.
type Call struct {
	// Number counts the calls of this effect, from 1.
	Number int
	// IdempotencyKey is the same for every call, delivery, worker and ledger of this effect,
	// and different for every other: printable ASCII, 44 characters. Hand it to the
	// provider.
	IdempotencyKey string
	// Fence grows with every claim on the conversation. Hand it to a system that refuses
	// smaller numbers than it has seen.
	Fence int64
	// Effect names the effect.
	Effect EffectRef

	lost <-chan struct{}

	mu        sync.Mutex
	reference string
}

func newCall(o *order, c *fence.Call, lost <-chan struct{}) *Call {
	return &Call{Number: c.Number, IdempotencyKey: idempotencyKey(o.ref.ID), Fence: c.Fence, Effect: o.ref, lost: lost}
}

func idempotencyKey(effect string) string { return key.IdempotencyKey(effect) }

// SetReference records the provider's own name for what was made, such as a refund id. A later
// report that carries it is recognised as this effect's echo. The last one set counts.
func (c *Call) SetReference(ref string) {
	c.mu.Lock()
	c.reference = ref
	c.mu.Unlock()
}

func (c *Call) getReference() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reference
}

// Lost is closed when the run lost its right to write while the effect is under way, for
// effects that can stop cleanly. An effect that stops must say whether it applied. It is nil,
// and never closed, for an effect without a run.
func (c *Call) Lost() <-chan struct{} { return c.lost }

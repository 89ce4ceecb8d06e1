// Package seam is the one place where this library meets time, concurrency and randomness.
//
// Everything that would make two executions of the same code differ passes through a
// [Seam]: now, sleep, deadlines, starting a goroutine, random ids, waiting, locks held
// across a store call, and what the queue says about a delivery. [Real] is what
// production uses. A simulator supplies another Seam and so drives the very same code
// on simulated time, one step at a time.
//
// The package is internal: no user can construct a Seam, so nothing here can be
// reached in production.
package seam

import (
	"context"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// Seam holds the functions through which the library touches the outside world.
// All fields are set; a Seam is not changed after its first use.
type Seam struct {
	// Now is the process's clock. Only differences of its values are used, never for a
	// decision about leases or deadlines: those belong to the ledger's clock (rule S3.3).
	Now func() time.Time
	// Sleep returns nil after d, or ctx's cause as soon as ctx is done.
	Sleep func(ctx context.Context, d time.Duration) error
	// WithTimeout derives a ctx that is done after d with context.DeadlineExceeded.
	WithTimeout func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// AfterFunc calls f once after d unless stopped before. It reports whether stop came first.
	AfterFunc func(d time.Duration, f func()) (stop func() bool)
	// Go runs f concurrently.
	Go func(f func())
	// NewID returns a fresh random identifier: 26 characters, 130 bits, [a-z2-7].
	NewID func() string
	// Jitter returns a random duration in [0, d).
	Jitter func(d time.Duration) time.Duration
	// NewLock returns a lock that may be held across a store call.
	NewLock func() Lock
	// Wait returns nil once done is closed, or ctx's cause as soon as ctx is done.
	Wait func(ctx context.Context, done <-chan struct{}) error
	// Off names the rules that are switched off. Empty in production.
	Off sabotage.Set
}

// Lock is a mutual exclusion that gives up with its ctx. Waiters are served in order.
type Lock interface {
	// Lock returns nil when the lock is held, or ctx's cause.
	Lock(ctx context.Context) error
	Unlock()
}

// Delivery is what a queue says about the job in hand.
type Delivery struct {
	TaskID, Queue     string
	Retried, MaxRetry int
}

type deliveryKey struct{}

// WithDelivery returns a ctx that carries d, for code that drives an adapter's middleware
// without the queue's own server.
func WithDelivery(ctx context.Context, d Delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

// DeliveryFrom returns the Delivery put into ctx by [WithDelivery].
func DeliveryFrom(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(Delivery)
	return d, ok
}

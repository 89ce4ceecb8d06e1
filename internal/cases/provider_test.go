package cases

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// provider is the outside world: it sends messages and moves money, and counts. It honours no
// idempotency key, so that every call that applies is one more message in the customer's chat.
type provider struct {
	w *world

	mu     sync.Mutex
	calls  []*sent
	script map[string][]act // by intent, for the next calls
}

// sent is one call that reached the provider.
type sent struct {
	intent  string
	key     string // the effect's, canonical
	idem    string // the idempotency key that came with it
	text    string
	answers []string // the inbound messages that it answers
	number  int      // of the call, as the library counts
	at      time.Duration
	applied bool // the customer has it
	traceID any  // what the ctx carried
}

// act is what the provider does with one call. It returns what the caller sees.
type act func(ctx context.Context, s *sent) error

var (
	errUnavailable = errors.New("503 service unavailable: nothing was sent")
	errTimeout     = errors.New("timeout awaiting the provider's response")
)

// succeed does it and says so.
func succeed(_ context.Context, s *sent) error {
	s.applied = true
	return nil
}

// refuse fails before acting, and says so: a definite no.
func refuse(context.Context, *sent) error { return runs.NotApplied(errUnavailable) }

// actThenTimeOut does it, and the response is lost.
func actThenTimeOut(_ context.Context, s *sent) error {
	s.applied = true
	return errTimeout
}

// timeOut does nothing, and the caller cannot tell.
func timeOut(context.Context, *sent) error { return errTimeout }

// panicking panics with value, before the caller learns whether it was done.
func panicking(value any) act {
	return func(context.Context, *sent) error { panic(value) }
}

// doing does first something of the story's, then goes on as the next act.
func doing(first func(), next act) act {
	return func(ctx context.Context, s *sent) error {
		first()
		return next(ctx, s)
	}
}

// next says what becomes of the next calls with this intent, in turn; later ones succeed.
func (p *provider) next(intent string, acts ...act) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script[intent] = append(p.script[intent], acts...)
}

// gate holds a call at the provider until the story opens it.
type gate struct {
	w       *world
	reached chan struct{}
	opened  chan struct{}
	once    sync.Once
}

// hang holds the next call with this intent before it goes on as the given act.
func (p *provider) hang(intent string, then act) *gate {
	g := &gate{w: p.w, reached: make(chan struct{}), opened: make(chan struct{})}
	p.next(intent, func(ctx context.Context, s *sent) error {
		close(g.reached)
		select {
		case <-g.opened:
		case <-p.w.quit:
		}
		return then(ctx, s)
	})
	return g
}

// wait waits until the call is at the provider.
func (g *gate) wait() {
	g.w.Helper()
	g.w.await(g.reached, "the call never reached the provider")
}

// open lets the call go on.
func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// do is the provider's side of a call.
func (p *provider) do(ctx context.Context, call *runs.Call, e runs.Effect) error {
	s := &sent{
		intent: e.Intent, key: call.Effect.Key, idem: call.IdempotencyKey, text: e.Summary, answers: answersOf(e),
		number: call.Number, at: p.w.since(), traceID: ctx.Value(traceKey{}),
	}
	p.mu.Lock()
	p.calls = append(p.calls, s)
	behave := act(succeed)
	if acts := p.script[e.Intent]; len(acts) > 0 {
		behave, p.script[e.Intent] = acts[0], acts[1:]
	}
	p.mu.Unlock()
	// The record is changed by one goroutine and read when it has come to rest.
	mine := *s
	err := behave(ctx, &mine)
	p.mu.Lock()
	s.applied = mine.applied
	p.mu.Unlock()
	return err
}

// answersOf are the messages that an effect answers: those it names, or for a reply that names
// none the one that is its key.
func answersOf(e runs.Effect) []string {
	if len(e.Answers) > 0 || e.Intent != "reply" {
		return e.Answers
	}
	if id, ok := e.Key.SingleID(); ok {
		return []string{id}
	}
	return nil
}

// saw returns the calls with this intent, in the order in which they arrived.
func (p *provider) saw(intent string) []sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []sent
	for _, s := range p.calls {
		if s.intent == intent {
			found = append(found, *s)
		}
	}
	return found
}

// answersTo counts the calls that applied and answer message id.
func (p *provider) answersTo(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.calls {
		if s.applied && slices.Contains(s.answers, id) {
			n++
		}
	}
	return n
}

// duplicated reports whether a customer has something twice: one idempotency key, or one
// message's answer.
func (p *provider) duplicated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[string]int{}
	for _, s := range p.calls {
		if !s.applied {
			continue
		}
		seen["key "+s.idem]++
		for _, id := range s.answers {
			seen["message "+id]++
		}
	}
	for _, n := range seen {
		if n > 1 {
			return true
		}
	}
	return false
}

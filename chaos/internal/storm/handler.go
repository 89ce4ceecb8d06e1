package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// job is what a queue carries: one customer message that wants an answer.
type job struct {
	Conversation string `json:"conversation"`
	Message      string `json:"message"`
	// Number orders the jobs where the queue itself has no order.
	Number int64 `json:"number"`
}

// objectOf returns what a message complains about and wants refunded: all messages of a burst are
// about the same.
func objectOf(message string) string { return message[:strings.LastIndexByte(message, '-')] }

// objects returns what the messages are about, each once.
func objects(messages []string) []string {
	var list []string
	for _, m := range messages {
		if o := objectOf(m); !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	return list
}

// bot is what works jobs off.
type bot struct {
	desk *client
	mu   sync.Mutex
	rng  *rand.Rand
}

// think stands in for a model.
func (b *bot) think(ctx context.Context) error {
	b.mu.Lock()
	d := thinking.in(b.rng)
	b.mu.Unlock()
	if !sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

var refund = runs.Intent[struct{}]{Name: "refund", Distinct: true}

// fenced answers what is open, the way a handler is written with the library.
func (b *bot) fenced(ctx context.Context, j job) error {
	return runs.UntilCurrent(ctx, func(ctx context.Context, view runs.View) error {
		open := view.OpenIDs()
		if len(open) == 0 {
			return nil
		}
		if err := b.think(ctx); err != nil {
			return err
		}
		var unknown error
		for _, object := range objects(open) {
			_, err := refund.Once(ctx, runs.Key("object", object), func(ctx context.Context, call *runs.Call) (struct{}, error) {
				return struct{}{}, b.desk.do(ctx, entry{Did: refunded, Conversation: j.Conversation, Object: object, Key: call.IdempotencyKey})
			})
			if isUnknown(err) {
				unknown = errors.Join(unknown, err) // the customer is answered all the same
			} else if err != nil {
				return err
			}
		}
		err := runs.FromContext(ctx).Once(ctx, runs.Effect{
			Intent: "reply", Key: runs.ID(open[len(open)-1]), Answers: open,
		}, func(ctx context.Context, call *runs.Call) error {
			return b.desk.do(ctx, entry{Did: replied, Conversation: j.Conversation, Answers: open, Key: call.IdempotencyKey})
		})
		return errors.Join(unknown, err)
	})
}

func isUnknown(err error) bool {
	if outcome, ok := errors.AsType[*runs.OutcomeError](err); ok {
		return outcome.Outcome == runs.OutcomeAmbiguous
	}
	return errors.Is(err, runs.ErrAmbiguous)
}

// unfenced answers what is open, the way a careful handler is written without the library: it
// looks first, and returns errors for the queue to try again.
func (b *bot) unfenced(ctx context.Context, j job) error {
	seen, err := b.desk.conversation(ctx, j.Conversation)
	if err != nil {
		return err
	}
	var open []string
	for _, e := range seen {
		if e.Did == received {
			open = append(open, e.Message)
		}
		open = slices.DeleteFunc(open, func(m string) bool { return slices.Contains(e.Answers, m) })
	}
	if !slices.Contains(open, j.Message) {
		return nil
	}
	if err := b.think(ctx); err != nil {
		return err
	}
	call := func(e entry) error {
		ctx, cancel := context.WithTimeout(ctx, effectTimeout)
		defer cancel()
		return b.desk.do(ctx, e)
	}
	for _, object := range objects(open) {
		if err := call(entry{Did: refunded, Conversation: j.Conversation, Object: object}); err != nil {
			return err
		}
	}
	return call(entry{Did: replied, Conversation: j.Conversation, Answers: open})
}

func newBot(base string, seed uint64) *bot {
	return &bot{desk: newClient(base, 10*time.Second), rng: rand.New(rand.NewPCG(seed, 2))}
}

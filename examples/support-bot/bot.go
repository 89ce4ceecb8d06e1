package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/transcript"
)

// bot is what both arms' handlers work with.
type bot struct {
	desk    *provider.Client
	scripts map[string]*transcript.Script // by conversation
	emit    func(proc.Event)

	mu  sync.Mutex
	rng *rand.Rand
}

func newBot(desk *provider.Client, scripts []*transcript.Script, seed uint64, emit func(proc.Event)) *bot {
	b := &bot{desk: desk, scripts: map[string]*transcript.Script{}, emit: emit, rng: rand.New(rand.NewPCG(seed, 0))}
	for _, script := range scripts {
		b.scripts[script.ID] = script
	}
	return b
}

// plan is what the model wants done.
type plan struct {
	actions []transcript.Action
	reply   string
}

// think stands in for a language model: it is slow, costs money, and stops when ctx is done. Given the messages that arrived
// and those to be answered, it says what the human agent said, and wants done what the human agent did.
func (b *bot) think(ctx context.Context, job queue.Job, arrived, open []string) (plan, error) {
	b.emit(proc.Event{Kind: proc.Thought, Conversation: job.Conversation, Message: job.Message})
	b.mu.Lock()
	thinking := time.NewTimer(between(b.rng, thinkMin, thinkMax))
	b.mu.Unlock()
	defer thinking.Stop()
	select {
	case <-thinking.C:
	case <-ctx.Done():
		return plan{}, context.Cause(ctx)
	}
	var wanted plan
	if script := b.scripts[job.Conversation]; script != nil {
		wanted.actions, wanted.reply = script.Answer(arrived, open)
	}
	return wanted, nil
}

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)))
}

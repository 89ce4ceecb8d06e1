package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// workerPart is what a worker process is told.
type workerPart struct {
	Number  int       `json:"number"`
	Seed    uint64    `json:"seed"`
	Desk    string    `json:"desk"` // the provider
	Ledger  place     `json:"ledger"`
	Queue   queueSpec `json:"queue"`
	Without bool      `json:"without"`
	Off     string    `json:"off,omitempty"` // a rule to forget
}

// worker is a process that works jobs off.
type worker struct {
	*workerPart
	bot    *bot
	keeper *runs.Keeper // nil without the library
	emit   func(event)
}

func (p *workerPart) work(ctx context.Context, lines <-chan []byte, emit func(event)) error {
	redis.SetLogger(quietRedis{})
	w := &worker{workerPart: p, bot: newBot(p.Desk, p.Seed+uint64(p.Number)), emit: emit}
	if !p.Without {
		var err error
		if w.keeper, err = p.keep(ctx); err != nil {
			return err
		}
		defer w.keeper.Close()
	}
	switch p.Queue.Name {
	case River:
		return w.riverWork(ctx)
	case Asynq:
		return w.asynqWork(ctx)
	default:
		return w.plainWork(ctx, lines)
	}
}

// keep opens the ledger.
func (p *workerPart) keep(ctx context.Context) (*runs.Keeper, error) {
	var store ledger.Store
	err := persist(ctx, func(ctx context.Context) (err error) {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		store, err = p.Ledger.open(asking)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p.keeper(store)
}

func (p *workerPart) keeper(store ledger.Store) (*runs.Keeper, error) {
	sm := *seam.Real()
	if p.Off != "" {
		rule, err := sabotage.Parse(p.Off)
		if err != nil {
			return nil, err
		}
		sm.Off = sabotage.Of(rule)
	}
	return runs.NewSeamed(store, keeperConfig(fmt.Sprintf("worker %d (process %d)", p.Number, os.Getpid())), &sm)
}

// deliver tells the coordinator of a delivery while handle is at work.
func (w *worker) deliver(id string, handle func() error) error {
	w.emit(event{Kind: began, Job: id})
	defer w.emit(event{Kind: ended, Job: id}) // also if it panics
	return handle()
}

// handle is the bot's handler, with or without the library.
func (w *worker) handle(ctx context.Context, j job) error {
	if w.keeper == nil {
		return w.bot.unfenced(ctx, j)
	}
	return w.bot.fenced(ctx, j)
}

func decodeLine(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("line from the coordinator: %w", err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// soon is when a claim or a lease ends that a script waits for.
const soon = 2 * time.Second

// fill is a program beside fencedrun in the scripts: a worker, with the real keeper, that lives
// through one story on the ledger of FENCEDRUN_LEDGER and ends, or is killed.
//
//	fill STORY [CONVERSATION]
func fill() {
	conversation := "thread-7"
	if len(os.Args) > 2 {
		conversation = os.Args[2]
	}
	story := stories[os.Args[1]]
	if story == nil {
		fmt.Fprintln(os.Stderr, "no story is called", os.Args[1])
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	store, err := openTo(ctx, os.Getenv("FENCEDRUN_LEDGER"))
	if err != nil {
		fail(err)
	}
	// Claims and leases end soon, and leave a loaded machine time enough to make the call.
	config := &runs.Config{
		EffectTimeout: time.Millisecond, ClaimDeadline: soon, Quiet: time.Millisecond, Lease: soon, Worker: "host-a:4711",
	}
	switch os.Args[1] {
	case "old", "due":
		config.Retention = soon + 100*time.Millisecond
	case "working":
		config.Lease = time.Hour
	case "sweep":
		config.Intents = []runs.Declared{probed}
	}
	keeper, err := runs.New(store, config)
	if err != nil {
		fail(err)
	}
	if err := story(ctx, &worker{keeper, conversation}); err != nil {
		fail(err)
	}
	if err := keeper.Close(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "fill:", err)
	os.Exit(1)
}

func openTo(ctx context.Context, at string) (ledger.Store, error) {
	if path, ok := strings.CutPrefix(at, "sqlite:"); ok {
		return sqliteledger.Open(ctx, path, nil)
	}
	if strings.HasPrefix(at, "redis") {
		return redisledger.Connect(ctx, at, nil)
	}
	return pgledger.Connect(ctx, at, nil)
}

type worker struct {
	*runs.Keeper

	conversation string
}

type receipt struct {
	ID string `json:"id"`
}

var (
	refund = runs.Intent[receipt]{Name: "refund", Distinct: true}
	reply  = runs.Intent[receipt]{Name: "reply", Answering: true}
)

func (w *worker) job(n int, messages ...string) runs.Job {
	id := fmt.Sprintf("job-%d", n)
	if w.conversation != "thread-7" {
		id += "@" + w.conversation
	}
	return runs.Job{
		Queue: "support", ID: id, Conversation: w.conversation, Order: runs.Order{Source: "messages", Number: int64(n)},
		Inbound: messages, NoInbound: len(messages) == 0, Reads: runs.AfterBegin,
	}
}

// deliver delivers a job; what became of it is printed.
func (w *worker) deliver(ctx context.Context, job runs.Job, handler func(ctx context.Context) error) {
	v := w.Deliver(ctx, job, runs.Delivery{}, handler)
	fmt.Println(v.Action, v.Reason)
}

func answer(ctx context.Context, message string) error {
	_, err := reply.Once(ctx, runs.ID(message), func(_ context.Context, call *runs.Call) (receipt, error) {
		call.SetReference("msg_" + message)
		return receipt{ID: "msg_" + message}, nil
	}, runs.With{Summary: "It is on its way, says the courier.\x1b[31m"})
	return err
}

// pay refunds a line of an order; what happens at the provider is provider's to say.
func pay(ctx context.Context, line int, deadline time.Duration, provider func() error) error {
	_, err := refund.Once(ctx, runs.Key("order", "A-17", "line", line), func(context.Context, *runs.Call) (receipt, error) {
		if err := provider(); err != nil {
			return receipt{}, err
		}
		fmt.Println("refunded line", line)
		return receipt{ID: "re_77"}, nil
	}, runs.With{Summary: "EUR 12.00 back for the broken cup", Params: map[string]any{"cents": 1200}, ClaimDeadline: deadline, Policy: runs.NoChange})
	return err
}

// killMyself is what the kernel does to a worker that takes too much memory.
func killMyself() error {
	me, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := me.Kill(); err != nil {
		return err
	}
	select {} // it may take the kernel a moment
}

func fine() error { return nil }

var errReset = errors.New("read tcp 10.0.0.7:443: connection reset by peer")

// job1 is what the worker's first job does: it answers and pays.
func (w *worker) job1(ctx context.Context, provider func() error) {
	w.deliver(ctx, w.job(1, "m1"), func(ctx context.Context) error {
		if err := answer(ctx, "m1"); err != nil {
			return err
		}
		return pay(ctx, 2, soon, provider)
	})
}

var stories = map[string]func(ctx context.Context, w *worker) error{
	// Nothing but an empty ledger.
	"nothing": func(ctx context.Context, w *worker) error { return nil },

	// A worker is killed inside an effect.
	"killed": func(ctx context.Context, w *worker) error {
		w.job1(ctx, killMyself)
		return errors.New("it is still alive")
	},
	// The same job is delivered again.
	"again": func(ctx context.Context, w *worker) error {
		w.job1(ctx, fine)
		return nil
	},
	// Everything is well.
	"done": func(ctx context.Context, w *worker) error {
		w.job1(ctx, fine)
		return nil
	},
	// The answer of the provider is lost.
	"lost": func(ctx context.Context, w *worker) error {
		w.deliver(ctx, w.job(1), func(ctx context.Context) error {
			return pay(ctx, 2, soon, func() error { return errReset })
		})
		return nil
	},
	// It is lost too, and may still come.
	"early": func(ctx context.Context, w *worker) error {
		w.deliver(ctx, w.job(1), func(ctx context.Context) error {
			return pay(ctx, 2, time.Hour, func() error { return errReset })
		})
		return nil
	},
	// The outcome is to come from elsewhere.
	"pending": func(ctx context.Context, w *worker) error {
		w.deliver(ctx, w.job(1), func(ctx context.Context) error {
			_, err := refund.Claim(ctx, runs.Key("order", "A-17", "line", 2), time.Hour)
			return err
		})
		return nil
	},
	// A job ends and leaves its message open.
	"silent": func(ctx context.Context, w *worker) error {
		w.deliver(ctx, w.job(1, "m1", "m2"), func(context.Context) error { return nil })
		return nil
	},
	// A job is given up, and its message is open.
	"stopped": func(ctx context.Context, w *worker) error {
		w.deliver(ctx, w.job(1, "m1"), func(context.Context) error { return errors.New("the model is down") })
		return nil
	},
	// A reply is lost, and holds its message.
	"held": func(ctx context.Context, w *worker) error {
		w.deliver(ctx, w.job(1, "m1"), func(ctx context.Context) error {
			_, err := reply.Once(ctx, runs.ID("m1"), func(context.Context, *runs.Call) (receipt, error) { return receipt{}, errReset },
				runs.With{Timeout: time.Millisecond, ClaimDeadline: soon})
			return err
		})
		return nil
	},
	// A worker is at work, as far as the ledger can tell.
	"working": func(ctx context.Context, w *worker) error {
		w.deliver(ctx, w.job(1, "m1"), func(context.Context) error { return killMyself() })
		return errors.New("it is still alive")
	},
	// A finished conversation whose retention is over soon.
	"old": func(ctx context.Context, w *worker) error {
		w.job1(ctx, fine)
		return nil
	},

	// What docs/guides/on-call.md tells.
	"crash":       func(ctx context.Context, w *worker) error { return w.night(ctx, killMyself) },
	"crash-again": func(ctx context.Context, w *worker) error { return w.night(ctx, fine) },
	"sweep":       sweep,

	// What follows waits for the ledger's clock, and does nothing.

	// lapse waits until no claim is in time that ends within a minute, and no lease.
	"lapse": func(ctx context.Context, w *worker) error {
		return poll(ctx, func() (bool, error) {
			h, err := w.History(ctx, w.conversation)
			if err != nil || len(h.Live) > 0 {
				return false, err
			}
			for _, e := range h.Effects {
				c := e.Deciding()
				if open := c.State == "pending" || c.State == "ambiguous"; open && h.Now <= c.Deadline && c.Deadline < h.Now+60_000 {
					return false, nil
				}
			}
			return true, nil
		})
	},
	// due waits until retention is over for all of a conversation.
	"due": func(ctx context.Context, w *worker) error {
		return poll(ctx, func() (bool, error) {
			n, err := w.CountPurge(ctx, 0, 0)
			return n.Runs == 1 && n.Effects == 2 && n.Others == 2, err
		})
	},
}

func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

package main

import (
	"context"
	"fmt"

	"github.com/fencedrun/fencedrun/runs"
)

// probed is the refund of a service whose bank can be asked, and says that it has made it.
var probed = runs.Intent[receipt]{
	Name: refund.Name, Distinct: true, ReadYourWrites: true,
	Probe: func(context.Context, runs.Question) (runs.Found[receipt], error) {
		return runs.Applied(receipt{ID: "re_77"}, "re_77"), nil
	},
}

// night is a job on River that answers a message and refunds a line of an order.
func (w *worker) night(ctx context.Context, bank func() error) error {
	job := w.job(1, "m17")
	job.Queue, job.ID = "river:default", "90312"
	if w.conversation != "thread-7" {
		job.ID, job.Inbound = "90313", []string{"m21"}
	}
	w.deliver(ctx, job, func(ctx context.Context) error {
		message := job.Inbound[0]
		_, err := reply.Once(ctx, runs.ID(message), func(_ context.Context, call *runs.Call) (receipt, error) {
			call.SetReference("msg_" + message)
			return receipt{ID: "msg_" + message}, nil
		}, runs.With{Summary: "You get the money back."})
		if err != nil {
			return err
		}
		return pay(ctx, 2, soon, bank)
	})
	return nil
}

// sweep prints what examples/probes/sweep does.
func sweep(ctx context.Context, w *worker) error {
	swept, err := w.Sweep(ctx)
	fmt.Printf("asked %d: %d had happened, %d had not, %d stay unknown; too early for %d; %d wait for a person\n",
		swept.Asked, swept.Applied, swept.NotApplied, swept.Unknown, swept.NotYet, swept.NoProbe)
	return err
}

package guides

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencedrun/fencedrun/runs"
)

// export works through many pages, and a later delivery goes on where an earlier one stopped.
func export(ctx context.Context, pages int, upload func(ctx context.Context, page int, key string) error) error {
	run := runs.FromContext(ctx)
	// What is read from here on is current: also what an earlier delivery has done, which its
	// progress tells.
	if _, err := run.CatchUp(ctx); err != nil {
		return err
	}
	next := 1
	if _, err := run.Progress(&next); err != nil {
		return err
	}
	for ; next <= pages; next++ {
		e := runs.Effect{Intent: "upload", Key: runs.Key("page", next)}
		err := run.Once(ctx, e, func(ctx context.Context, call *runs.Call) error { return upload(ctx, next, call.IdempotencyKey) })
		if err != nil {
			return err
		}
		if err := run.SaveProgress(ctx, next+1); err != nil {
			return err
		}
	}
	return nil
}

// stoppable is an effect that takes long and can stop cleanly when its run lost the right to write.
func stoppable(ctx context.Context, call *runs.Call, step func(ctx context.Context) (done bool, err error), undo func() error) error {
	for {
		select {
		case <-call.Lost():
			if err := undo(); err != nil {
				return err // nobody knows what is left of it
			}
			return runs.NotApplied(errors.New("stopped: a newer job took over"))
		default:
		}
		if done, err := step(ctx); done || err != nil {
			return err
		}
	}
}

func Example_longJob() {
	keeper := newKeeper()
	defer keeper.Close()
	job := runs.Job{Queue: "exports", ID: "export-9", Conversation: "export-9", NoInbound: true, Reads: runs.AfterBegin}
	for range 2 {
		err := keeper.Do(context.Background(), job, func(ctx context.Context) error {
			return export(ctx, 3, func(_ context.Context, page int, _ string) error {
				fmt.Println("page", page)
				if page == 2 && runs.FromContext(ctx).Delivery() == 1 {
					return runs.NotApplied(errors.New("the disk is full"))
				}
				return nil
			})
		})
		fmt.Println(err)
	}
	err := stoppable(context.Background(), &runs.Call{}, func(context.Context) (bool, error) { return true, nil }, nil)
	fmt.Println(err)
	// Output:
	// page 1
	// page 2
	// fencedrun: upload: call 1: failed: the disk is full
	// page 2
	// page 3
	// <nil>
	// <nil>
}

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/adapters/internal/adaptertest"
	"github.com/fencedrun/fencedrun/fence"
)

// errorsOfUsers: what a handler returns by itself, and what it must not be able to
// overrule.
func errorsOfUsers() []scenario {
	return []scenario{
		{"error of the user's is retried as it came", Options{}, usersError},
		{"the user's never stops the job and discards the run", Options{}, usersNever},
		{"the user's later spends no attempt", Options{}, usersLater},
		{"last failing attempt discards the run", Options{}, lastAttempt},
		{"the user's chain does not overrule a discard", Options{}, chainAgainstDiscard},
		{"the user's chain does not overrule a come back", Options{}, chainAgainstComeBack},
	}
}

func usersError(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			return errors.New("the model is down")
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	if r := b.awaitSpent("a", 1); r.Error != "the model is down" {
		b.Errorf("the queue's error is %q, want the user's own", r.Error)
	}
	b.await("a", adaptertest.Done)
}

func usersNever(b *bench) {
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			return b.Never(errors.New("no such customer"))
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("a", "m1"))
	if r := b.await("a", adaptertest.Stopped); !strings.Contains(r.Error, "no such customer") {
		b.Errorf("the queue's error is %q, want the user's own", r.Error)
	}
	if r := b.record("a"); r.End != fence.EndDiscarded {
		b.Errorf("the run is %s (%s), want it discarded", r.State, r.End)
	}
	b.Queue.Rerun("a")
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 2)
	b.wantSent("reply m1", 1)
}

func usersLater(b *bench) {
	if b.Later == nil {
		b.Skip("the queue has no such word")
	}
	b.start(func(ctx context.Context, _ string, entry int) error {
		if entry == 1 {
			return b.Later()
		}
		return b.answerOpen(ctx)
	})
	b.Queue.Enqueue(job("a", "m1"))
	b.untilEntered("a", 1)
	b.awaitSpent("a", 0)
	if r := b.record("a"); r.State != fence.RunActive {
		b.Errorf("the run is %s (%s), want it active", r.State, r.End)
	}
	b.await("a", adaptertest.Done)
	b.wantEntered("a", 2)
}

func lastAttempt(b *bench) {
	b.start(func(context.Context, string, int) error { return errors.New("the model is down") })
	spec := job("a", "m1")
	spec.Tries = 2
	b.Queue.Enqueue(spec)
	b.await("a", adaptertest.Stopped)
	b.wantEntered("a", 2)
	if r := b.record("a"); r.End != fence.EndDiscarded {
		b.Errorf("the run is %s (%s), want it discarded", r.State, r.End)
	}
}

// poison returns every error that could overrule a verdict of ours.
func (b *bench) poison() []error {
	return append([]error{context.Canceled, context.DeadlineExceeded}, b.Poison...)
}

func chainAgainstDiscard(b *bench) {
	poison := b.poison()
	b.start(func(ctx context.Context, name string, _ int) error {
		if err := b.refund(ctx, 10); err != nil {
			return err
		}
		var i int
		if _, err := fmt.Sscanf(name, "job%d", &i); err != nil {
			return err
		}
		return fmt.Errorf("refund: %w", errors.Join(poison[i], b.refund(ctx, 20)))
	})
	for i, p := range poison {
		spec := adaptertest.Spec{Name: fmt.Sprintf("job%d", i), Conversation: conversation, Inbound: []string{fmt.Sprintf("m%d", i)}}
		spec.Payload = spec.Name
		b.Queue.Enqueue(spec)
		r := b.await(spec.Name, adaptertest.Stopped)
		if !strings.Contains(r.Error, "params_changed") || !strings.Contains(r.Error, p.Error()) {
			b.Errorf("%v: the queue's error is %q, want our reason and the user's text", p, r.Error)
		}
		b.wantEntered(spec.Name, 1)
	}
	b.wantSent("refund", 1)
}

func chainAgainstComeBack(b *bench) {
	all := errors.Join(b.poison()...)
	hold := held(b, func(err error) error { return fmt.Errorf("charge: %w", errors.Join(all, err)) })
	b.awaitSpent("second", 0)
	time.Sleep(10 * time.Second)
	b.awaitSpent("second", 0)
	hold.open()
	b.await("second", adaptertest.Done)
	b.wantSent("charge", 1)
	b.wantSent("reply m2", 1)
}

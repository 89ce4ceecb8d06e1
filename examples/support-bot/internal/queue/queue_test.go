package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// patience is how long a test waits for a queue before it gives up; nothing depends on it when all is well. It is shorter
// than jobTimeout, after which the queues deliver again whatever this package does.
const patience = jobTimeout * 3 / 4

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
		panic("unreachable")
	}
}

// work runs a worker until the test ends. Each delivery reports that it begins, and returns what it is told to.
func work(t *testing.T, q Queue) (began chan string, end chan error) {
	t.Helper()
	began, end = make(chan string, 10), make(chan error)
	ready, stopped := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	watch := Watch{
		Began: func(id string, job Job) { began <- id + " " + job.Message },
		Ended: func(string, Job, error) {},
	}
	handler := func(context.Context, Job) error { return <-end }
	go func() { stopped <- Work(ctx, q.Spec(), Additions{}, watch, handler, func() { close(ready) }) }()
	await(t, "the worker", ready)
	t.Cleanup(func() {
		cancel()
		if err := await(t, "the worker's end", stopped); err != nil {
			t.Error(err)
		}
	})
	return began, end
}

func awaitLeft(t *testing.T, q Queue, want Left) {
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got, err := q.Left(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("left: %+v, want %+v", got, want)
		}
	}
}

func eachQueue(t *testing.T, test func(t *testing.T, q Queue)) {
	for _, name := range []string{Asynq, River} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, err := Open(t.Context(), name, t.TempDir(), "", Additions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, q)
		})
	}
}

func TestAJobIsDeliveredAgainWhileItsFirstDeliveryLives(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, q Queue) {
		began, end := work(t, q)
		id, err := q.Enqueue(t.Context(), Job{Conversation: "c", Message: "m1"})
		if err != nil {
			t.Fatal(err)
		}
		if got := await(t, "the first delivery", began); got != id+" m1" {
			t.Errorf("delivered %q", got)
		}
		if running, err := q.Running(t.Context()); err != nil || len(running) != 1 || running[0] != id {
			t.Errorf("running: %v, %v", running, err)
		}
		if again, err := q.Again(t.Context(), id); err != nil || !again {
			t.Fatalf("again: %t, %v", again, err)
		}
		if got := await(t, "the second delivery", began); got != id+" m1" {
			t.Errorf("delivered %q", got)
		}
		end <- nil
		end <- nil
		awaitLeft(t, q, Left{})
		if again, err := q.Again(t.Context(), id); err != nil || again {
			t.Errorf("again after the end: %t, %v", again, err)
		}
	})
}

func TestAFailedJobIsRetriedSoon(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, q Queue) {
		began, end := work(t, q)
		if _, err := q.Enqueue(t.Context(), Job{Conversation: "c", Message: "m1"}); err != nil {
			t.Fatal(err)
		}
		await(t, "the first delivery", began)
		end <- errors.New("not now")
		await(t, "the second delivery", began)
		end <- nil
		awaitLeft(t, q, Left{})
	})
}

func TestAnExpiredJobIsRedeliveredWhenAWorkerStarts(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, q Queue) {
		began, end := work(t, q)
		id, err := q.Enqueue(t.Context(), Job{Conversation: "c", Message: "m1"})
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the first delivery", began)
		if err := q.Expire(t.Context(), []string{id, "4711"}); err != nil {
			t.Fatal(err)
		}
		again, endAgain := work(t, q)
		select { // either worker may get it
		case <-began:
			end <- nil
		case <-again:
			endAgain <- nil
		case <-time.After(patience):
			t.Fatal("not redelivered")
		}
		end <- nil
		awaitLeft(t, q, Left{})
	})
}

func TestARedisThatHoldsOthersKeysIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	if err := mini.Set("asynq:{default}:pending", "somebody's"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Asynq, t.TempDir(), "redis://"+mini.Addr(), Additions{})
	if err == nil || !strings.Contains(err.Error(), "not this example's") {
		t.Fatalf("error %v", err)
	}
	if keys := mini.Keys(); len(keys) != 1 {
		t.Errorf("keys %v", keys)
	}
}

func TestARedisIsLeftAsItWasFound(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	for range 2 { // the second run finds nothing of the first
		q, err := Open(t.Context(), Asynq, t.TempDir(), "redis://"+mini.Addr(), Additions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Enqueue(t.Context(), Job{Conversation: "c", Message: "m1"}); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if keys := mini.Keys(); len(keys) != 0 {
			t.Errorf("keys %v", keys)
		}
	}
}

func TestWhatACrashedRunLeftInRedisIsTakenOver(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	url := "redis://" + mini.Addr()
	crashed, err := Open(t.Context(), Asynq, t.TempDir(), url, Additions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crashed.Enqueue(t.Context(), Job{Conversation: "c", Message: "m1"}); err != nil {
		t.Fatal(err)
	}
	q, err := Open(t.Context(), Asynq, t.TempDir(), url, Additions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitLeft(t, q, Left{})
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBackOffGrowsAndEnds(t *testing.T) {
	last := time.Duration(0)
	for n := range 100 {
		delay := retryAfter(n)
		if delay < last || delay <= 0 || delay > maxBackOff {
			t.Fatalf("retry %d after %s", n, delay)
		}
		last = delay
	}
	if last != maxBackOff {
		t.Errorf("ends at %s", last)
	}
}

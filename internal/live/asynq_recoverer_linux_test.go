package live

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
)

// asynqOnRedis returns Asynq with its ledger on one Redis.
func asynqOnRedis(t *testing.T) queue {
	t.Helper()
	at := private.ServiceRedis.Need(t)
	return asynqQueue(t, part{
		Worker: "asynq", Ledger: "redis", URL: at, Space: prefixOn(t, at), Queue: at, Provider: filepath.Join(t.TempDir(), "provider"),
	})
}

// runAgain is what a person does with a task that was stopped for what was unknown then.
func runAgain(t *testing.T, p part) {
	t.Helper()
	options, err := asynqOptions(p.Queue)
	if err != nil {
		t.Error(err)
		return
	}
	client := redis.NewClient(options)
	defer client.Close()
	switch err := asynq.NewInspectorFromRedisClient(client).RunTask(p.QueueName, p.Job); {
	case errors.Is(err, asynq.ErrTaskNotFound): // done
	case err != nil:
		t.Error(err)
	default:
		spawn(t, p)
	}
}

// The machine of a worker stands still, for longer than Asynq's lease as far as Asynq can see. Its
// recoverer gives the task to another worker. Then the first one wakes up inside its handler, and
// its own lease has a while to go.
func TestAnAsynqWorkerThatStoodStillDoublesNothing(t *testing.T) {
	q := asynqOnRedis(t)
	k := q.watcher(t)
	const points = 20 // a task has as many yields, see TestAWorkerKilledAtAnyPointUnderItsQueueDoublesNothing
	var group sync.WaitGroup
	var mu sync.Mutex
	stood := 0
	slots := make(chan struct{}, 4)
	for n := int64(1); n <= points; n++ {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			own := asynqQueue(t, q.part) // a worker must not take another one's task
			p := own.part
			p.Conversation, p.StopAt = fmt.Sprint("c", n), n
			p.Job = own.insert(p.Conversation)
			first := stopped(t, p)
			if first == nil {
				return
			}
			own.again(p.Job)
			p.StopAt = 0
			spawn(t, p)
			wake(t, first)
			runAgain(t, p)
			mu.Lock()
			defer mu.Unlock()
			stood++
		})
	}
	group.Wait()
	for n := 1; n <= points; n++ {
		p := q.part
		p.Conversation = fmt.Sprint("c", n)
		atMostOnce(t, k, p)
	}
	if stood < points-2 {
		t.Errorf("%d of %d stood still", stood, points)
	}
}

// The same, and kills, without any help: the lease of the task runs out, the recoverer of a live
// server allows for half a minute of skew, looks once a minute, and brings the task back. All wait
// at once.
func TestAsynqsRecovererBringsTheTaskBack(t *testing.T) {
	if os.Getenv("FENCEDRUN_LONG") == "" {
		t.Skip("waits for Asynq's recoverer, one to two minutes: set FENCEDRUN_LONG=1")
	}
	type stroke struct {
		part

		name   string
		first  *exec.Cmd // of those that stand still
		second *running
		since  time.Time
		waited time.Duration
		err    error
	}
	var strokes []*stroke
	for n := int64(3); n <= 15; n += 4 {
		killed, stood := &stroke{part: asynqOnRedis(t).part, name: fmt.Sprint("killed at yield ", n)}, &stroke{part: asynqOnRedis(t).part, name: fmt.Sprint("stood still at yield ", n)}
		killed.KillAt, stood.StopAt = n, n
		strokes = append(strokes, killed, stood)
	}
	var group sync.WaitGroup
	for _, s := range strokes {
		q := asynqQueue(t, s.part)
		s.part = q.part
		s.Conversation, s.Job = "c", q.insert("c")
		if s.StopAt > 0 {
			if s.first = stopped(t, s.part); s.first == nil {
				t.Fatalf("%s: it did not stand still", s.name)
			}
		} else if _, killed := spawn(t, s.part); !killed {
			t.Fatalf("%s: it was not killed", s.name)
		}
		s.KillAt, s.StopAt, s.since = 0, 0, time.Now()
		s.second = startWorker(t, s.part) // until the task is final
		group.Go(func() {
			s.err = s.second.cmd.Wait()
			s.waited = time.Since(s.since)
		})
	}
	group.Wait()
	for _, s := range strokes {
		t.Run(s.name, func(t *testing.T) {
			out := strings.TrimSpace(s.second.out.String())
			if s.err != nil {
				t.Fatalf("%v: %s", s.err, s.second.errs.String())
			}
			k := s.watcher(t)
			if s.first != nil {
				wake(t, s.first)
				runAgain(t, s.part)
				atMostOnce(t, k, s.part)
			} else {
				judge(t, k, s.part, out)
			}
			// 30 s of lease and 30 s for skew, less what passed before; then it is looked at.
			if s.waited < 55*time.Second || s.waited > 3*time.Minute {
				t.Errorf("the task was final after %v: it was not the recoverer that brought it back", s.waited)
			}
			verdict, _, _ := strings.Cut(out, " ")
			t.Logf("%s after %v", verdict, s.waited.Round(time.Second))
		})
	}
}

package storm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// plainQueue is no queue: the coordinator hands jobs to workers, and hands them out again until
// their verdict is final.
type plainQueue struct {
	stage *stage

	mu     sync.Mutex
	jobs   map[string]*plainJob
	due    []*plainJob // waiting, in no order
	parked int
	over   chan struct{}
	gone   chan struct{}
}

type plainJob struct {
	job
	waiting, final bool
	at             time.Time // when it is due, while it waits
}

// handed is a line that a worker of a plain queue gets.
type handed struct {
	ID string `json:"id"`
	job
}

func newPlainQueue(s *stage) *plainQueue {
	q := &plainQueue{stage: s, jobs: map[string]*plainJob{}, over: make(chan struct{}), gone: make(chan struct{})}
	go q.handOut()
	return q
}

func (q *plainQueue) enqueue(_ context.Context, j job) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &plainJob{job: j}
	q.jobs[j.Message] = p
	q.wait(p, 0)
	return j.Message, nil
}

// wait has a job handed out after d. q.mu is held.
func (q *plainQueue) wait(p *plainJob, d time.Duration) {
	if p.final || p.waiting {
		return
	}
	p.waiting, p.at = true, time.Now().Add(d)
	q.due = append(q.due, p)
}

func (q *plainQueue) handOut() {
	defer close(q.gone)
	for {
		select {
		case <-q.over:
			return
		case <-time.After(5 * time.Millisecond):
		}
		q.mu.Lock()
		now := time.Now()
		rest := q.due[:0]
		for _, p := range q.due {
			switch {
			case p.final:
				p.waiting = false
			case p.at.After(now) || !q.stage.hand(handed{p.Message, p.job}):
				rest = append(rest, p)
			default:
				p.waiting = false
			}
		}
		q.due = rest
		q.mu.Unlock()
	}
}

// returned takes the end of a delivery.
func (q *plainQueue) returned(e event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.jobs[e.Job]
	if p == nil || p.final {
		return
	}
	switch action := runs.Action(e.Action); action {
	case runs.ActionDone, runs.ActionDrop, runs.ActionPark, runs.ActionDiscard:
		p.final = true
		if action == runs.ActionPark || action == runs.ActionDiscard {
			q.parked++
		}
		return
	case runs.ActionComeBack:
		q.wait(p, e.After)
		return
	}
	// A stale delivery leaves the job to the newer one, if that is still there.
	if !q.stage.watch.isLive(e.Job) {
		q.wait(p, backOff)
	}
}

func (q *plainQueue) left(context.Context) (left, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := left{parked: q.parked}
	for id, p := range q.jobs {
		switch {
		case p.final:
		case p.waiting:
			l.waiting = append(l.waiting, id)
		default:
			l.running = append(l.running, id)
		}
	}
	return l, nil
}

func (q *plainQueue) again(_ context.Context, id string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.jobs[id]
	if p == nil || p.final || p.waiting {
		return false, nil
	}
	q.wait(p, 0)
	return true, nil
}

func (q *plainQueue) lose(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, err := q.again(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (q *plainQueue) reconnect() {}

func (q *plainQueue) close(context.Context) error {
	close(q.over)
	<-q.gone
	return nil
}

// plainWork delivers what the coordinator hands over.
func (w *worker) plainWork(ctx context.Context, lines <-chan []byte) error {
	w.emit(event{Kind: ready})
	var group sync.WaitGroup
	defer group.Wait()
	for {
		var line []byte
		select {
		case line = <-lines:
		case <-ctx.Done():
			return nil
		}
		var h handed
		if err := decodeLine(line, &h); err != nil {
			return fmt.Errorf("storm: worker: %w", err)
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, jobTimeout)
			defer cancel()
			e := event{Kind: ended, Job: h.ID}
			if w.keeper == nil {
				e.Action = string(runs.ActionDone)
				if w.bot.unfenced(ctx, h.job) != nil {
					e.Action = string(runs.ActionReturn)
				}
			} else {
				v := w.keeper.Deliver(ctx, runs.Job{
					Queue: "live:plain", ID: h.ID, Conversation: h.Conversation, Order: runs.Order{Source: "live", Number: h.Number},
					Inbound: []string{h.Message}, Digest: h.Message, Reads: runs.AfterBegin,
				}, runs.Delivery{}, func(ctx context.Context) error { return w.bot.fenced(ctx, h.job) })
				e.Action, e.After = string(v.Action), v.After
			}
			w.emit(e)
		})
	}
}

package storm

import (
	"context"
	"fmt"
)

// queue is where the coordinator puts jobs, looks at them, and has them delivered again.
type queue interface {
	// enqueue returns the id that the job has in the queue.
	enqueue(ctx context.Context, j job) (string, error)
	// left lists the jobs that are not done.
	left(ctx context.Context) (left, error)
	// again delivers a job again that the queue takes to be at work, whether or not it is. It
	// reports false if the job was not at work for the queue.
	again(ctx context.Context, id string) (bool, error)
	// lose tells the queue that the deliveries of these jobs are lost, the way that it finds out
	// by itself, but at once.
	lose(ctx context.Context, ids []string) error
	// reconnect drops connections of the coordinator's that a server has ended.
	reconnect()
	// close removes the queue.
	close(ctx context.Context) error
}

// left is what a queue has not done.
type left struct {
	waiting, running []string
	parked           int // stopped, for people to see
}

// queueSpec is what a worker needs to join a queue.
type queueSpec struct {
	Name string `json:"name"`
	URL  string `json:"url"` // of Postgres or Redis, or a file's name
	// Tag names connections; Space is the schema of River, "" in a file, or the queue of Asynq.
	Tag   string `json:"tag"`
	Space string `json:"space"`
}

// openQueue makes a queue of this storm's own.
func (s *stage) openQueue(ctx context.Context) (queue, error) {
	s.spec = queueSpec{Name: s.config.Queue, URL: s.config.QueueURL, Tag: s.tag, Space: s.tag + "_queue"}
	switch s.config.Queue {
	case River:
		if s.spec.URL == "" {
			return s.openRiverFile(ctx)
		}
		return s.openRiverPostgres(ctx)
	case Asynq:
		return s.openAsynq(ctx)
	case Plain:
		return newPlainQueue(s), nil
	}
	return nil, fmt.Errorf("storm: no queue %q", s.config.Queue)
}

package live

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/chaos/proxy"
	"github.com/fencedrun/fencedrun/runs"
)

// The queue's own connection breaks at some frame of a job's life: while it is fetched, while it is
// worked, while the queue is told that it is done. The ledger's connection stays. The queue then
// does not know what became of the job, and delivers it again.

// cutQueue is a queue whose workers are behind a proxy, seen from outside of it.
type cutQueue struct {
	proxy  *proxy.Proxy
	insert func(t *testing.T, conversation string) (id string)
	stage  func(t *testing.T, id string) stage
	again  func(t *testing.T, id string) // what the queue does when it takes a delivery for lost
}

// stage is where a job is, for its queue.
type stage int

const (
	waiting stage = iota
	working
	done
	parked
)

// hands knows which conversations handlers are at work on.
type hands struct {
	mu sync.Mutex
	at map[string]int
}

// hold wraps a handler's call.
func (h *hands) hold(conversation string, handle func() error) error {
	h.add(conversation, 1)
	defer h.add(conversation, -1)
	return handle()
}

func (h *hands) add(conversation string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = map[string]int{}
	}
	h.at[conversation] += n
}

func (h *hands) busy(conversation string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[conversation] > 0
}

// queueCuts are what the lanes of a sweep share.
type queueCuts struct {
	prov   provider
	hands  hands
	keeper *runs.Keeper // on the ledger's own, good connection
	bare   bool         // the queue is used without the library

	mu                 sync.Mutex
	cuts, redeliveries int
	missed, wrong      []string
}

// lanes is how many workers are swept at a time: a sweep mostly waits for the queue's patience.
const lanes = 8

// extra is how many frames beyond the fewest are tried: what a job takes depends on when the queue
// looks for jobs, and the rest is its looking.
const extra = 2

// part of a job's life at its queue.
type span int

const (
	fetching span = iota // from its insertion until the worker has it
	ending               // from then until it is done
)

// at is a frame of a job.
type at struct {
	in span
	to proxy.Direction
}

var everywhere = []at{{fetching, proxy.ToServer}, {fetching, proxy.ToClient}, {ending, proxy.ToServer}, {ending, proxy.ToClient}}

// matching returns a Match for the frames of a span. The worker has the job when a frame names its
// conversation.
func (a at) matching(conversation string) func(proxy.Frame) bool {
	fetched := false
	return func(f proxy.Frame) bool { // under the proxy's lock
		now := a.in == fetching && !fetched || a.in == ending && fetched
		fetched = fetched || f.Direction == proxy.ToClient && bytes.Contains(f.Data, []byte(conversation))
		return now && f.Direction == a.to
	}
}

// sweepQueue cuts a job at each of its frames, both ways, before and after.
func sweepQueue(t *testing.T, s *queueCuts, open func(t *testing.T, lane int) *cutQueue) {
	t.Helper()
	queues := make([]*cutQueue, lanes)
	for lane := range queues {
		queues[lane] = open(t, lane)
	}
	fewest, most := s.frames(t, queues[0])
	type cut struct {
		at
		frame int
		after bool
	}
	faults := make(chan cut)
	var group sync.WaitGroup
	for _, q := range queues {
		group.Go(func() {
			for c := range faults {
				s.cut(t, q, c.at, c.frame, c.after, c.frame <= fewest[c.at])
			}
		})
	}
	want := 0
	for _, a := range everywhere {
		if s.bare && a.in == fetching {
			continue // one way of doing it twice is enough
		}
		for frame := 1; frame <= min(most[a], fewest[a]+extra); frame++ {
			for _, after := range []bool{false, true} {
				if frame <= fewest[a] {
					want++
				}
				faults <- cut{a, frame, after}
			}
		}
	}
	close(faults)
	group.Wait()
	t.Logf("%d cuts, %d redeliveries; fetching took %d to %d frames to the server and %d to %d back, the rest %d to %d and %d to %d; missed %q; %d wrong",
		s.cuts, s.redeliveries, fewest[everywhere[0]], most[everywhere[0]], fewest[everywhere[1]], most[everywhere[1]],
		fewest[everywhere[2]], most[everywhere[2]], fewest[everywhere[3]], most[everywhere[3]], s.missed, len(s.wrong))
	if s.cuts < want*9/10 || s.redeliveries == 0 || slices.ContainsFunc(everywhere, func(a at) bool { return most[a] == 0 }) {
		t.Errorf("%d cuts of %d, %d redeliveries", s.cuts, want, s.redeliveries)
	}
	if s.bare {
		if len(s.wrong) == 0 {
			t.Error("without the library nothing was done twice: the sweep would not notice")
		}
		return
	}
	for _, w := range s.wrong {
		t.Error(w)
	}
}

// frames counts how many frames go by, each way, from a job's insertion until it is done. It depends
// on when the queue looks for jobs: these are the fewest and the most of some jobs.
func (s *queueCuts) frames(t *testing.T, q *cutQueue) (fewest, most map[at]int) {
	t.Helper()
	fewest, most = map[at]int{}, map[at]int{}
	s.play(t, q, "warm")
	for i := range 8 {
		c := fmt.Sprintf("counted %d.", i)
		counts := map[at]*int{}
		for _, a := range everywhere {
			n, match := new(int), a.matching(c)
			counts[a] = n
			q.proxy.Arm(proxy.Fault{Frame: 1 << 30, Match: func(f proxy.Frame) bool {
				if match(f) {
					*n++
				}
				return false
			}})
		}
		s.play(t, q, c)
		q.proxy.Disarm()
		for a, n := range counts {
			most[a] = max(most[a], *n)
			if i == 0 || *n < fewest[a] {
				fewest[a] = *n
			}
		}
	}
	return fewest, most
}

// cut plays jobs until one of them was struck, or one job if it need not be.
func (s *queueCuts) cut(t *testing.T, q *cutQueue, a at, frame int, after, must bool) {
	t.Helper()
	tries := 1
	if must {
		tries = 4
	}
	for range tries {
		id := rand.Text()
		c := fmt.Sprintf("span %d %v %d after %v %s", a.in, a.to, frame, after, id)
		// Connections are open again, and statements prepared.
		s.play(t, q, "warm "+id[:8])
		hit := q.proxy.Arm(proxy.Fault{Frame: frame, After: after, Match: a.matching(c)})
		again := s.play(t, q, c)
		q.proxy.Disarm()
		if _, struck := <-hit; struck {
			s.count(again)
			return
		}
	}
	if must {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.missed = append(s.missed, fmt.Sprintf("span %d %v %d after %v", a.in, a.to, frame, after))
	}
}

func (s *queueCuts) count(again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts++
	s.redeliveries += again
}

// play has a job done, and delivered again when nobody has it any more. It returns how often.
func (s *queueCuts) play(t *testing.T, q *cutQueue, c string) (again int) {
	t.Helper()
	const patience = 200 * time.Millisecond // at work for the queue, in nobody's hands
	id := q.insert(t, c)
	var idle time.Time // since when
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		at := q.stage(t, id)
		if at == done {
			break
		}
		if at == parked || time.Now().After(end) {
			t.Errorf("%s: its job is not done: %v", c, at)
			break
		}
		switch {
		case at != working || s.hands.busy(c):
			idle = time.Time{}
		case idle.IsZero():
			idle = time.Now()
		case time.Since(idle) > patience:
			q.again(t, id)
			again++
			idle = time.Time{}
		}
	}
	want := runs.Committed
	if s.bare {
		want = ""
	}
	if n, st := s.prov.times(c), state(t, s.keeper, c); n != 1 || st != want {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wrong = append(s.wrong, fmt.Sprintf("%s: answered %d times, and the ledger says %q", c, n, st))
	}
	return again
}

// handle is the job's handler.
func (s *queueCuts) handle(ctx context.Context, c string) error {
	return s.hands.hold(c, func() error {
		if s.bare {
			s.prov.do(c)
			return nil
		}
		return s.prov.replies(c)(ctx)
	})
}

package riverruns

import (
	"sync"
	"time"
)

// fetched knows, of the jobs at work in this process, when River fetched them
// last. A delivery that was fetched earlier but comes later, because its
// goroutine was slow to start, must not take over from the newer one. (Between
// processes the ledger decides: the one that begins last is the current one.)
//
// A job's number of the attempt does not serve, because it repeats after a
// snooze and a soft stop; the time of the fetch is the database's.
type fetched struct {
	mu   sync.Mutex
	last map[int64]time.Time
}

// enter notes a delivery. It reports false if a newer one is at work.
func (f *fetched) enter(id int64, at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.last[id]; ok && at.Before(last) {
		return false
	}
	if f.last == nil {
		f.last = map[int64]time.Time{}
	}
	f.last[id] = at
	return true
}

// leave forgets a delivery unless a newer one has taken its place.
func (f *fetched) leave(id int64, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last[id].Equal(at) {
		delete(f.last, id)
	}
}

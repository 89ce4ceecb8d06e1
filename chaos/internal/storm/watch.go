package storm

import (
	"slices"
	"sync"
)

// watch knows which jobs are in the hands of which worker.
type watch struct {
	mu         sync.Mutex
	live       map[string]map[int]int // job -> worker -> deliveries
	deliveries int
}

func newWatch() *watch { return &watch{live: map[string]map[int]int{}} }

func (w *watch) began(worker int, job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deliveries++
	if w.live[job] == nil {
		w.live[job] = map[int]int{}
	}
	w.live[job][worker]++
}

func (w *watch) ended(worker int, job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(worker, job, 1)
}

func (w *watch) end(worker int, job string, times int) {
	by := w.live[job]
	if by[worker] -= times; by[worker] <= 0 {
		delete(by, worker)
	}
	if len(by) == 0 {
		delete(w.live, job)
	}
}

// gone takes note that a worker is dead, and returns the jobs that nobody has now.
func (w *watch) gone(worker int) (lost []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job, by := range w.live {
		if n := by[worker]; n > 0 {
			if w.end(worker, job, n); w.live[job] == nil {
				lost = append(lost, job)
			}
		}
	}
	slices.Sort(lost)
	return lost
}

func (w *watch) isLive(job string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.live[job]) > 0
}

// inHand returns how many deliveries a worker has.
func (w *watch) inHand(worker int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, by := range w.live {
		n += by[worker]
	}
	return n
}

// jobs returns the jobs in the hands of the workers that which lets through.
func (w *watch) jobs(which func(worker int) bool) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job, by := range w.live {
		for worker := range by {
			if which(worker) {
				list = append(list, job)
				break
			}
		}
	}
	slices.Sort(list)
	return list
}

func (w *watch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deliveries
}

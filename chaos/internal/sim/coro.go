package sim

import "iter"

// coro is a coroutine that executes one function after the other, so that a world does not
// pay for its goroutines anew.
type coro struct {
	next     func() (struct{}, bool)
	yield    func(struct{}) bool
	body     func()
	panicked any
}

// killedPanic unwinds the coroutines of a process that crashed.
type killedPanic struct{}

func (p *pool) get() *coro {
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c
	}
	c := &coro{}
	var stop func()
	c.next, stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		for {
			c.execute()
			if !yield(struct{}{}) {
				return
			}
		}
	})
	p.stops = append(p.stops, stop)
	return c
}

func (c *coro) execute() {
	defer func() {
		c.body = nil
		if r := recover(); r != nil {
			if _, ok := r.(killedPanic); !ok {
				c.panicked = r
			}
		}
	}()
	c.body()
}

// pool keeps the coroutines that wait for work.
type pool struct {
	idle  []*coro
	stops []func()
}

func (p *pool) put(c *coro) { p.idle = append(p.idle, c) }

func (p *pool) close() {
	for _, stop := range p.stops {
		stop()
	}
	p.idle, p.stops = nil, nil
}

package provider

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// Faults says how often the provider misbehaves. Rates are between 0 and 1, per request for a reply or an action.
type Faults struct {
	Seed          uint64
	Late          float64       // the request takes long, though not longer than a client waits
	FailBefore    float64       // nothing is done, and the answer says so
	ActAndTimeout float64       // it is done, and the client never hears: see fate
	Deadline      time.Duration // how long clients wait
}

// fate is what becomes of one request.
type fate struct {
	before time.Duration // wait before acting
	after  time.Duration // wait between acting and answering
	end    end
}

type end string

const (
	answer end = "answer"      // act and answer
	refuse end = "fail before" // do nothing and say so
	drop   end = "drop"        // act, then break the connection
)

// dice throws per request. The n-th request for one thing has the same fate in every run of a seed, whichever worker
// makes it and whatever else goes on.
type dice struct {
	faults Faults
	mu     sync.Mutex
	thrown map[string]uint64
}

func newDice(faults Faults) *dice {
	return &dice{faults: faults, thrown: map[string]uint64{}}
}

func (d *dice) throw(about string) fate {
	d.mu.Lock()
	d.thrown[about]++
	n := d.thrown[about]
	d.mu.Unlock()

	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %s", n, about)
	rng := rand.New(rand.NewPCG(d.faults.Seed, hash.Sum64()))

	what := fate{end: answer}
	if rng.Float64() < d.faults.Late {
		delay := time.Duration(float64(d.faults.Deadline) * (0.15 + 0.35*rng.Float64()))
		if rng.IntN(2) == 0 {
			what.before = delay
		} else {
			what.after = delay
		}
	}
	switch bad := rng.Float64(); {
	case bad < d.faults.FailBefore:
		what.end = refuse
	case bad < d.faults.FailBefore+d.faults.ActAndTimeout:
		// Three ways to act without the client hearing of it.
		switch rng.IntN(3) {
		case 0: // the connection breaks
			what.end = drop
		case 1: // the answer is too late
			what.before, what.after = 0, 2*d.faults.Deadline
		case 2: // it acts only after the client gave up: the request waited in a queue behind a gateway
			what.before, what.after = d.faults.Deadline+time.Duration(float64(d.faults.Deadline)*0.3*rng.Float64()), 0
		}
	}
	return what
}

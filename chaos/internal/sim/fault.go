package sim

import "fmt"

// kind says what a task is about to do when it yields.
type kind uint8

const (
	atStore  kind = iota // a call of the ledger's store
	atEffect             // a call of the provider
	atRead               // reading the conversation, or thinking
	atAck                // telling the queue
	atBeat               // a renewal
	kinds
)

var kindNames = [kinds]string{"store", "effect", "read", "ack", "beat"}

// Fault is one kind of thing that goes wrong.
type Fault uint8

// The faults. Those up to FaultHang happen at a yield of a task; the others by themselves.
const (
	NoFault Fault = iota
	CrashBefore
	CrashAfter
	PauseShort    // the process stands still for less than a lease
	PauseLease    // … for longer than a lease
	PauseDeadline // … for longer than a claim's deadline
	PauseAfter    // … after what it was about to do, longer than a claim's deadline
	StoreError    // the call fails and nothing is written
	LostAck       // it is written and the answer is lost
	WrittenTwice  // the driver writes it a second time
	StoreSlow     // the call takes longer than the bound for settling; it is written
	Outage        // the store cannot be reached by anybody for a while
	Cut           // this process reaches neither store nor queue for a while
	NotApplied    // the provider says no
	TimeoutBefore // the provider was not reached, and the caller cannot know
	TimeoutAfter  // the provider did it, and the answer was lost
	LateSend      // the caller got an error; the provider does it later
	CrashLate     // the process dies; the provider does it later
	EffectPanics  // the function panics after the provider did it
	EffectSlow    // it takes nearly as long as its timeout
	EffectHangs   // it takes until its ctx is done; the provider did it
	BigResult     // it happens, and its result cannot be kept

	Duplicate  // the queue delivers the job again while it is at work
	Twin       // the same message comes under another job id
	JobTimeout // the queue's ctx is done, and the job is redelivered while the handler lives
	Shutdown   // a process is told to stop: its jobs go back, its handlers live on for a while
	CrashIdle  // a process dies
	ClockStep  // a process's clock jumps
	LoseWrites // the database crashes and loses what was not durable
	Human      // a person answers, and that is reported afterwards
	HumanTwice // … and the webhook comes twice
	Cancel     // an operator cancels a job
	ClosedRow  // a finished job is delivered again
	EditedJob  // an operator edits a waiting job's payload
	Lookup     // somebody purges meanwhile
	Moved      // a job's conversation changes before it is delivered again
	ReusedID   // the next message comes under the id of a job that is done
	Echo       // the provider's webhook reports our own write
	EarlyWord  // a person decides about a call that is under way
	Grumpy     // the provider refuses everything for a while
	faults
)

var faultNames = [faults]string{
	"none", "crash-before", "crash-after", "pause-short", "pause-lease", "pause-deadline", "pause-after", "store-error",
	"lost-ack", "written-twice", "store-slow", "outage", "cut", "not-applied", "timeout-before", "timeout-after", "late-send", "crash-late",
	"effect-panics", "effect-slow", "effect-hangs", "big-result", "duplicate", "twin", "job-timeout", "shutdown", "crash-idle",
	"clock-step", "lose-writes", "human", "human-twice", "cancel", "closed-row", "edited-job", "purge", "moved", "reused-id", "echo", "early-word", "grumpy",
}

// String returns the fault's word.
func (f Fault) String() string {
	if f < faults {
		return faultNames[f]
	}
	return fmt.Sprintf("fault(%d)", f)
}

// ParseFault returns the fault called name.
func ParseFault(name string) (Fault, error) {
	for f, have := range &faultNames {
		if have == name {
			return Fault(f), nil
		}
	}
	return NoFault, fmt.Errorf("sim: no fault is called %q", name)
}

// faultsAt are the faults of each kind of yield.
var faultsAt = [kinds][]Fault{
	atStore:  {CrashBefore, CrashAfter, LostAck, StoreError, PauseLease, PauseDeadline, PauseAfter, PauseShort, WrittenTwice, StoreSlow, Outage, Cut},
	atEffect: {NotApplied, TimeoutBefore, TimeoutAfter, LateSend, CrashBefore, CrashAfter, CrashLate, PauseLease, PauseDeadline, PauseAfter, PauseShort, EffectPanics, EffectSlow, EffectHangs, BigResult},
	atRead:   {CrashBefore, PauseLease, PauseDeadline, PauseShort},
	atAck:    {CrashBefore, CrashAfter, PauseLease, PauseShort, Cut},
	atBeat:   {StoreError, CrashBefore, PauseLease},
}

// happening are the faults that need no yield.
var happening = []Fault{Duplicate, Twin, JobTimeout, Shutdown, CrashIdle, ClockStep, LoseWrites, Human, HumanTwice, Cancel, ClosedRow, EditedJob, Lookup, Moved, ReusedID, Echo, EarlyWord, Grumpy}

// FaultSet is a set of faults.
type FaultSet uint64

// Faults returns the set of the given faults.
func Faults(list ...Fault) FaultSet {
	var s FaultSet
	for _, f := range list {
		s |= 1 << f
	}
	return s
}

// AllFaults holds every fault.
const AllFaults = FaultSet(1<<faults - 1)

// Has reports whether f is in s.
func (s FaultSet) Has(f Fault) bool { return s>>f&1 == 1 }

// point is where control returns to the scheduler. It returns the fault that strikes there;
// crashes and pauses that come before are over when it returns.
func (t *task) point(k kind, what string) Fault {
	w := t.w
	t.alive()
	if t.status = ready; !t.within() {
		t.yield()
	}
	f := w.draw(t, k, what)
	t.saw(uint64(k) | 1<<32)
	w.mix(uint64(t.id)<<16 | uint64(k)<<8 | uint64(f))
	if w.keep {
		w.note(t, what, f)
	}
	switch f {
	case CrashBefore:
		w.crash(t.p)
	case PauseShort:
		w.pause(t, 5*second)
		return NoFault
	case PauseLease:
		w.pause(t, 40*second)
		return NoFault
	case PauseDeadline:
		w.pause(t, 200*second)
		return NoFault
	}
	return f
}

// after is called when what the task was about to do is done.
func (t *task) after(f Fault) {
	switch f {
	case CrashAfter:
		t.w.crash(t.p)
	case PauseAfter:
		t.w.pause(t, 200*second)
	}
}

// pause lets a whole process stand still.
func (w *World) pause(t *task, d int64) {
	t.p.pausedUntil = max(t.p.pausedUntil, w.now+d)
	t.status = ready
	t.yield()
}

// tells reports whether a fault at a yield can be told from one that is tried elsewhere. A crash
// before a step is a crash after the step before it that changed anything, or a crash of a
// delivery that did nothing yet; to lose the answer to a question is to ask it again.
func tells(t *task, f Fault, k kind, what string) bool {
	changes := k == atEffect || k == atStore && what != "load"
	switch f {
	case CrashBefore:
		return k == atStore && t.d != nil && t.obs == 0
	case CrashAfter, LostAck, PauseDeadline:
		return changes
	}
	return true
}

// draw decides whether a fault strikes a task at its yield.
func (w *World) draw(t *task, k kind, what string) Fault {
	if w.budget == 0 || w.calm || t.p == w.api {
		return NoFault
	}
	list := faultsAt[k]
	var f Fault
	if w.cfg.Rate > 0 {
		x := w.c.choose(w.cfg.Rate)
		if x == 0 || x > len(list) || !w.on.Has(list[x-1]) {
			return NoFault
		}
		f = list[x-1]
	} else {
		var allowed [24]Fault
		n := 1
		for _, f := range list {
			if w.on.Has(f) && (!w.cfg.Coarse || tells(t, f, k, what)) {
				allowed[n] = f
				n++
			}
		}
		f = allowed[w.c.choose(n)]
	}
	if f != NoFault {
		w.budget--
		w.struck(f, k)
	}
	return f
}

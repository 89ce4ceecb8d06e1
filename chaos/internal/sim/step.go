package sim

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Step is one line of a trace.
type Step struct {
	At    int64 // nanoseconds since the start
	Lane  string
	Task  string
	What  string
	Fault Fault
	Event *runs.Event // what the library told its observer, or nil
	Proc  string      // the process that it told
	Send  *send       // what is sent to the provider, or nil
}

func (w *World) note(t *task, what string, f Fault) {
	w.trace = append(w.trace, Step{At: w.now, Lane: t.p.name, Task: t.name, What: what, Fault: f})
}

func (w *World) say(lane, format string, args ...any) {
	if w.keep {
		w.trace = append(w.trace, Step{At: w.now, Lane: lane, What: fmt.Sprintf(format, args...)})
	}
}

// fail records the first violation; the world stops.
func (w *World) fail(kind, format string, args ...any) {
	if w.bad != "" {
		return
	}
	w.badKind, w.bad = kind, fmt.Sprintf(format, args...)
	w.say("ORACLE", "%s: %s", kind, w.bad)
}

func ids(mask uint32) []string {
	list := make([]string, 0, bits.OnesCount32(mask))
	for i := 0; mask>>i != 0; i++ {
		if mask>>i&1 == 1 {
			list = append(list, messageID(i))
		}
	}
	return list
}

var messageNames = [...]string{"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11", "m12", "m13", "m14", "m15"}

func messageID(i int) string { return messageNames[i] }

func newest(mask uint32) int { return bits.Len32(mask) - 1 }

func clock(at int64) string { return time.Duration(at).Truncate(time.Millisecond).String() }

package riverruns

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/riverqueue/river/rivertype"
)

// staleError is what a stale delivery returns. River applies whatever a
// delivery returns to the row, whichever delivery made the row running: nil
// would complete the job under the newer delivery, JobCancel would kill it,
// JobSnooze would rewind it, and an ordinary error would start a third. The one
// value that leaves the row alone is an error with these two methods, meant for
// results of several jobs in one: it reports none.
//
// River asks the outermost error only, and documents none of it.
type staleError struct{ error }

// Jobs is asked by River's executor: the jobs to report.
func (*staleError) Jobs() []*rivertype.JobRow { return nil }

// ErrorsByID is asked by River's executor: what to report of each.
func (*staleError) ErrorsByID() map[int64]error { return nil }

// provenRiver is the version of River on which the tests show that a staleError
// leaves the row alone. A program that was built with another one holds stale
// returns instead.
const provenRiver = "v0.51.2"

// proven reports whether the program was built with provenRiver, or does not say
// with what (tests, some build systems).
var proven = sync.OnceValue(func() bool {
	info, ok := debug.ReadBuildInfo()
	return !ok || trusted(info.Deps)
})

func trusted(deps []*debug.Module) bool {
	for _, m := range deps {
		if m.Path == riverModule {
			return m.Version == provenRiver && m.Replace == nil
		}
	}
	return true
}

const (
	ownPackage    = "github.com/fencedrun/fencedrun/adapters/river."
	riverModule   = "github.com/riverqueue/river"
	riverInternal = riverModule + "/internal/"
	riverExecutor = ".(*JobExecutor).execute"
)

// outermost reports whether the plugin's result reaches River's executor as it
// is: nothing but River's own code stands between the two. A Worker.Middleware,
// or another plugin before this one, could wrap a [staleError], and a wrapped one
// is an ordinary error. A ctx does not tell, so the stack has to; it is asked of
// stale deliveries only, which are rare.
func outermost() bool {
	var pcs [256]uintptr
	n := runtime.Callers(2, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	var names []string
	for more := n > 0; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		names = append(names, frame.Function)
	}
	return direct(names, n < len(pcs))
}

// direct decides for [outermost] by the names of the functions on the stack,
// innermost first; whole says that it was seen to its end.
func direct(stack []string, whole bool) bool {
	var river, foreign bool
	for _, name := range stack {
		switch {
		case strings.HasPrefix(name, ownPackage) && !river && !foreign:
		case strings.HasPrefix(name, riverInternal):
			if strings.Contains(name, riverExecutor) {
				return !foreign
			}
			river = true
		default:
			river = river || strings.HasPrefix(name, riverModule)
			foreign = true
		}
	}
	// No executor. If River is not there at all, a test or a simulator called
	// and sees what it is given. A River that we do not know is not trusted,
	// nor is a stack too deep to be seen whole.
	return whole && !river
}

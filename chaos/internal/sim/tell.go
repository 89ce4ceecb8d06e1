package sim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// Line is one step of a trace in words for somebody who has not read the code.
type Line struct {
	At     int64
	Lane   string // whose column it is in
	Who    string // worker and job, or another actor
	Text   string
	Fault  string // what went wrong there, "" nothing
	Bad    bool   // the send, or the word of the oracle, that breaks the promise
	send   bool
	task   string
	proc   string   // who asked the ledger
	word   string   // the kind of a violation
	deed   []string // of a user's handler: what the send does, and inside which effect
	effect string
	kind   fence.EventKind
}

// faultTexts say what happens to whoever meets the fault.
var faultTexts = map[Fault]string{
	CrashBefore:   "the worker process is killed before this",
	CrashAfter:    "the worker process is killed right after this",
	PauseShort:    "the worker process freezes for 5 s before this",
	PauseLease:    "the worker process freezes for 40 s before this, longer than its lease",
	PauseDeadline: "the worker process freezes for 200 s before this, longer than a claim's deadline",
	PauseAfter:    "the worker process freezes for 200 s after this, longer than a claim's deadline",
	StoreError:    "the ledger cannot be reached; nothing is written",
	LostAck:       "the ledger does it and its answer is lost",
	WrittenTwice:  "the driver sends it to the ledger twice",
	StoreSlow:     "the ledger does it and answers too late",
	Outage:        "the ledger is down for everybody from here on, for a while",
	Cut:           "this worker is cut off from ledger and queue, for a while",
	NotApplied:    "the provider says no",
	TimeoutBefore: "times out; the provider never got it, which the worker cannot know",
	TimeoutAfter:  "times out; the provider did it, which the worker cannot know",
	LateSend:      "the connection breaks; the provider does it later all the same",
	CrashLate:     "the worker process is killed; the provider does it later all the same",
	EffectPanics:  "the handler panics after the provider did it",
	EffectSlow:    "takes 50 s",
	EffectHangs:   "the provider did it, and the call hangs until it is given up",
	BigResult:     "it happens, and its result is too big to be kept",
}

var reasonTexts = map[runs.Reason]string{
	runs.ReasonSuperseded:           "a newer job has taken over",
	runs.ReasonConversationChanged:  "something was written to the conversation since this job looked",
	runs.ReasonAlreadyAnswered:      "the message is answered, or being answered, by another reply",
	runs.ReasonUnresolved:           "nobody knows yet what became of an earlier one",
	runs.ReasonParamsChanged:        "it was done with other parameters",
	runs.ReasonInFlight:             "it is under way",
	runs.ReasonAmbiguous:            "nobody knows whether it happened",
	runs.ReasonNoRun:                "the ledger does not know this job",
	runs.ReasonCancelled:            "the job was cancelled",
	runs.ReasonEnded:                "the job has ended",
	runs.ReasonBusy:                 "another job is at work on the conversation",
	runs.ReasonExhausted:            "it was tried as often as is allowed",
	runs.ReasonConversationMismatch: "the job belongs to another conversation",
	runs.ReasonNotStarted:           "it is too late to start the call",
	runs.ReasonWaitTimeout:          "waited for too long",
	runs.ReasonStalePayload:         "what the job's payload shows is out of date",
	runs.ReasonRefusedTwice:         "the same refused it before",
	runs.ReasonLeaseLost:            "the job lost its lease",
	runs.ReasonReplayOnly:           "an earlier delivery wrote, and the job is not to be entered again",
	runs.ReasonTakenAgain:           "a message of its is open again",
	runs.ReasonFinished:             "the job was done before",
	runs.ReasonLedger:               "the ledger did not answer",
	runs.ReasonValueNotKept:         "the result could not be kept",
}

func reasonText(r runs.Reason) string {
	if text := reasonTexts[r]; text != "" {
		return text
	}
	return strings.ReplaceAll(string(r), "_", " ")
}

// eventText says what the library told its observer; task is who asked.
func eventText(e *runs.Event, task string) string {
	job, effect := "job "+e.Run.ID, effectText(e.Effect.Intent, e.Effect.Key)
	switch e.Kind {
	case fence.EventBegun, fence.EventResumed:
		return "lets " + task + " in"
	case fence.EventRefused:
		if e.Effect.Intent != "" {
			return "REFUSES " + effect + " to " + task + ": " + reasonText(e.Reason)
		}
		if e.Reason != "" {
			return "refuses " + task + ": " + reasonText(e.Reason)
		}
	case fence.EventClaimed:
		return "writes down that " + effect + " is about to be made by " + task + " (a claim)"
	case fence.EventReplayed:
		return "gives " + task + " the stored result of " + effect + " instead of another call"
	case fence.EventCommitted:
		return "records: " + effect + " happened"
	case fence.EventFailed:
		return "records: " + effect + " certainly did not happen"
	case fence.EventAmbiguous:
		return "records: nobody knows whether " + effect + " happened"
	case fence.EventLapsed:
		return "finds the claim of " + effect + " past its deadline: nobody knows whether it happened"
	case fence.EventLate:
		return "hears late what became of " + effect + ": " + e.Text
	case fence.EventDuplicate:
		return "reports that " + effect + " happened twice"
	case fence.EventCaughtUp:
		return "shows " + task + " what has happened so far"
	case fence.EventEnded:
		return job + " has ended: " + e.Text
	case fence.EventReleased:
		return job + " is left unfinished"
	case fence.EventParked:
		return job + " is stopped for a person: " + reasonText(e.Reason)
	case fence.EventComeBack:
		return "sends " + task + " back to the queue: " + reasonText(e.Reason)
	case fence.EventUnanswered:
		return job + " ended and left " + e.Inbound + " open"
	case fence.EventDismissed:
		return e.Inbound + " is closed without an answer"
	case fence.EventResolved:
		return effect + " was decided: " + e.Text
	case fence.EventReported:
		return "is told that somebody else wrote"
	case fence.EventEcho:
		return "recognises our own " + effect
	case fence.EventCancelled:
		return job + " is cancelled"
	case fence.EventLeaseLost:
		return task + " may write no more: " + reasonText(e.Reason)
	case fence.EventLeaseRejoined:
		return "the lease of " + job + " had run out and is taken up again"
	case fence.EventLedgerError:
		return "cannot be asked by " + task
	case fence.EventNotRecorded:
		return "could not write down what became of " + effect
	case fence.EventProgressSaved:
		return "keeps the progress of " + job
	case fence.EventFinishedAgain:
		return job + " was done before and is not entered"
	case fence.EventReopened:
		return job + " was stopped before and is let in anew"
	}
	text := fence.Describe(fence.Event{
		Kind: e.Kind, Run: e.Run, Delivery: e.Delivery, Effect: e.Effect.ID, Intent: e.Effect.Intent, Key: e.Effect.Key,
		Call: e.Call, Inbound: e.Inbound, Reason: e.Reason, Text: e.Text,
	})
	return strings.TrimPrefix(text, string(e.Kind)+": ")
}

// effectText names an effect by its key.
func effectText(intent, key string) string {
	if text, err := strconv.Unquote(key); err == nil {
		return intent + " " + text
	}
	return intent + " " + strings.NewReplacer(`"`, "", "{", "", "}", "", ":", "=", ",", " ").Replace(key)
}

// decides says what an operator has found out.
func decides(intent, key string, happened bool) string {
	if happened {
		return "finds out that " + effectText(intent, key) + " happened, and says so"
	}
	return "finds out that " + effectText(intent, key) + " did not happen, and says so"
}

// writes says what a write of the ledger is for.
func writes(w *ledger.Write) string {
	what := ""
	for _, r := range w.Put {
		body, err := r.Body()
		if err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(r.Key, "e/"):
			var e fence.Effect
			if json.Unmarshal(body, &e) != nil || len(e.Calls) == 0 {
				continue
			}
			last := e.Calls[len(e.Calls)-1]
			for _, c := range e.Calls {
				if c.Seq > last.Seq {
					last = c
				}
			}
			name := effectText(e.Intent, e.Key)
			return map[fence.State]string{
				fence.Pending:   " the claim of " + name,
				fence.Committed: " that " + name + " happened",
				fence.Failed:    " that " + name + " did not happen",
				fence.Ambiguous: " that nobody knows whether " + name + " happened",
			}[last.State]
		case strings.HasPrefix(r.Key, "r/"):
			var run fence.Run
			if json.Unmarshal(body, &run) != nil {
				continue
			}
			switch {
			case run.Finished():
				what = " the end of job " + run.Key.ID
			case len(w.Leases) > 0 && w.Leases[0].For == 0:
				what = " that job " + run.Key.ID + " is left unfinished"
			case len(w.Leases) > 0:
				what = " that job " + run.Key.ID + " is entered"
			default:
				what = " a note on job " + run.Key.ID
			}
		}
	}
	return what
}

// stepText says what a worker is about to do; done says whether it did.
func stepText(what string) string {
	switch {
	case strings.HasPrefix(what, "SEND "):
		return "SENDS " + sendText(strings.TrimPrefix(what, "SEND "))
	case strings.HasPrefix(what, "  ") && strings.Contains(what, " → "):
		return "is told of " + sendText(strings.Replace(strings.TrimSpace(what), " → ", ": ", 1))
	case what == "write":
		return "writes to the ledger"
	case strings.HasPrefix(what, "write "):
		return "writes to the ledger" + strings.TrimPrefix(what, "write")
	case what == "load":
		return "reads the ledger"
	case what == "renew":
		return "renews its lease in the ledger"
	case what == "find run" || what == "bury" || what == "exhume" || what == "scan":
		return "asks the ledger (" + what + ")"
	}
	return bracketed.ReplaceAllStringFunc(what, sendText)
}

var bracketed = regexp.MustCompile(` answers \[[^\]]*\]`)

// sendText puts the messages that a send answers into words.
func sendText(what string) string {
	what = strings.ReplaceAll(strings.TrimPrefix(what, "deed "), `"`, "")
	return bracketed.ReplaceAllStringFunc(what, func(s string) string {
		list := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(s, " answers ["), "]"))
		return ", which answers " + strings.Join(list, " and ")
	})
}

// Lines tells a trace: what a reader needs, in words, with what belongs together in one line.
func (r *Result) Lines() []Line {
	steps := r.Shown()
	lines := make([]Line, 0, len(steps))
	for i := range steps {
		l := lineOf(&steps[i])
		if len(lines) > 0 && lines[len(lines)-1].join(&l) {
			continue
		}
		lines = append(lines, l)
	}
	for i := range lines {
		if lines[i].Lane != "verdict" {
			continue
		}
		lines[i].Bad = true
		for k := i - 1; k >= 0 && sends[lines[i].word]; k-- {
			if lines[k].send || lines[k].kind == fence.EventClaimed {
				lines[k].Bad = true
				break
			}
		}
	}
	return lines
}

// sends are the kinds of violations that a send is guilty of.
var sends = map[string]bool{
	"duplicate": true, "grant": true, "exhausted": true, "fence": true, "durable": true, "late start": true, "no run": true, "not active": true,
	"stale delivery": true, "used lease": true, "not exclusive": true, "stale view": true, "refused": true, "answered after a report": true,
}

func lineOf(s *Step) Line {
	l := Line{At: s.At, Lane: s.Lane, Who: s.Lane, Text: stepText(s.What), Fault: faultTexts[s.Fault], task: s.Task, proc: s.Proc}
	if s.Send != nil {
		l.deed, l.effect = s.Send.deeds, s.Send.effect
	}
	switch {
	case s.Event != nil:
		l.kind = s.Event.Kind
		task := s.Task
		if task == "" || strings.HasPrefix(task, "w") && strings.HasSuffix(task, " beats") {
			task = "job " + s.Event.Run.ID
		}
		l.Text = eventText(s.Event, task)
	case s.Lane == "ORACLE":
		l.Lane, l.Who = "verdict", "WRONG"
		l.word, l.Text, _ = strings.Cut(s.What, ": ")
		l.Text = sendText(l.Text)
	case s.Lane == "world":
		l.Lane, l.Who = strings.TrimSuffix(s.What, " dies"), strings.TrimSuffix(s.What, " dies")
		l.Text = "is dead; whoever supervises it starts another"
	case s.Task != "":
		l.Who += " " + s.Task
		l.send = strings.HasPrefix(s.What, "SEND")
	case s.Lane == "provider":
		l.send = strings.HasPrefix(s.What, "does it late")
		l.Text = stepText(s.What)
	}
	return l
}

// join takes up the next line if it belongs to this one.
func (l *Line) join(next *Line) bool {
	if strings.Contains(l.Fault, "killed") && next.Lane == l.Lane && strings.HasPrefix(next.Text, "is dead") {
		return true
	}
	if l.Fault != "" || next.Fault != "" || next.At-l.At > 20*millisecond {
		return false
	}
	switch {
	case l.Lane == "customer" && next.Lane == "queue" && strings.Contains(next.Text, "is enqueued for"):
		job, _, _ := strings.Cut(next.Text, " ")
		l.Text += ", which makes job " + job
	case strings.HasPrefix(l.Text, "delivers ") && (next.kind == fence.EventBegun || next.kind == fence.EventResumed):
		l.Text += ", and the ledger lets it in"
	case l.kind == fence.EventCommitted && strings.HasPrefix(next.Text, "is told of ") && strings.HasSuffix(next.Text, ": done"):
	case (l.kind == fence.EventFailed || l.kind == fence.EventAmbiguous || l.kind == fence.EventRefused) && strings.HasPrefix(next.Text, "is told of "):
	case (l.kind == fence.EventReleased || l.kind == fence.EventRefused) && l.task == next.task && (next.kind == fence.EventComeBack || next.kind == fence.EventParked) && l.effectless():
		l.Text, l.kind = next.Text, next.kind
	case (l.kind == fence.EventEnded || l.kind == fence.EventComeBack || l.kind == fence.EventParked) && l.task == next.task && strings.HasPrefix(next.Text, "tells the queue: "):
		l.Text += "; the queue is told"
	case l.kind == fence.EventCommitted && next.kind == fence.EventResolved:
	default:
		return false
	}
	return true
}

// effectless: it is not about an effect, so what comes of it says it all.
func (l *Line) effectless() bool { return !strings.HasPrefix(l.Text, "REFUSES") }

// since renders a point of time.
func since(at int64) string { return fmt.Sprintf("+%.1fs", time.Duration(at).Seconds()) }

// WouldSay says where the world goes another way when nothing is switched off, and what the
// library says there; "" when it knows nothing to say.
func (e *Engine) WouldSay(cfg Config, found *Result) string {
	bad := e.Replay(cfg, found.Choices, true)
	cfg.Off = Config{}.Off
	good := e.Replay(cfg, found.Choices, true)
	at := 0
	for at < len(bad.Trace) && at < len(good.Trace) && bad.Trace[at].same(&good.Trace[at]) {
		at++
	}
	for i := range good.Trace[at:] {
		s := &good.Trace[at+i]
		if s.Event == nil || i > 40 {
			continue
		}
		switch s.Event.Kind { //nolint:exhaustive // only these answer somebody
		case fence.EventRefused, fence.EventReplayed, fence.EventComeBack, fence.EventParked, fence.EventUnanswered, fence.EventFinishedAgain,
			fence.EventLapsed, fence.EventAmbiguous, fence.EventLeaseLost, fence.EventReopened, fence.EventNewGeneration, fence.EventEcho,
			fence.EventLate, fence.EventLedgerError:
			l := lineOf(s)
			return since(l.At) + "  the ledger " + l.Text
		}
	}
	return ""
}

func (s *Step) same(o *Step) bool {
	return s.At == o.At && s.Lane == o.Lane && s.Task == o.Task && s.What == o.What && s.Fault == o.Fault
}

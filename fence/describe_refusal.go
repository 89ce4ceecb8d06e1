package fence

import "strings"

// refusal says why something may not happen and what helps.
func (d *describer) refusal(r *Refusal) string {
	what, todo := d.why(r)
	text := "refused: " + string(r.Reason) + " – " + what
	if todo != "" {
		text += "; " + todo
	}
	if r.Stale && r.Reason != ReasonSuperseded {
		text += "; a later delivery of this run came after this one"
	}
	if r.Again {
		text += "; another call is allowed with the same key, params and answers"
	}
	if r.Twice {
		text += "; it was refused for this before and has not looked since: park the job"
	}
	return text
}

func (d *describer) why(r *Refusal) (what, todo string) {
	switch r.Reason {
	case ReasonSuperseded:
		return d.whySuperseded(r)
	case ReasonConversationChanged:
		if r.ComeBack {
			return "somebody else is writing: " + d.conflicts(r.Conflicts), d.comeBack(r)
		}
		what = "since it last caught up there was " + d.conflicts(r.Conflicts)
		if r.More {
			what += ", and perhaps older ones"
		}
		return what, "catch up, read again, decide again"
	case ReasonAlreadyAnswered:
		what = d.answers(r.Answered)
		if len(r.Open) > 0 {
			what += "; open: " + strings.Join(r.Open, ", ")
			todo = "answer what is open under a key of its own"
		}
		if r.ComeBack {
			todo = d.comeBack(r)
		} else if r.Unknown {
			todo = d.unknown(r)
		}
		return what, todo
	case ReasonUnresolved:
		if r.ComeBack {
			return "one of the same intent is under way: " + d.conflicts(r.Conflicts), d.comeBack(r)
		}
		return "nobody knows the outcome of " + d.conflicts(r.Conflicts), d.unknown(r)
	case ReasonInFlight:
		return d.conflicts(r.Conflicts) + " is under way", d.comeBack(r)
	case ReasonAmbiguous:
		return "nobody knows whether it happened: " + d.conflicts(r.Conflicts), "do not repeat it; " + d.unknown(r)
	case ReasonParamsChanged:
		return "the same key was claimed with other params: stored " + r.Stored + ", asked " + r.Asked,
			"a different deal needs a different key"
	case ReasonBusy:
		if len(r.Conflicts) == 0 {
			return "its lease lapsed and another holder has used it", d.comeBack(r)
		}
		return d.conflicts(r.Conflicts) + " holds the conversation", d.comeBack(r)
	case ReasonExhausted:
		return "every call that is allowed did not apply: " + d.conflicts(r.Conflicts), "a person must decide"
	case ReasonNotStarted:
		return "the claim was decided before its answer arrived: " + d.conflicts(r.Conflicts), "nothing was called; claim anew"
	case ReasonTakenAgain:
		return "messages that were taken by others are open again: " + strings.Join(r.Open, ", "), d.comeBack(r)
	}
	if text, ok := reasonTexts[r.Reason]; ok {
		return text[0], text[1]
	}
	return "no more is known", ""
}

// reasonTexts are for the reasons that carry no details.
var reasonTexts = map[Reason][2]string{
	ReasonNoRun:                {"the ledger does not know this run", "begin it first"},
	ReasonCancelled:            {"the run was cancelled", "stop; nothing is left to do"},
	ReasonEnded:                {"the run has ended", "replays still answer, nothing new may be claimed"},
	ReasonConversationMismatch: {"the run lives on another conversation and has not ended there", "end or cancel it there first"},
	ReasonWaitTimeout:          {"it was still pending when the wait was over", "come back later"},
	ReasonStalePayload:         {"the job's payload is older than what happened since", "enqueue a new job with a new snapshot, catch up, or dismiss its messages"},
	ReasonRefusedTwice:         {"it was refused twice for the same and never looked", "parked; let the handler catch up"},
	ReasonLeaseLost:            {"the lease may have run out, or another holds it", "stop; a later delivery goes on"},
	ReasonReplayOnly:           {"the run wrote in an earlier delivery and must not be entered twice", "nothing is left to do"},
	ReasonFinished:             {"the run ended with success before", "acknowledge the job"},
	ReasonLedger:               {"the ledger could not be asked", "try again later; nothing was called"},
	ReasonValueNotKept:         {"it is done, but its value could not be kept", "go on without the value; it will not be done again"},
	ReasonInvalid:              {"the request is not valid", "correct it; nothing was written"},
}

func (d *describer) whySuperseded(r *Refusal) (what, todo string) {
	switch {
	case r.Stale:
		return "a later delivery of this run has the right to write", "stop; leave the job to it"
	case r.ComeBack && len(r.Conflicts) > 0:
		return "a newer run wrote, and the messages of this job are taken: " + d.answers(r.Conflicts), d.comeBack(r)
	case r.ComeBack:
		return "a newer run is at work", d.comeBack(r)
	}
	return "a newer run took care of this job", "nothing is left to do"
}

func (d *describer) comeBack(r *Refusal) string {
	if r.At == 0 || d.relative && r.At <= d.now {
		return "come back now"
	}
	return "come back at " + d.at(r.At)
}

func (d *describer) unknown(r *Refusal) string {
	if d.relative && r.At <= d.now {
		return "a probe, late evidence or a person decides, and a probe is due"
	}
	return "a probe, late evidence or a person decides, a probe not before " + d.at(r.At)
}

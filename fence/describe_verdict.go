package fence

import (
	"fmt"
	"strconv"
	"strings"
)

// verdict describes the answers of the transitions.
func (d *describer) verdict(x any) (string, bool) {
	switch x := x.(type) {
	case BeginVerdict:
		return d.begin(&x), true
	case ClaimVerdict:
		return d.claim(&x), true
	case SettleVerdict:
		return d.settle(&x), true
	case EndVerdict:
		return d.end(&x), true
	case CatchUpVerdict:
		return d.catchUp(&x), true
	case CancelVerdict:
		return d.cancel(&x), true
	case DismissVerdict:
		return d.dismiss(&x), true
	case ReportVerdict:
		return d.report(&x), true
	case ResolveVerdict:
		return d.resolve(&x), true
	case ProbeVerdict:
		return d.probe(&x), true
	case ProbedVerdict:
		return d.probed(&x), true
	case PurgeVerdict:
		return d.purge(&x), true
	case BeatVerdict:
		return d.beat(&x), true
	}
	return "", false
}

func (d *describer) begin(v *BeginVerdict) string {
	switch {
	case v.Refusal != nil:
		return d.refusal(v.Refusal)
	case v.Finished:
		return "finished: " + runName(v.Run.Key, 0) + " has ended; acknowledge the job without entering it"
	case v.Delivery == nil:
		return "undecided"
	}
	del := v.Delivery
	text := fmt.Sprintf("begun: %s (%s, %s)", runName(del.Run, del.ID.Number), del.Mode, orderName(del.Order))
	if len(del.Inbound) > 0 {
		text += ", brings " + strings.Join(del.Inbound, ", ")
	}
	if len(del.Taken) > 0 {
		text += ", taken: " + strings.Join(del.Taken, ", ")
	}
	if len(v.Run.Progress) > 0 {
		text += fmt.Sprintf(", finds progress of %d bytes", len(v.Run.Progress))
	}
	return text
}

func (d *describer) claim(v *ClaimVerdict) string {
	switch {
	case v.Refusal != nil:
		return d.refusal(v.Refusal)
	case v.Replay != nil:
		text := fmt.Sprintf("replayed: %s was done by call %d of %s", effectName(v.Effect.Intent, v.Effect.Key), v.Replay.Number, runName(v.Replay.Run, v.Replay.Delivery.Number))
		switch {
		case v.Replay.NoValue:
			text += "; its value was not kept"
		case len(v.Replay.Result) > 0:
			text += ", result " + strconv.Quote(string(v.Replay.Result))
		}
		return text
	case v.Call == nil:
		return "undecided"
	}
	return fmt.Sprintf("granted: call %d of %s, fence %d, until %s", v.Call.Number, effectName(v.Effect.Intent, v.Effect.Key), v.Call.Fence, d.at(v.Call.Deadline))
}

func (d *describer) settle(v *SettleVerdict) string {
	if v.Effect == nil {
		return "not recorded: the claim is not known here"
	}
	text := "recorded: "
	if !v.Recorded {
		text = "not recorded: "
	}
	text += effectName(v.Effect.Intent, v.Effect.Key) + " is " + string(v.Effect.State())
	if v.Vanished {
		text += "; its record was gone and was re-created"
	}
	if v.Late {
		text += "; it came late"
	}
	if v.Duplicate {
		text += "; it may have happened twice: a person must look"
	}
	return text
}

func (d *describer) end(v *EndVerdict) string {
	text := "ended"
	if v.Refusal != nil {
		text = d.refusal(v.Refusal)
	}
	if len(v.Unanswered) > 0 {
		text += "; unanswered: " + strings.Join(v.Unanswered, ", ")
	}
	return text
}

func (d *describer) catchUp(v *CatchUpVerdict) string {
	if v.Refusal != nil {
		return d.refusal(v.Refusal)
	}
	open := make([]string, len(v.Open))
	for i, in := range v.Open {
		open[i] = in.ID
	}
	var b strings.Builder
	b.WriteString("caught up; open: " + list(open))
	if v.OpenCount != len(v.Open) {
		fmt.Fprintf(&b, " (%d open in all)", v.OpenCount)
	}
	for i := range v.Happened {
		b.WriteString("\n  happened: " + d.conflict(&v.Happened[i]))
	}
	for i := range v.Taken {
		t := &v.Taken[i]
		b.WriteString("\n  unresolved: " + d.conflict(&t.Conflict) + ", has taken " + list(t.Answers))
		if t.Again {
			b.WriteString(", may be called again with params " + orElse(t.Params, "none"))
		}
	}
	return b.String()
}

func list(ids []string) string { return orElse(strings.Join(ids, ", "), "none") }

func (d *describer) cancel(v *CancelVerdict) string {
	switch {
	case v.Run == nil:
		return "not cancelled: the run is not known here"
	case !v.Cancelled:
		return "not cancelled: " + runName(v.Run.Key, 0) + " has ended"
	}
	text := "cancelled: " + runName(v.Run.Key, 0)
	if len(v.Dismissed) > 0 {
		text += "; dismissed: " + strings.Join(v.Dismissed, ", ")
	}
	return text
}

func (d *describer) dismiss(v *DismissVerdict) string {
	if v.Refusal != nil {
		return d.refusal(v.Refusal)
	}
	return "dismissed: " + list(v.Dismissed)
}

func (d *describer) report(v *ReportVerdict) string {
	if v.Report == nil {
		return "undecided"
	}
	text := "reported: " + strconv.Quote(v.Report.ID)
	if v.Known {
		text = "known already: report " + strconv.Quote(v.Report.ID)
	}
	if v.Echo != "" {
		text += ", the echo of one of our own effects"
	}
	return text
}

func (d *describer) resolve(v *ResolveVerdict) string {
	switch {
	case v.Refused != "" && v.Early:
		return "not resolved: " + v.Refused + ", until " + d.at(v.Deadline)
	case v.Refused != "":
		return "not resolved: " + v.Refused
	case v.After == nil:
		return "undecided"
	case v.Before == v.After:
		return fmt.Sprintf("resolved before: %s is %s", effectName(v.After.Intent, v.After.Key), v.After.State())
	}
	return fmt.Sprintf("resolved: %s was %s and is %s", effectName(v.After.Intent, v.After.Key), v.Before.State(), v.After.State())
}

func (d *describer) probe(v *ProbeVerdict) string {
	switch {
	case v.Effect == nil:
		return "not to be probed: it is not known here"
	case v.Granted:
		return "to be probed: " + effectName(v.Effect.Intent, v.Effect.Key) + ", by nobody else until " + d.at(v.Effect.Probing.Until)
	case v.Next > 0:
		return "not to be probed before " + d.at(v.Next)
	}
	return fmt.Sprintf("not to be probed: %s is %s", effectName(v.Effect.Intent, v.Effect.Key), v.Effect.State())
}

func (d *describer) probed(v *ProbedVerdict) string {
	switch {
	case v.After == nil:
		return "not decided: it is not known here"
	case v.Decided && v.Before == v.After:
		return fmt.Sprintf("decided before: %s is %s", effectName(v.After.Intent, v.After.Key), v.After.State())
	case v.Decided:
		return fmt.Sprintf("decided: %s was %s and is %s", effectName(v.After.Intent, v.After.Key), v.Before.State(), v.After.State())
	}
	return "not decided, to be probed again at " + d.at(v.Next)
}

func (d *describer) purge(v *PurgeVerdict) string {
	text := fmt.Sprintf("purged: runs %d, effects %d, others %d; still needed: %d", v.Runs, v.Effects, v.Others, v.Kept)
	if len(v.Dropped) > 0 {
		text += "; dropped though open: " + strings.Join(v.Dropped, ", ")
	}
	return text
}

func (d *describer) beat(v *BeatVerdict) string {
	switch {
	case v.Refusal != nil:
		return d.refusal(v.Refusal)
	case v.Rejoined:
		return "go on: the lapsed lease was taken up again"
	}
	return "go on"
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
)

// introduce says what is about to happen, and above all what is not as in production.
func introduce(w io.Writer, o options) {
	messages := 0
	for _, script := range o.scripts() {
		messages += script.Messages()
	}
	fmt.Fprintf(w, "%d conversations, %d customer messages, each a job on %s; %d worker processes; seed %d.\n",
		o.n, messages, strings.ToUpper(o.queue[:1])+o.queue[1:], o.workers, o.seed)
	fmt.Fprintf(w, "The help desk answers late (%s), fails and does nothing (%s), acts without its client hearing of it (%s).\nIt does not deduplicate.\n",
		percent(o.faults.Late), percent(o.faults.FailBefore), percent(o.faults.ActAndTimeout))
	if o.kill {
		fmt.Fprintln(w, "Workers are killed (SIGKILL) at random moments and restarted.")
	}
	if o.redeliver > 0 {
		fmt.Fprintf(w, "Some jobs (%s) are delivered a second time while their first delivery lives.\n", percent(o.redeliver))
	}
	fmt.Fprintln(w, "So that this takes a minute and not an hour, leases, deadlines and back-offs are shortened, and redelivery is brought forward:")
	if o.queue == queue.Asynq {
		fmt.Fprintln(w, "  the leases of tasks in a dead worker's hands are moved back, and Asynq's own recoverer finds them when the next worker starts;")
		fmt.Fprintln(w, "  a task delivered twice is put back the way a Redis failover that loses its dequeue does.")
	} else {
		fmt.Fprintln(w, "  jobs in a dead worker's hands, and jobs delivered twice, are made available again as River's rescuer does after an hour.")
	}
	fmt.Fprintln(w)
}

func percent(rate float64) string { return fmt.Sprintf("%.4g %%", 100*rate) }

// writeJSON is for machines.
func writeJSON(w io.Writer, o options, results map[string]*result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Queue   string  `json:"queue"`
		Seed    uint64  `json:"seed"`
		Without *result `json:"without,omitempty"`
		With    *result `json:"with,omitempty"`
	}{o.queue, o.seed, results[armWithout], results[armWith]})
}

// writeReport is the table, and one conversation's transcript.
func writeReport(w io.Writer, o options, results map[string]*result) error {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, value func(*result) any) {
		fmt.Fprintf(table, "%s\t", name+strings.Repeat(" ", max(0, 20-len(name))))
		for _, arm := range o.arms {
			fmt.Fprintf(table, "%v\t", value(results[arm]))
		}
		fmt.Fprintln(table)
	}
	fmt.Fprintf(table, "%s\t%s\t\n", strings.Repeat(" ", 20), strings.Join(o.arms, "\t"))
	row("messages", func(r *result) any { return r.Messages })
	row("answers", func(r *result) any { return r.Answers })
	row("duplicate answers", func(r *result) any { return r.DuplicateAnswers })
	row("duplicate effects", func(r *result) any { return r.DuplicateEffects })
	row("unanswered", func(r *result) any { return r.Unanswered })
	row("lost", func(r *result) any { return r.Lost })
	row("unknown", func(r *result) any { return r.Unknown })
	row("model calls", func(r *result) any { return r.ModelCalls })
	row("kills", func(r *result) any { return r.Kills })
	row("redeliveries", func(r *result) any { return r.Redeliveries })
	row("jobs parked", func(r *result) any { return r.parked })
	row("seconds", func(r *result) any { return fmt.Sprintf("%.0f", r.seconds) })
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&out, "\nAnswers and effects are counted in the help desk's log: answers per message answered, effects per business object.")
	fmt.Fprintln(&out, "Lost is a message that is neither answered, nor unknown, nor listed as open. Redeliveries are deliveries after a job's first,")
	fmt.Fprintln(&out, "also of jobs that came back later without spending an attempt or a model call.")

	last := o.arms[len(o.arms)-1]
	writeList(&out, "Unknown: nobody knows whether these happened. They are not done again before a person says.", results[last].unknown)
	writeList(&out, "Messages without an answer:", results[last].silent)
	writeTranscript(&out, last, results[last])
	_, err := out.WriteTo(w)
	return err
}

// writeList shows what a person has to look at.
func writeList(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", title)
	for _, l := range lines {
		fmt.Fprintln(w, "  "+l)
	}
}

// line is one line of a transcript.
type line struct {
	at   time.Time
	text string
}

// writeTranscript shows the conversation to which most different things happened.
func writeTranscript(w io.Writer, arm string, r *result) {
	id := eventful(r)
	if id == "" {
		return
	}
	var (
		lines    []line
		answered = map[string]int{}
		acted    = map[[2]string]int{}
	)
	for _, entry := range r.entries {
		if entry.Conversation != id {
			continue
		}
		var text string
		switch entry.Did {
		case provider.Received:
			text = fmt.Sprintf("customer  %s: %s", short(entry.Message), entry.Text)
		case provider.Replied:
			text = "bot       " + entry.Text + "  [" + marks(entry.Answers, answered) + "]"
		case provider.Acted:
			key := [2]string{entry.Kind, entry.Object}
			text = fmt.Sprintf("action    %s: %s", entry.Kind, entry.Object)
			if acted[key]++; acted[key] > 1 {
				text += "  <- AGAIN"
			}
		}
		lines = append(lines, line{entry.At, text})
	}
	for _, note := range r.notes {
		if note.Conversation == id {
			lines = append(lines, line{note.At, fmt.Sprintf("            %s: %s", short(note.Message), note.Text)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	fmt.Fprintf(w, "\nConversation %s, %s fencedrun:\n\n", id, arm)
	for _, l := range lines {
		fmt.Fprintf(w, "%6.2f  %s\n", l.at.Sub(r.began).Seconds(), strings.ReplaceAll(l.text, "\n", " "))
	}
}

// marks names the messages that a reply answers, and which of them it answers again.
func marks(ids []string, answered map[string]int) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = short(id)
		if answered[id]++; answered[id] > 1 {
			names[i] += " AGAIN"
		}
	}
	return "answers " + strings.Join(names, ", ")
}

// short leaves the conversation out of a message's id.
func short(message string) string { return message[strings.LastIndexByte(message, '/')+1:] }

// eventful picks a conversation: the one with the most kinds of events, then with the most events.
func eventful(r *result) string {
	kinds, counts := map[string]map[string]bool{}, map[string]int{}
	for _, note := range r.notes {
		kind, _, _ := strings.Cut(note.Text, " ")
		if kinds[note.Conversation] == nil {
			kinds[note.Conversation] = map[string]bool{}
		}
		kinds[note.Conversation][kind] = true
		counts[note.Conversation]++
	}
	best := ""
	if len(r.entries) > 0 {
		best = r.entries[0].Conversation
	}
	for _, id := range order(r.entries) {
		if len(kinds[id]) > len(kinds[best]) || len(kinds[id]) == len(kinds[best]) && counts[id] > counts[best] {
			best = id
		}
	}
	return best
}

// order returns the conversations in the order in which they began.
func order(entries []provider.Entry) []string {
	var ids []string
	seen := map[string]bool{}
	for _, entry := range entries {
		if !seen[entry.Conversation] {
			seen[entry.Conversation] = true
			ids = append(ids, entry.Conversation)
		}
	}
	return ids
}

package operator

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

type historyDoc struct {
	Conversation string       `json:"conversation"`
	LedgerTime   string       `json:"ledger_time"`
	Runs         []runDoc     `json:"runs"`
	Effects      []effectDoc  `json:"effects"`
	Messages     []messageDoc `json:"messages"`
	Reports      []reportDoc  `json:"reports"`
}

type runsDoc struct {
	Conversation string   `json:"conversation"`
	LedgerTime   string   `json:"ledger_time"`
	Runs         []runDoc `json:"runs"`
}

func newHistory(a *app) *cobra.Command {
	p := &a.place
	cmd := &cobra.Command{
		Use:   "history CONVERSATION [flags]",
		Short: "list what the ledger remembers of a conversation",
		Long: `Lists what the ledger remembers of a conversation, each in the order in which it came: the runs
(one for each job), the effects, the messages of customers, and the reports of writes that
something else made. What was purged is not in it.

"fencedrun why" tells the same as a story; "fencedrun status" shows one effect call by call.`,
		Example: `  fencedrun history thread-7
  fencedrun history thread-7 --json | jq '.effects[] | {intent, key, state}'`,
		Annotations: map[string]string{exitCodes: `  0  here it is
  1  the ledger does not know the conversation
  2  it could not run`},
		Args: arguments("CONVERSATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				h, err := known(ctx, k, args[0])
				if err != nil {
					return err
				}
				all := effectsOf(args[0], h)
				return a.show(historyOf(args[0], h, all), func(s *screen) { s.history(args[0], h, all) })
			})
		},
	}
	return cmd
}

func newRuns(a *app) *cobra.Command {
	p := &a.place
	cmd := &cobra.Command{
		Use:   "runs CONVERSATION [flags]",
		Short: "list the runs of a conversation: who is at work, who is parked",
		Long: `Lists the runs of a conversation, the oldest first. A run is one job's right to write to it; a job
that is delivered again is the same run. "At work" is a run whose lease has not lapsed; "parked"
is one that was stopped for a person or a probe, with the reason: its job waits in the queue to be
run again.

The columns RUN are what "fencedrun cancel" takes.`,
		Example: `  fencedrun runs thread-7
  fencedrun runs thread-7 --json | jq '.runs[] | select(.live)'`,
		Annotations: map[string]string{exitCodes: `  0  here they are
  1  the ledger does not know the conversation
  2  it could not run`},
		Args: arguments("CONVERSATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				h, err := known(ctx, k, args[0])
				if err != nil {
					return err
				}
				whole := historyOf(args[0], h, nil)
				doc := runsDoc{Conversation: whole.Conversation, LedgerTime: whole.LedgerTime, Runs: whole.Runs}
				return a.show(doc, func(s *screen) {
					s.runs(h)
					s.next(whyCommand(args[0]))
				})
			})
		},
	}
	return cmd
}

// known returns the history of a conversation that the ledger knows.
func known(ctx context.Context, k *runs.Keeper, conversation string) (runs.History, error) {
	h, err := k.History(ctx, conversation)
	if err == nil && h.Head == nil {
		err = refusef("the ledger does not know the conversation %s\nIs it spelt as the service spells it? Has it another --namespace? What is old is purged",
			shell.Word(conversation))
	}
	return h, err
}

func effectsOf(conversation string, h runs.History) []target {
	all, ids := make([]target, len(h.Effects)), make([]string, len(h.Effects))
	for i, e := range h.Effects {
		all[i], ids[i] = target{conversation: conversation, effect: e, now: h.Now}, e.ID
	}
	shorten(all, ids)
	return all
}

func historyOf(conversation string, h runs.History, effects []target) historyDoc {
	doc := historyDoc{
		Conversation: conversation, LedgerTime: instant(h.Now), Runs: []runDoc{}, Effects: []effectDoc{}, Messages: []messageDoc{}, Reports: []reportDoc{},
	}
	live := alive(h)
	for _, r := range h.Runs {
		doc.Runs = append(doc.Runs, runOf(r, live))
	}
	for _, t := range effects {
		doc.Effects = append(doc.Effects, describe(conversation, t.effect, h.Now, t.short))
	}
	for _, in := range h.Inbound {
		doc.Messages = append(doc.Messages, messageOf(in, h))
	}
	for _, r := range h.Reports {
		doc.Reports = append(doc.Reports, reportOf(r))
	}
	return doc
}

func (s *screen) history(conversation string, h runs.History, effects []target) {
	s.runs(h)
	s.printf("\n")
	s.effects(effects)
	s.printf("\n")
	s.messages(h, effects)
	s.printf("\n")
	s.reports(h)
	next := []string{whyCommand(conversation)}
	for _, t := range effects {
		if unresolved(t.effect) {
			next = append(next, "fencedrun status "+t.short)
			break
		}
	}
	s.next(next...)
}

func (s *screen) title(n int, one, many string) { s.printf("%s\n", s.bold(plural(n, one, many))) }

func (s *screen) runs(h runs.History) {
	s.title(len(h.Runs), "run", "runs")
	if len(h.Runs) == 0 {
		return
	}
	live := alive(h)
	t := table{columns: []column{{"RUN", true}, {"STATE", true}, {"DELIVERY", true}, {"ORDER", false}, {"MESSAGES", false}, {"BEGUN", true}}}
	for _, r := range h.Runs {
		order := "-"
		if r.Order.Source != "" {
			order = line(r.Order.Source) + " " + strconv.FormatInt(r.Order.Number, 10)
		}
		t.add(runName(r.Key), runState(r, live, h.Now), strconv.FormatInt(r.Delivery.Number, 10), order, orDash(line(strings.Join(r.Inbound, ", "))), ago(r.BegunAt, h.Now))
	}
	t.write(s)
}

func (s *screen) effects(all []target) {
	s.title(len(all), "effect", "effects")
	if len(all) == 0 {
		return
	}
	t := table{columns: []column{{"EFFECT", true}, {"WHAT", false}, {"STATE", true}, {"CALLS", true}, {"BY", false}, {"CLAIMED", true}, {"SUMMARY", false}}}
	for _, x := range all {
		c := x.effect.Deciding()
		by := line(c.Run.ID)
		if c.Run == (fence.RunKey{}) {
			by = line(c.By)
		}
		t.add(x.short, title(x.effect), stateName(c.State), strconv.Itoa(len(x.effect.Calls)), by, ago(c.At, x.now), orDash(line(c.Summary)))
	}
	t.write(s)
}

func (s *screen) messages(h runs.History, effects []target) {
	s.title(len(h.Inbound), "message", "messages")
	if len(h.Inbound) == 0 {
		return
	}
	short := map[string]string{}
	for _, t := range effects {
		short[t.effect.ID] = t.short
	}
	t := table{columns: []column{{"MESSAGE", true}, {"STATE", false}, {"FIRST NAMED", true}, {"LAST NAMED", true}}}
	for _, in := range h.Inbound {
		t.add(shell.Word(in.ID), messageState(in, h, short), ago(in.FirstAt, h.Now), ago(in.NamedAt, h.Now))
	}
	t.write(s)
}

// messageState says what became of a message.
func messageState(in *fence.Inbound, h runs.History, short map[string]string) string {
	d := messageOf(in, h)
	switch d.State {
	case "answered":
		by := make([]string, len(in.Answered))
		for i, a := range in.Answered {
			by[i] = "report " + line(a.ID)
			if !a.Report {
				by[i] = line(a.Intent) + " " + orDash(short[a.ID])
			}
		}
		return "answered by " + strings.Join(by, ", ")
	case "dismissed":
		return "dismissed: " + line(in.Dismissed)
	case "held":
		return "held by " + orDash(short[d.HeldBy]) + ", which is unresolved"
	}
	return d.State
}

func (s *screen) reports(h runs.History) {
	s.title(len(h.Reports), "report", "reports")
	if len(h.Reports) == 0 {
		return
	}
	t := table{columns: []column{{"REPORT", true}, {"INTENT", false}, {"ANSWERS", false}, {"BY", false}, {"AT", true}, {"SUMMARY", false}}}
	for _, r := range h.Reports {
		summary := orDash(line(r.Summary))
		if r.Echo != "" {
			summary = "echo of " + r.Echo[:min(len(r.Echo), shortPrinted)] + ": " + summary
		}
		t.add(shell.Word(r.ID), orDash(line(r.Intent)), orDash(line(strings.Join(r.Answers, ", "))), orDash(line(r.By)), ago(r.At, h.Now), summary)
	}
	t.write(s)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

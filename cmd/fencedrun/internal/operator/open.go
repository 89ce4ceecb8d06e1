package operator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

type openDoc struct {
	Open []openMessageDoc `json:"open"`
	More bool             `json:"more"` // there may be others beyond --limit
}

type openMessageDoc struct {
	Conversation string    `json:"conversation"`
	ID           string    `json:"id"`
	NamedAt      string    `json:"named_at"`
	AgeSeconds   float64   `json:"age_seconds"` // since a job last named it
	Run          runKeyDoc `json:"run"`         // the last run that named it
	RunState     string    `json:"run_state"`
	HeldBy       string    `json:"held_by"` // the unresolved effect that may have answered it
	Todo         string    `json:"todo"`
}

func newOpen(a *app) *cobra.Command {
	p := &a.place
	older := duration(10 * time.Minute)
	var limit int
	cmd := &cobra.Command{
		Use:   "open [flags]",
		Short: "list the messages that nobody answered and nobody is at work on",
		Long: `Lists the messages of customers that are open: a job named them, no effect or report answers
them, and nobody dismissed them. Only those that no job has named for ten minutes (--older-than)
and on whose conversation no run is at work: the others are probably being answered.

For each: the run that named it last and where that is in its life. Run its job again, answer by
hand and say so with "fencedrun report", or close it with "fencedrun dismiss". A message that an
effect of unknown outcome may have answered is decided by "fencedrun resolve".`,
		Example: `  fencedrun open
  fencedrun open --older-than 1h --limit 0
  fencedrun open --json | jq -r '.open[] | [.conversation, .id] | @tsv'`,
		Annotations: map[string]string{exitCodes: `  0  no message is open
  1  some are
  2  it could not run`},
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit is negative: %d", limit)
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				doc, err := unattended(ctx, k, time.Duration(older), limit)
				if err != nil {
					return err
				}
				err = a.show(doc, func(s *screen) { s.open(doc, time.Duration(older)) })
				if err == nil && len(doc.Open) > 0 {
					err = errFound
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.Var(&older, "older-than", "only what no job has named for so long: 10m, 12h, 2d")
	f.IntVar(&limit, "limit", 50, "list at most `N`, the longest open (0: all)")
	return cmd
}

// unattended finds the open messages of conversations on which nobody is at work. The state of
// their runs is asked for each conversation, so a limit bounds that too.
func unattended(ctx context.Context, k *runs.Keeper, older time.Duration, limit int) (openDoc, error) {
	doc := openDoc{Open: []openMessageDoc{}}
	seen := map[string]runs.History{}
	var failed error
	err := k.EachOpen(ctx, older, func(m runs.OpenMessage) bool {
		if limit > 0 && len(doc.Open) == limit {
			doc.More = true
			return false
		}
		h, ok := seen[m.Conversation]
		if !ok {
			if h, failed = k.History(ctx, m.Conversation); failed != nil {
				return false
			}
			if len(seen) == keptHistories {
				clear(seen)
			}
			seen[m.Conversation] = h
		}
		if len(h.Live) == 0 {
			doc.Open = append(doc.Open, openOf(m, h))
		}
		return true
	})
	return doc, cmp.Or(failed, err)
}

// keptHistories bounds the conversations that open remembers, because several messages may be of one.
const keptHistories = 100

func openOf(m runs.OpenMessage, h runs.History) openMessageDoc {
	d := openMessageDoc{Conversation: m.Conversation, ID: m.ID, NamedAt: instant(fence.Millis(m.Named.UnixMilli())), AgeSeconds: m.Age.Seconds()}
	var last *fence.Run
	for _, r := range h.Runs {
		if slices.Contains(r.Inbound, m.ID) && (last == nil || r.BegunAt >= last.BegunAt) {
			last = r
		}
	}
	d.RunState = "refused, or purged"
	if last != nil {
		d.Run, d.RunState = runKeyDoc(last.Key), runState(last, alive(h), h.Now)
	}
	switch u := holder(h, m.ID); {
	case u != nil && u.State == fence.Pending:
		d.HeldBy, d.Todo = u.Effect, "wait: a call that answers it may be under way"
	case u != nil:
		d.HeldBy, d.Todo = u.Effect, "resolve "+u.Effect[:min(len(u.Effect), shortPrinted)]+", which may have answered it"
	case last != nil && last.State == fence.RunActive && len(h.Head.Unresolved) > 0:
		d.Todo = "settle what is unknown on the conversation first, then run its job again if its queue has stopped it"
	case last != nil && last.State == fence.RunActive && last.Parked == "":
		d.Todo = "its queue should deliver its job again; if it does not, run it"
	case last != nil && last.State == fence.RunActive:
		d.Todo = "run its job again: it was stopped"
	default:
		d.Todo = "answer it and report that, or dismiss it"
	}
	return d
}

func (s *screen) open(doc openDoc, older time.Duration) {
	if len(doc.Open) == 0 {
		is := "is open"
		if older > 0 {
			is = "has been open for " + span(older)
		}
		s.printf("No message %s with nobody at work on it.\n", is)
		return
	}
	s.printf("%s\n", s.bold(plural(len(doc.Open), "message that nobody answered", "messages that nobody answered")))
	for _, m := range doc.Open {
		s.printf("\n%s  on %s, last named %s ago\n", s.bold(shell.Word(m.ID)), shell.Word(m.Conversation), span(time.Duration(m.AgeSeconds)*time.Second))
		if m.Run != (runKeyDoc{}) {
			s.field("named by", "run "+runName(fence.RunKey(m.Run)))
		}
		s.field("which is", m.RunState)
		s.field("to do", m.Todo)
	}
	if doc.More {
		s.printf("\nThere may be more: fencedrun open --limit 0\n")
	}
	m := doc.Open[0]
	next := []string{whyCommand(m.Conversation)}
	if m.HeldBy != "" {
		next = append(next, "fencedrun status "+m.HeldBy[:min(len(m.HeldBy), shortPrinted)])
	} else {
		next = append(next,
			shell.Command("fencedrun report", []string{m.Conversation, "ID"}, "--intent reply", "--answers "+shell.Item(m.ID))+"   # ID: of your answer",
			shell.Command("fencedrun dismiss", []string{m.Conversation, m.ID}, `--why "needs no answer"`))
	}
	s.next(next...)
}

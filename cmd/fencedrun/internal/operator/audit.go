package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

type auditDoc struct {
	Unknown []effectDoc `json:"unknown"` // with --all also pending ones
	Total   int         `json:"total"`   // also those beyond --limit
	Pending int         `json:"pending"` // in time, listed or not
}

func newAudit(a *app) *cobra.Command {
	p := &a.place
	var older duration
	var limit int
	var all bool
	cmd := &cobra.Command{
		Use:   "audit [flags]",
		Short: "list the effects whose outcome nobody knows",
		Long: `Lists the effects whose outcome is unknown: a worker claimed one, and then nobody said what
became of it, because the worker died, the provider's answer was lost, or a deadline passed.
Such an effect is never called again by itself. It stands in the way of others like it until a
probe, late evidence, the provider's report or a person decides it.

For each: what it is, on which conversation, since when, who claimed it, and what to do. Look it
up at the provider by its idempotency key, then say what you found with "fencedrun resolve".

An effect whose claim is still in time is pending, not unknown; --all lists those too.`,
		Example: `  fencedrun audit
  fencedrun audit --older-than 10m          as an alert: nothing that may settle itself soon
  fencedrun audit --all --limit 0           also what is under way, and without an end
  fencedrun audit --json | jq -r '.unknown[].effect'`,
		Annotations: map[string]string{exitCodes: `  0  nothing is unknown
  1  something is (with --all: or pending)
  2  it could not run`},
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit is negative: %d", limit)
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				doc, shown, err := audit(ctx, k, time.Duration(older), all, limit)
				if err != nil {
					return err
				}
				return a.audit(doc, shown, all)
			})
		},
	}
	f := cmd.Flags()
	f.Var(&older, "older-than", "only what was claimed at least so long ago: 10m, 12h, 2d")
	f.Lookup("older-than").DefValue = ""
	f.IntVar(&limit, "limit", 20, "list at most `N`, the oldest (0: all)")
	f.BoolVar(&all, "all", false, "also list what is pending and in time")
	return cmd
}

// audit counts what is unresolved and keeps what is shown: of the rest nothing but its id.
func audit(ctx context.Context, k *runs.Keeper, older time.Duration, all bool, limit int) (auditDoc, []target, error) {
	doc := auditDoc{Unknown: []effectDoc{}}
	var shown []target
	var ids []string
	err := k.EachUnresolved(ctx, older, func(u runs.UnresolvedEffect) bool {
		ids = append(ids, u.Effect.ID)
		if u.Effect.State() == fence.Pending {
			doc.Pending++
			if !all {
				return true
			}
		}
		doc.Total++
		if limit == 0 || len(shown) < limit {
			shown = append(shown, targetOf(u))
		}
		return true
	})
	shorten(shown, ids)
	for _, t := range shown {
		doc.Unknown = append(doc.Unknown, describe(t.conversation, t.effect, t.now, t.short))
	}
	return doc, shown, err
}

func (a *app) audit(doc auditDoc, shown []target, all bool) error {
	err := a.show(doc, func(s *screen) {
		if doc.Total == 0 {
			s.printf("Nothing is unknown.%s\n", pendingToo(doc.Pending))
			return
		}
		what := plural(doc.Total, "effect with an unknown outcome", "effects with an unknown outcome")
		if all {
			what = plural(doc.Total, "unresolved effect", "unresolved effects")
		}
		s.printf("%s", s.bold(what))
		if len(shown) < doc.Total {
			s.printf(", the oldest %d:", len(shown))
		}
		s.printf("\n")
		for _, t := range shown {
			s.printf("\n")
			s.brief(t)
		}
		if !all && doc.Pending > 0 {
			s.printf("\n%s\n", strings.TrimSpace(pendingToo(doc.Pending)))
		}
		if len(shown) < doc.Total {
			s.printf("\n%d more: fencedrun audit --limit 0\n", doc.Total-len(shown))
		}
		if len(shown) > 0 {
			first := shown[0]
			next := []string{whyCommand(first.conversation)}
			if first.effect.State() != fence.Pending { // of one that is under way there is nothing to decide yet
				next = append(next,
					happenedCommand(first.short)+"   # and --value 'JSON' if its job uses the value",
					notCommand(first.short))
			}
			s.next(next...)
		}
	})
	if err == nil && doc.Total > 0 {
		err = errFound
	}
	return err
}

func pendingToo(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %s in time: fencedrun audit --all", plural(n, "effect is pending,", "effects are pending,"))
}

// brief shows an unresolved effect in a few lines.
func (s *screen) brief(t target) {
	e, c := t.effect, t.effect.Deciding()
	state := stateName(c.State) + ", claimed " + ago(c.At, t.now)
	s.printf("%s  %s\n", s.bold(t.short), s.bold(cut(title(e), width-len(t.short)-3)))
	s.field("state", strings.Replace(state, stateName(c.State), s.state(c.State), 1))
	s.field("conversation", shell.Word(t.conversation))
	s.field("summary", quoted(c.Summary, width-20))
	s.field("claimed by", owner(c))
	s.field("error", head(c.Error, width-18))
	if e.Probing.Tries > 0 {
		s.field("probes", probes(e, t.now))
	}
	s.field("provider key", key.IdempotencyKey(e.ID))
	s.field("to do", whatToDo(e, t.now))
}

func probes(e *fence.Effect, now fence.Millis) string {
	text := plural(e.Probing.Tries, "question", "questions") + " put to the provider"
	if e.Probing.Last > 0 {
		text += ", answered " + ago(e.Probing.Last, now)
	}
	if e.Probing.Note != "" {
		text += ": " + line(e.Probing.Note)
	}
	return cut(text, width-18)
}

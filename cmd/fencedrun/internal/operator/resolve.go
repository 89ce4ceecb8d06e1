package operator

import (
	"context"
	"errors"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/story"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/runs"
)

type resolveDoc struct {
	Resolved bool      `json:"resolved"`
	Refused  string    `json:"refused"` // why not
	Retry    float64   `json:"retry_after_seconds"`
	Before   effectDoc `json:"before"`
	After    effectDoc `json:"after"`
}

// The verdicts of resolve.
const (
	verdictHappened = "happened"
	verdictNot      = "did-not-happen"
)

func newResolve(a *app) *cobra.Command {
	p := &a.place
	var v runs.Resolution
	var conversation, value string
	cmd := &cobra.Command{
		Use:   "resolve EFFECT happened|did-not-happen --note TEXT [flags]",
		Short: "say what became of an effect: your verdict",
		Long: `Decides an effect whose outcome is unknown. Look it up at the provider first: the idempotency key
that was sent with it is what "fencedrun audit" and "fencedrun status" print.

  happened        It is recorded as committed and is never called again. Jobs that ask for it
                  are told that it is done; those that need its value get --value, or an error
                  that says that it was not kept.
  did-not-happen  It is recorded as failed, and one more call is allowed. Run its job again; it
                  makes the call.

EFFECT is the effect's id or its idempotency key, or a beginning of either that no other
unresolved effect has. The effect is shown before and after.

It is refused while a claim's deadline has not passed: the call may be under way. --force decides
all the same; if the call then succeeds after "did-not-happen", a duplicate is reported. A
committed effect never becomes failed.`,
		Example: `  fencedrun resolve 8k2jq0s1 happened --note "it is in the bank's books" --ref re_77
  fencedrun resolve 8k2jq0s1 happened --note "sent 03:12" --value '{"message":"msg_9"}'
  fencedrun resolve fr1_8k2jq0s1 did-not-happen --note "no such refund at 03:20 UTC"
  fencedrun resolve 8k2jq0s1 did-not-happen --note "reversed" --force --conversation thread-7`,
		Annotations: map[string]string{exitCodes: `  0  it is as you said, now or before
  1  refused, not found, or more than one effect: the text says why and what to do
  2  it could not run`},
		Args:              arguments("EFFECT", "happened|did-not-happen"),
		ValidArgsFunction: completeVerdict(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[1] {
			case verdictHappened:
				v.Happened = true
			case verdictNot:
			default:
				return usagef("%q is no verdict: say %s or %s", line(args[1]), verdictHappened, verdictNot)
			}
			if v.Note == "" {
				return usagef("--note is missing: say how you know, for whoever reads this later")
			}
			if err := replaced(v); err != nil {
				return err
			}
			if cmd.Flags().Changed("value") {
				if !v.Happened {
					return usagef("--value means nothing with %s", verdictNot)
				}
				v.Value = []byte(value)
			}
			if err := orUser(&v.By); err != nil {
				return err
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				return a.resolve(ctx, k, args[0], conversation, v)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.Note, "note", "", "how you know: `TEXT` for whoever reads it later; required")
	f.StringVar(&v.Reference, "ref", "", "the provider's reference, if you found one")
	f.StringVar(&v.By, "by", "", "who decides (default: you, as the system knows you)")
	f.StringVar(&value, "value", "", "the effect's value as `JSON`, for the jobs that ask for it; only with happened")
	f.BoolVar(&v.Force, "force", false, "decide also while the call may be under way, or against what is known to have failed")
	f.StringVar(&conversation, "conversation", "", "look for EFFECT among all effects of this conversation, settled ones too")
	return cmd
}

// What stands in printed commands for a person to replace; stories have story.ToReplace.
const (
	noteToWrite = "what you saw"
	refToWrite  = "PROVIDERS_ID"
)

func happenedCommand(effect string) string {
	return "fencedrun resolve " + effect + " " + verdictHappened + ` --note "` + noteToWrite + `" --ref ` + refToWrite
}

func notCommand(effect string) string {
	return "fencedrun resolve " + effect + " " + verdictNot + ` --note "` + noteToWrite + `"`
}

// replaced refuses what should have been replaced. Printed commands are pasted by tired people, and a
// verdict may allow a second payment.
func replaced(v runs.Resolution) error {
	if note := strings.TrimSpace(v.Note); note == noteToWrite || note == story.ToReplace {
		return usagef("--note %q is what stands there to be replaced: say how you know", note)
	}
	if v.Reference == refToWrite || v.Reference == story.ToReplace {
		return usagef("--ref %q is what stands there to be replaced: write the provider's reference, or leave --ref out", v.Reference)
	}
	return nil
}

func completeVerdict(p *place) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	effects := completeEffects(p)
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return []string{verdictHappened + "\tit did: never call it again", verdictNot + "\tit did not: one more call is allowed"}, cobra.ShellCompDirectiveNoFileComp
		}
		return effects(cmd, args, text)
	}
}

// orUser fills in who is at the keyboard.
func orUser(by *string) error {
	if *by == "" {
		*by = os.Getenv("SUDO_USER")
	}
	if *by == "" {
		u, err := user.Current()
		if err != nil || u.Username == "" {
			return usagef("--by is missing, and the system does not know who you are")
		}
		*by = u.Username
	}
	return nil
}

func (a *app) resolve(ctx context.Context, k *runs.Keeper, text, conversation string, v runs.Resolution) error {
	t, err := find(ctx, k, text, conversation)
	if err != nil {
		return err
	}
	before, after, err := k.Resolve(ctx, t.conversation, t.effect.ID, v)
	var refused *runs.NotResolvedError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	if before == nil {
		return refusef("%s is gone: it was purged meanwhile", t.short)
	}
	h, err := k.History(ctx, t.conversation)
	if err != nil {
		return err
	}
	doc := resolveDoc{
		Resolved: refused == nil, Before: describe(t.conversation, before, h.Now, t.short), After: describe(t.conversation, after, h.Now, t.short),
	}
	if refused != nil {
		doc.Refused, doc.Retry = refused.Why, refused.RetryAfter.Seconds()
	}
	err = a.show(doc, func(s *screen) {
		s.printf("%s  %s  on %s\n", s.bold(t.short), cut(title(before), 60), shell.Word(t.conversation))
		s.field("before", s.verdict(before))
		if refused != nil {
			s.field("refused", s.red(refused.Why))
			s.next(afterRefusal(t, refused, text, v)...)
			return
		}
		s.field("after", s.verdict(after))
		switch {
		case before == after:
			s.field("", "It was so before: nothing is changed.")
		case before.State() == after.State():
			s.field("", "It was so before; its value is new.")
		}
		if c := after.Deciding(); c.State == fence.Committed && c.NoValue {
			s.field("value", "none; a job whose handler uses it is given up (value_not_kept). To add it:")
			s.field("", s.program+" resolve "+t.short+" happened --conversation "+shell.Word(t.conversation)+` --note "…" --value 'JSON'`)
		}
		s.next(afterVerdict(h, after)...)
	})
	if err == nil && refused != nil {
		err = errFound
	}
	return err
}

func (s *screen) verdict(e *fence.Effect) string {
	c := e.Deciding()
	text := s.state(c.State)
	if how := outcome(c); how != "" {
		text += ", " + how
	}
	if c.Note != "" {
		text += ": " + quoted(c.Note, 60)
	}
	return text
}

func afterRefusal(t target, refused *runs.NotResolvedError, text string, v runs.Resolution) []string {
	again := "fencedrun resolve " + shell.Word(text) + " " + verdictNot
	if v.Happened {
		again = "fencedrun resolve " + shell.Word(text) + " " + verdictHappened
	}
	if refused.RetryAfter > 0 {
		return []string{
			"wait " + span(refused.RetryAfter.Round(time.Second)) + ", then the same again: the call may be under way",
			again + " --force …   if you are sure that it is not",
		}
	}
	next := []string{"fencedrun status " + t.short + " --conversation " + shell.Word(t.conversation)}
	if t.effect.State() == fence.Failed {
		next = append(next, again+" --force …   if you know better")
	}
	return next
}

// afterVerdict says what is to be done with the job.
func afterVerdict(h runs.History, e *fence.Effect) []string {
	var next []string
	for _, r := range h.Runs {
		mine := false
		for i := range e.Calls {
			mine = mine || e.Calls[i].Run == r.Key
		}
		if mine && r.State == fence.RunActive && r.Parked != "" {
			next = append(next, "run the job "+r.Key.ID+" of "+r.Key.Queue+" again in its queue: it is parked, and waits for this")
		} else if mine && r.State == fence.RunActive && e.State() == fence.Failed {
			next = append(next, "run the job "+r.Key.ID+" of "+r.Key.Queue+" again in its queue, unless it comes back by itself")
		}
	}
	return append(next, whyCommand(h.Head.Conversation), "fencedrun audit")
}

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

// keyMark begins every idempotency key; an effect's id follows it.
var keyMark = strings.TrimSuffix(key.IdempotencyKey("x"), "x")

// shortest is how much of an id must be given, and how much is printed at least.
const (
	shortest     = 4
	shortPrinted = 8
)

// target is an effect that was asked for.
type target struct {
	conversation string
	effect       *fence.Effect
	short        string
	now          fence.Millis
}

// find returns the effect whose id, or whose idempotency key, begins with text: among those of a
// conversation, or among all that are unresolved.
func find(ctx context.Context, k *runs.Keeper, text, conversation string) (target, error) {
	prefix := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), keyMark)
	if len(prefix) < shortest {
		return target{}, refusef("%q is too short: give at least %d characters of the effect's id", line(text), shortest)
	}
	matching, err := candidates(ctx, k, conversation, func(id string) bool { return strings.HasPrefix(id, prefix) })
	if err != nil {
		return target{}, err
	}
	switch {
	case len(matching) == 1:
		return matching[0], nil
	case len(matching) > 1:
		var b strings.Builder
		fmt.Fprintf(&b, "%s begins the id of %d effects: give more of it", prefix, len(matching))
		for _, t := range matching[:min(len(matching), 10)] {
			fmt.Fprintf(&b, "\n  %s  %s", t.effect.ID, cut(title(t.effect)+" on "+shell.Word(t.conversation), width-44))
		}
		return target{}, refusef("%s", b.String())
	case conversation != "":
		return target{}, refusef("no effect of conversation %s begins with %s\n%s lists them", shell.Word(conversation), head(prefix, 60), historyCommand(conversation))
	}
	return target{}, refusef("no unresolved effect begins with %s\nIf it was settled meanwhile, say where: --conversation CONVERSATION. "+
		"fencedrun audit --all lists what is unresolved", head(prefix, 60))
}

// candidates are those effects of a conversation, or of all that are unresolved, whose id is wanted, with
// the shortest prefixes that tell them apart from all others.
func candidates(ctx context.Context, k *runs.Keeper, conversation string, wanted func(id string) bool) (found []target, err error) {
	var ids []string
	if conversation != "" {
		var h runs.History
		h, err = k.History(ctx, conversation)
		for _, e := range h.Effects {
			ids = append(ids, e.ID)
			if wanted(e.ID) {
				found = append(found, target{conversation: conversation, effect: e, now: h.Now})
			}
		}
	} else {
		err = k.EachUnresolved(ctx, 0, func(u runs.UnresolvedEffect) bool {
			ids = append(ids, u.Effect.ID)
			if wanted(u.Effect.ID) {
				found = append(found, targetOf(u))
			}
			return true
		})
	}
	shorten(found, ids)
	return found, err
}

func targetOf(u runs.UnresolvedEffect) target {
	return target{conversation: u.Conversation, effect: u.Effect, now: fence.Millis(u.Since.Add(u.Age).UnixMilli())}
}

// shorten finds for each effect the shortest prefix that no other of ids has.
func shorten(all []target, ids []string) {
	slices.Sort(ids)
	for i := range all {
		id := all[i].effect.ID
		n := shortPrinted
		at, _ := slices.BinarySearch(ids, id)
		if at > 0 {
			n = max(n, common(ids[at-1], id)+1)
		}
		for at < len(ids) && ids[at] == id {
			at++
		}
		if at < len(ids) {
			n = max(n, common(ids[at], id)+1)
		}
		all[i].short = id[:min(n, len(id))]
	}
}

func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// title names an effect the way people do: by its intent and key.
func title(e *fence.Effect) string { return line(e.Intent) + " " + line(e.Key) }

// completeEffects offers the shell what is unresolved.
func completeEffects(p *place) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offers []string
		err := p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
			n := 0
			all, err := candidates(ctx, k, "", func(string) bool { n++; return n <= 50 })
			for _, t := range all {
				offers = append(offers, t.short+"\t"+cut(title(t.effect)+" on "+line(t.conversation), 60))
			}
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}

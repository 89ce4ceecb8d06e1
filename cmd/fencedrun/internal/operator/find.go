package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	all, err := candidates(ctx, k, conversation)
	if err != nil {
		return target{}, err
	}
	matching := slices.DeleteFunc(slices.Clone(all), func(t target) bool { return !strings.HasPrefix(t.effect.ID, prefix) })
	switch {
	case len(matching) == 1:
		return matching[0], nil
	case len(matching) > 1:
		var b strings.Builder
		fmt.Fprintf(&b, "%s begins the id of %d effects: give more of it", prefix, len(matching))
		for _, t := range matching[:min(len(matching), 10)] {
			fmt.Fprintf(&b, "\n  %s  %s", t.effect.ID, cut(title(t.effect)+" on "+shell(t.conversation), width-44))
		}
		return target{}, refusef("%s", b.String())
	case conversation != "":
		return target{}, refusef("no effect of conversation %s begins with %s\nfencedrun history %s lists them", shell(conversation), head(prefix, 60), argument(conversation))
	}
	return target{}, refusef("no unresolved effect begins with %s\nIf it was settled meanwhile, say where: --conversation CONVERSATION. "+
		"fencedrun audit --all lists what is unresolved", head(prefix, 60))
}

// candidates are the effects of a conversation, or all that are unresolved, with the shortest
// prefixes that tell them apart.
func candidates(ctx context.Context, k *runs.Keeper, conversation string) (all []target, err error) {
	if conversation != "" {
		h, err := k.History(ctx, conversation)
		if err != nil {
			return nil, err
		}
		for _, e := range h.Effects {
			all = append(all, target{conversation: conversation, effect: e, now: h.Now})
		}
	} else {
		found, err := k.Unresolved(ctx, 0, 0)
		if err != nil {
			return nil, err
		}
		all = targets(found)
	}
	shorten(all)
	return all, nil
}

func targets(found []runs.UnresolvedEffect) []target {
	all := make([]target, len(found))
	for i, u := range found {
		now := fence.Millis(u.Since.Add(u.Age).UnixMilli())
		all[i] = target{conversation: u.Conversation, effect: u.Effect, now: now}
	}
	return all
}

// shorten finds for each effect the shortest prefix that no other has.
func shorten(all []target) {
	ids := make([]string, len(all))
	for i, t := range all {
		ids[i] = t.effect.ID
	}
	slices.Sort(ids)
	need := map[string]int{}
	for i, id := range ids {
		n := shortPrinted
		if i > 0 {
			n = max(n, common(ids[i-1], id)+1)
		}
		if i+1 < len(ids) {
			n = max(n, common(ids[i+1], id)+1)
		}
		need[id] = min(n, len(id))
	}
	for i, t := range all {
		all[i].short = t.effect.ID[:need[t.effect.ID]]
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
			all, err := candidates(ctx, k, "")
			for _, t := range all[:min(len(all), 50)] {
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

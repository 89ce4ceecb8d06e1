package operator

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/runs"
)

type keyDoc struct {
	Namespace      string `json:"namespace"`
	Conversation   string `json:"conversation"`
	Intent         string `json:"intent"`
	Key            string `json:"key"` // canonical JSON
	Effect         string `json:"effect"`
	IdempotencyKey string `json:"idempotency_key"`
}

// isKey reports whether text is a whole idempotency key.
func isKey(text string) bool {
	_, ok := key.EffectOf(text)
	return ok
}

func newKey(a *app) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "key CONVERSATION INTENT KEY [flags]",
		Short: "compute an effect's id and idempotency key; needs no ledger",
		Long: `Computes the id of an effect, and the idempotency key that its provider is given, from what the
handler says: the conversation, the intent, and the key. It asks no ledger.

KEY is JSON, as runs.Key makes it: an object of names with strings, whole numbers and booleans, in
any order. Anything that does not begin with { or " is taken as the string that runs.ID was given,
so a message id needs no quotes.`,
		Example: `  fencedrun key thread-7 refund '{"order":"A-17","line":2}'
  fencedrun key thread-7 reply m17
  fencedrun key thread-7 reply '"m17"'           the same
  fencedrun key thread-7 reply m17 --namespace staging --json`,
		Annotations: map[string]string{exitCodes: `  0  here it is
  2  the key, or a name, is none`},
		Args: arguments("CONVERSATION", "INTENT", "KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			doc, err := keyOf(namespace, args[0], args[1], args[2])
			if err != nil {
				return err
			}
			return a.show(doc, func(s *screen) {
				s.field("effect", doc.Effect)
				s.field("provider key", doc.IdempotencyKey)
				s.field("key", doc.Key)
				s.next("fencedrun status " + doc.Effect[:shortPrinted] + " --conversation " + shell.Word(doc.Conversation))
			})
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "the service's Config.Namespace (default: none)")
	return cmd
}

func keyOf(namespace, conversation, intent, text string) (keyDoc, error) {
	for _, n := range []struct {
		field, value string
		limit        int
	}{{"CONVERSATION", conversation, key.MaxConversation}, {"INTENT", intent, key.MaxIntent}, {"--namespace", namespace, key.MaxConversation}} {
		if n.value == "" && n.field == "--namespace" {
			continue
		}
		if err := key.ValidateName(n.field, n.value, n.limit); err != nil {
			return keyDoc{}, usagef("%s", strings.TrimPrefix(err.Error(), "fencedrun: "))
		}
	}
	k := runs.ID(text)
	err := k.Err()
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, `"`) {
		k, err = runs.ParseKey(text)
	}
	if err != nil {
		return keyDoc{}, usagef("KEY: %s", strings.TrimPrefix(err.Error(), "fencedrun: "))
	}
	id := key.EffectID(namespace, conversation, intent, k)
	return keyDoc{
		Namespace: namespace, Conversation: conversation, Intent: intent, Key: k.Canonical(), Effect: id, IdempotencyKey: key.IdempotencyKey(id),
	}, nil
}

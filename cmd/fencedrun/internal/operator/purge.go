package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/runs"
)

type purgeDoc struct {
	DryRun        bool `json:"dry_run"`
	Runs          int  `json:"runs"`
	Effects       int  `json:"effects"`
	Others        int  `json:"others"`
	Conversations int  `json:"conversations"`
	More          bool `json:"more"` // --limit ended it
}

// purgeBatch is how many records are deleted at a time: a purge is one of many users of the
// ledger.
const purgeBatch = 1000

func newPurge(a *app) *cobra.Command {
	p := &a.place
	older := duration(-1)
	var limit int
	var dry bool
	cmd := &cobra.Command{
		Use:   "purge --older-than AGE [flags]",
		Short: "delete finished records that are past their retention",
		Long: `Deletes finished records: runs that ended with their effects, messages, reports. A record goes when
both are true: its own retention has passed, which the service that wrote it chose
(Config.Retention, 30 days by default), and it was settled, ended or last named at least
--older-than ago. So --older-than can keep records longer, never shorter; 0s means: whatever is
past its retention.

Nothing that is pending, of unknown outcome, or at work is deleted, nor what such a thing still
needs. It may run beside workers, and be interrupted: what is deleted is deleted, and the next
purge goes on. --dry-run asks the same rules and deletes nothing. It does not count
conversations, nor cancels of runs that never came, which go when their retention has passed.

An effect that was purged is forgotten: a job that asks for it again makes it again. Keep the
retention longer than your queue retries.

The database keeps the space for new records. Postgres frees it within the tables when autovacuum
comes by. A SQLite file stays as large as it was: VACUUM, with the workers stopped, shrinks it.`,
		Example: `  fencedrun purge --older-than 30d --dry-run
  fencedrun purge --older-than 30d
  fencedrun purge --older-than 0s --limit 100000       in a nightly job, for a bounded time`,
		Annotations: map[string]string{exitCodes: `  0  it is done, or counted
  2  it could not run, or not to the end`},
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case older < 0:
				return usagef("--older-than is missing: say from which age on, such as 30d; 0s means whatever is past its retention")
			case limit < 0:
				return usagef("--limit is negative: %d", limit)
			}
			return p.with(cmd, func(ctx context.Context, k *runs.Keeper) error {
				doc, err := purge(ctx, k, time.Duration(older), limit, dry)
				if err != nil {
					if doc.total() > 0 {
						err = fmt.Errorf("%w\nUntil then it had purged %s", err, doc.text())
					}
					return err
				}
				return a.show(doc, func(s *screen) { s.purged(doc, time.Duration(older)) })
			})
		},
	}
	f := cmd.Flags()
	f.Var(&older, "older-than", "only what was settled or ended at least so long ago: 12h, 30d; required")
	f.Lookup("older-than").DefValue = ""
	f.BoolVar(&dry, "dry-run", false, "count, and delete nothing")
	f.IntVar(&limit, "limit", 0, "stop after `N` records, or with --dry-run after looking at N (0: at the end)")
	return cmd
}

func purge(ctx context.Context, k *runs.Keeper, older time.Duration, limit int, dry bool) (purgeDoc, error) {
	doc := purgeDoc{DryRun: dry}
	if dry {
		n, err := k.CountPurge(ctx, older, limit)
		doc.add(n)
		return doc, err
	}
	for {
		batch := purgeBatch
		if limit > 0 {
			batch = min(batch, limit-doc.total())
		}
		n, err := k.PurgeOlder(ctx, older, batch)
		doc.add(n)
		if err != nil || !n.More || limit > 0 && doc.total() >= limit {
			return doc, err
		}
	}
}

func (d *purgeDoc) add(n runs.Purged) {
	d.Runs += n.Runs
	d.Effects += n.Effects
	d.Others += n.Others
	d.Conversations += n.Conversations
	d.More = n.More
}

func (d *purgeDoc) total() int { return d.Runs + d.Effects + d.Others }

func (d *purgeDoc) text() string {
	return fmt.Sprintf("%s, %s, %s", plural(d.Runs, "run", "runs"), plural(d.Effects, "effect", "effects"), plural(d.Others, "other record", "other records"))
}

func (s *screen) purged(d purgeDoc, older time.Duration) {
	if d.DryRun {
		s.printf("Would purge %s.\n", d.text())
		if d.More {
			s.printf("It looked at the first of them only, as --limit says.\n")
		}
		if d.total() > 0 {
			s.next("fencedrun purge --older-than " + span(older))
		}
		return
	}
	s.printf("Purged %s, and with the last of them %s.\n", d.text(), plural(d.Conversations, "conversation", "conversations"))
	if d.More {
		s.printf("There may be more: it stopped at --limit.\n")
	}
}

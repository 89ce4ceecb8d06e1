package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/checkup"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

func newDoctor(a *app) *cobra.Command {
	p := &a.place
	var waits, strict bool
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "look for what would hurt: settings of the server, clocks, forgotten records",
		Long: `Looks at the ledger's server, or its file, and at its records, for what would hurt: a server that
evicts keys or forgets claims in a crash, replicas that lag, clocks that disagree, a retention that
the queue's retries outlast, records that nobody looks after. It changes nothing. What it may not
look at it says.

A problem loses what was acknowledged, or stops the service. A warning hurts on a bad day.`,
		Example: `  fencedrun doctor
  fencedrun doctor --strict --json             in a deployment's checks
  fencedrun doctor --retention 45d             your service's Config.Retention`,
		Annotations: map[string]string{exitCodes: `  0  all is well (warnings too, without --strict)
  1  something would hurt
  2  it could not run: no ledger there, or a server out of reach`},
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			r, err := p.checkup(ctx, waits)
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(r)
			} else {
				s := a.screen()
				err = errors.Join(r.WriteText(s, s.colour), s.Flush())
			}
			if worst := r.Worst(); err == nil && (worst == checkup.Problem || strict && worst == checkup.Warning) {
				err = errFound
			}
			return err
		},
	}
	p.retentionFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&waits, "waits", false, "the service sets redisledger's Config.Wait")
	f.BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	return cmd
}

// checkup looks at the ledger's server and at its records. An error says that there was nothing to
// look at.
func (p *place) checkup(ctx context.Context, waits bool) (report checkup.Report, err error) {
	is, address, err := p.at()
	if err != nil {
		return report, err
	}
	t := checkup.Target{Schema: p.schema, Prefix: p.prefix, Waits: waits, Retention: time.Duration(p.retention)}
	reach, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	switch is {
	case onPostgres:
		config, err := pgxpool.ParseConfig(address)
		if err != nil {
			return report, err
		}
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing that a pooler does not know
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return report, err
		}
		defer pool.Close()
		if err := pool.Ping(reach); err != nil {
			return report, fmt.Errorf("the server cannot be reached: %w", err)
		}
		t.Kind, t.Postgres = checkup.Postgres, pool
	case onRedis:
		client, err := redisledger.Dial(address)
		if err != nil {
			return report, err
		}
		defer client.Close()
		redis.SetLogger(silent{})
		if err := client.Ping(reach).Err(); err != nil {
			return report, fmt.Errorf("the server cannot be reached: %w", err)
		}
		t.Kind, t.Redis = checkup.Redis, client
	default:
		if _, err := os.Stat(address); err != nil {
			return report, fmt.Errorf("there is no ledger: %w", err)
		}
		t.Kind, t.SQLite = checkup.SQLite, address
	}
	keeper, err := p.keeper(ctx)
	if err != nil {
		t.OpenError = err
		return checkup.Check(ctx, t), nil
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	t.Records = keeper
	return checkup.Check(ctx, t), nil
}

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

type migrateDoc struct {
	Ledger string `json:"ledger"` // postgres, redis or sqlite
	Where  string `json:"where"`  // the schema or the file
	Did    string `json:"did"`
}

func newMigrate(a *app) *cobra.Command {
	p := &a.place
	var show bool
	cmd := &cobra.Command{
		Use:   "migrate [flags]",
		Short: "make the tables of a ledger, or print the SQL for it",
		Long: `Makes the tables of a ledger, or brings them up to date. It may run as often as you like, and from
many processes at once: one does it, the others find it done. A ledger on Redis has no tables.

It is the only command that makes a ledger where there is none.`,
		Example: `  fencedrun migrate --ledger postgres://user@host/database
  fencedrun migrate --ledger postgres://user@host/database --schema bot
  fencedrun migrate --print > ledger.sql        the SQL, for whoever runs migrations otherwise
  fencedrun migrate --ledger sqlite:/var/lib/bot/ledger.db`,
		Annotations: map[string]string{exitCodes: `  0  the ledger is up to date
  2  it could not be migrated, or the command line is wrong`},
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if show {
				if a.json {
					return usagef("--print and --json exclude each other")
				}
				text, err := pgledger.MigrationSQL(p.schema)
				if err != nil {
					return usagef("--schema: %v", err)
				}
				_, err = fmt.Fprint(a.stdout, text)
				return err
			}
			is, url, err := p.at()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			doc, err := p.migrate(ctx, is, url)
			if err != nil {
				return err
			}
			return a.show(doc, func(s *screen) { s.printf("%s\n", doc.Did) })
		},
	}
	cmd.Flags().BoolVar(&show, "print", false, "print the SQL for Postgres instead, and touch nothing")
	return cmd
}

func (p *place) migrate(ctx context.Context, is kind, url string) (doc migrateDoc, err error) {
	ctx, cancel := context.WithTimeout(ctx, migrateBound)
	defer cancel()
	switch is {
	case onSQLite:
		store, err := sqliteledger.Open(ctx, url, nil)
		if err != nil {
			return doc, err
		}
		return migrateDoc{"sqlite", url, "the ledger in " + url + " is up to date"}, store.Close()
	case onRedis:
		return migrateDoc{"redis", "", "a ledger on Redis has nothing to migrate"}, nil
	}
	schema := p.schema
	if schema == "" {
		schema = pgledger.DefaultSchema
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return doc, fmt.Errorf("the server cannot be reached: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := pgledger.Migrate(ctx, conn, schema); err != nil {
		return doc, err
	}
	return migrateDoc{"postgres", schema, "the ledger in schema " + schema + " is up to date"}, nil
}

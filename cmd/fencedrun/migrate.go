package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

const migrateUsage = `usage: fencedrun migrate [flags]

Makes the tables of a ledger, or brings them up to date. It may run as often as you like, and
from many processes at once: one does it, the others find it done. A ledger on Redis has no tables.

Examples:
  fencedrun migrate -ledger postgres://user@host/database
  fencedrun migrate -ledger postgres://user@host/database -schema bot
  fencedrun migrate -print > ledger.sql         the SQL, for whoever runs migrations otherwise
  fencedrun migrate -ledger sqlite:/var/lib/bot/ledger.db

It exits with 1 if the ledger could not be migrated, with 2 if the command line is wrong.

Flags:
`

// migrate is the command: it returns the exit code.
func migrate(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("fencedrun migrate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	at := flags.String("ledger", os.Getenv("FENCEDRUN_LEDGER"), "the `URL` of the ledger: postgres://… or sqlite:FILE; default: FENCEDRUN_LEDGER of the environment")
	schema := flags.String("schema", pgledger.DefaultSchema, "the `name` of the schema in Postgres")
	show := flags.Bool("print", false, "print the SQL for Postgres instead, and touch nothing")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, migrateUsage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: flags only", flags.Arg(0))
	case err == nil && !*show && *at == "":
		err = errors.New("-ledger is missing: where is the ledger? (or set FENCEDRUN_LEDGER)")
	}
	if err != nil {
		fmt.Fprintf(stderr, "fencedrun migrate: %v\nfencedrun migrate -h says more.\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	did, err := migrateTo(ctx, *at, *schema, *show)
	if err != nil {
		fmt.Fprintf(stderr, "fencedrun migrate: %v\n", err)
		return 1
	}
	fmt.Fprint(stdout, did)
	return 0
}

func migrateTo(ctx context.Context, at, schema string, show bool) (did string, err error) {
	path, isSQLite := strings.CutPrefix(at, "sqlite:")
	switch {
	case show:
		return pgledger.MigrationSQL(schema)
	case isSQLite:
		store, err := sqliteledger.Open(ctx, path, nil)
		if err != nil {
			return "", err
		}
		return "the ledger in " + path + " is up to date\n", store.Close()
	case strings.HasPrefix(at, "redis"):
		return "a ledger on Redis has nothing to migrate\n", nil
	case !strings.HasPrefix(at, "postgres"):
		return "", fmt.Errorf("-ledger is %q, which is neither postgres://… nor sqlite:FILE", at)
	}
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return "", fmt.Errorf("the server cannot be reached: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := pgledger.Migrate(ctx, conn, schema); err != nil {
		return "", err
	}
	return "the ledger in schema " + schema + " is up to date\n", nil
}

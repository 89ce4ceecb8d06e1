package pgledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the texts that lead from version i to i+1.
var migrations = func() []string {
	names, err := fs.Glob(migrationFiles, "migrations/0*.sql") // sorted
	if err != nil {
		panic(err)
	}
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = migrationFile(name)
	}
	return texts
}()

func migrationFile(name string) string {
	text, err := migrationFiles.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Beginner begins transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Migrate makes the tables of a ledger in schema, or brings them up to date, in one transaction.
// The schema is created if it does not exist; then the role needs the right to create one in the
// database. "" means DefaultSchema. It may be called at every start, and by any number of
// processes at once. Processes of an older version of this library that are at work meanwhile go
// on; the changelog says when that is not so.
func Migrate(ctx context.Context, db Beginner, schema string) error {
	text, err := migrationSQL(schema)
	if err != nil {
		return fmt.Errorf("pgledger: migrate: %w", err)
	}
	if isNil(db) {
		return errors.New("pgledger: migrate: db is nil")
	}
	if err := migrate(ctx, db, text); err != nil {
		return fmt.Errorf("pgledger: migrate: %w", err)
	}
	return nil
}

// isNil also finds the nil pointer of a variable that was never set.
func isNil(db Beginner) bool {
	switch db := db.(type) {
	case nil:
		return true
	case *pgxpool.Pool:
		return db == nil
	case *pgx.Conn:
		return db == nil
	}
	return false
}

func migrate(ctx context.Context, db Beginner, text string) (err error) {
	// Whoever waited for the others must see what they did.
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(tx.Rollback(context.WithoutCancel(ctx))))
		}
	}()
	// Several statements in one text: only the simple protocol takes them.
	if _, err = tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == newerVersion {
			return errors.New(e.Message)
		}
		return explain(err)
	}
	return tx.Commit(ctx)
}

func ignoreClosed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

// newerVersion is the SQLSTATE that frame.sql raises.
const newerVersion = "FR001"

// MigrationSQL returns what Migrate does, for people who run migrations themselves: in one
// transaction, with psql or anything else. It may be run again, and on any earlier version. "" means
// DefaultSchema; a name that Config.Schema does not accept is an error.
func MigrationSQL(schema string) (string, error) {
	text, err := migrationSQL(schema)
	if err != nil {
		return "", fmt.Errorf("pgledger: migration SQL: %w", err)
	}
	return "begin isolation level read committed;\n" + text + "commit;\n", nil
}

func migrationSQL(schema string) (string, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if err := checkSchema(schema); err != nil {
		return "", fmt.Errorf("schema is %q: %w", schema, err)
	}
	var steps strings.Builder
	for i, text := range migrations {
		steps.WriteString(strings.NewReplacer("{version}", strconv.Itoa(i+1), "{text}", text).Replace(migrationFile("migrations/step.sql")))
	}
	_, frame, _ := strings.Cut(migrationFile("migrations/frame.sql"), "\n") // without the line about the placeholders
	frame = strings.ReplaceAll(frame, "{steps}", steps.String())
	return strings.NewReplacer("{schema}", quoted(schema), "{literal}", literal(schema), "{last}", strconv.Itoa(len(migrations))).Replace(frame), nil
}

package pgledger

import (
	"context"
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// nowSQL is the ledger's clock in milliseconds since 1970. It goes on while a statement waits for a
// lock, and within a transaction.
const nowSQL = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"

// texts are the statements of one store.
type texts struct {
	check, version                   string
	load, loadMore, lock             string
	create, put1, puts, change, drop string
	renew, home, bury, exhume        string
	scanDue, scanDueOne, scanRows    string
	scanOpen, scanOpenOne            [2]string // by the kind, less one
}

func textsFor(schema string) *texts {
	fill := strings.NewReplacer("{schema}", quoted(schema), "{literal}", literal(schema), "{clock}", nowSQL)
	file := func(name string) string {
		text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err)
		}
		return fill.Replace(withoutComments(string(text)))
	}
	open := func(name string) [2]string {
		text := file(name)
		return [2]string{strings.ReplaceAll(text, "{open}", "1"), strings.ReplaceAll(text, "{open}", "2")}
	}
	return &texts{
		check: file("check"), version: file("version"),
		load: file("load"), loadMore: file("load_more"), lock: file("lock"),
		create: file("create"), put1: file("put1"), puts: file("puts"), change: file("change"), drop: file("drop"),
		renew: file("renew"), home: file("home"), bury: file("bury"), exhume: file("exhume"),
		scanDue: file("scan_due"), scanDueOne: file("scan_due_one"), scanRows: file("scan_rows"),
		scanOpen: open("scan_open"), scanOpenOne: open("scan_open_one"),
	}
}

// withoutComments takes out the lines that are for readers of the file: a text is sent with each
// statement that is not prepared.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// quoted and literal write a schema's name, which checkSchema has let through, into SQL.
func quoted(schema string) string  { return pgx.Identifier{schema}.Sanitize() }
func literal(schema string) string { return "'" + quoted(schema) + "'" }

// querier is what can be asked: a pool, a connection, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ask runs one statement and hands its rows over. The rows are complete, and the statement
// committed if it is its own transaction, only when ask returns nil.
func (s *Store) ask(ctx context.Context, q querier, text string, each func(pgx.Rows) error, args ...any) error {
	rows, err := q.Query(ctx, text, s.with(args)...)
	return every(rows, err, each)
}

func every(rows pgx.Rows, err error, each func(pgx.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

// with puts the mode in front of the arguments: pgx takes it from there.
func (s *Store) with(args []any) []any {
	return append(append(make([]any, 0, len(args)+1), s.mode), args...)
}

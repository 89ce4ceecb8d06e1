//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/services/private"
)

// How many finished conversations there are, and beside them: effects of unknown outcome, and
// messages that nobody answered.
const (
	scaleShort, scaleLong = 500, 200_000
	scaleUnknown          = 5
	scaleOpen             = 3
)

// scaled is a ledger with many finished conversations.
type scaled interface {
	// copy copies the finished conversation from times to to.
	copy(t *testing.T, from, to int)
	// plan says how the ledger finds what is open; kind is 1 for effects, 2 for messages.
	plan(t *testing.T, kind int) string
	// rows says how many rows there are, in all tables, and how many bytes they take.
	rows(t *testing.T) (rows, bytes int64)
	// walks says how often the tables were read from one end to the other.
	walks(t *testing.T) int64
	// vacuum runs what gives space back.
	vacuum(t *testing.T, full bool)
}

// TestAuditAndPurgeOfAFullLedger: what is open is found by an index among any number of finished
// conversations, and a purge leaves nothing of these. FENCEDRUN_LONG=1 makes it 200,000.
func TestAuditAndPurgeOfAFullLedger(t *testing.T) {
	race.Skip(t, "hundreds of processes")
	n := scaleShort
	if os.Getenv("FENCEDRUN_LONG") != "" {
		n = scaleLong
	}
	for name, open := range map[string]func(t *testing.T) (string, scaled){"sqlite": scaleSQLite, "postgres": scalePostgres} {
		t.Run(name, func(t *testing.T) {
			at, l := open(t)
			t.Setenv("FENCEDRUN_LEDGER", at)
			auditAndPurge(t, l, n)
		})
	}
}

func auditAndPurge(t *testing.T, l scaled, n int) {
	t.Helper()
	process(t, 0, "fencedrun", "migrate")
	process(t, 0, "fill", "old", "thread-0000000")
	process(t, 0, "fill", "due", "thread-0000000")
	// What is open lies in the middle, where the deletion of all else leaves it.
	began := time.Now()
	l.copy(t, 1, n/2)
	for i := range scaleUnknown {
		process(t, 0, "fill", "lost", fmt.Sprint("unknown-", i))
	}
	for i := range scaleOpen {
		process(t, 0, "fill", "silent", fmt.Sprint("silent-", i))
	}
	l.copy(t, n/2+1, n-1)
	process(t, 0, "fill", "lapse", fmt.Sprint("unknown-", scaleUnknown-1))
	rows, size := l.rows(t)
	t.Logf("%d finished conversations: %d rows, %d MB, made in %v", n, rows, size>>20, time.Since(began).Round(time.Millisecond))

	// Before the tables were analyzed, and after.
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			l.vacuum(t, false)
		}
		for kind := 1; kind <= 2; kind++ {
			if plan := l.plan(t, kind); !byIndex.MatchString(plan) || bySearch.MatchString(plan) {
				t.Errorf("what is open (kind %d) is not found by its index; analyzed: %v\n%s", kind, analyzed, plan)
			}
		}
	}
	before := l.walks(t)
	if out := process(t, 1, "fencedrun", "audit"); !strings.HasPrefix(out, fmt.Sprint(scaleUnknown, " effects with an unknown outcome")) {
		t.Errorf("audit prints\n%s", out)
	}
	if out := process(t, 1, "fencedrun", "open", "--older-than", "0s"); !strings.HasPrefix(out, fmt.Sprint(2*scaleOpen, " messages that nobody answered")) {
		t.Errorf("open prints\n%s", out)
	}
	if walks := l.walks(t); walks != before {
		t.Errorf("audit and open walked through %d tables", walks-before)
	}

	if out := process(t, 0, "fencedrun", "purge", "--older-than", "0s", "--dry-run"); !strings.Contains(out, purges(n)) {
		t.Errorf("it would purge\n%s", out)
	}
	if out := process(t, 0, "fencedrun", "purge", "--older-than", "0s"); !strings.Contains(out, purges(n)) || !strings.Contains(out, fmt.Sprint(n, " conversations")) {
		t.Errorf("it purged\n%s", out)
	}
	if out := process(t, 0, "fencedrun", "purge", "--older-than", "0s"); !strings.Contains(out, "Purged 0 runs, 0 effects, 0 other") {
		t.Errorf("it purged more\n%s", out)
	}
	left, purged := l.rows(t)
	l.vacuum(t, false)
	_, vacuumed := l.rows(t)
	l.vacuum(t, true)
	_, compact := l.rows(t)
	t.Logf("%d rows left; %d MB, %d MB after a vacuum, %d kB after a full one", left, purged>>20, vacuumed>>20, compact>>10)
	// The unknown: conversation, effect, run, directory entry. The open: two messages instead of an effect.
	if want := int64(scaleUnknown*4 + scaleOpen*5); left != want {
		t.Errorf("%d rows are left, want %d", left, want)
	}
	if compact > 1<<20 {
		t.Errorf("the space was not given back: %d bytes", compact)
	}
	if out := process(t, 1, "fencedrun", "audit"); !strings.HasPrefix(out, fmt.Sprint(scaleUnknown, " effects with an unknown outcome")) {
		t.Errorf("after the purge audit prints\n%s", out)
	}
}

var (
	byIndex  = regexp.MustCompile(`(?i)\busing (index )?(record_unresolved|record_waiting|record_open)\b|on record_(unresolved|waiting)\b`)
	bySearch = regexp.MustCompile(`Seq Scan on (record|conversation)|(?m)^.*SCAN (r|c|record|conversation)\b`)
)

func purges(n int) string {
	return fmt.Sprintf("%d runs, %d effects, %d other records", n, 2*n, 2*n)
}

// process runs a program that must exit with code, and returns what it printed. How long it took, and how
// much memory, is logged.
func process(t *testing.T, code int, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%s %s exits with %d, not %d: %s%s", name, strings.Join(args, " "), got, code, &stdout, &stderr)
	}
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && name == "fencedrun" {
		t.Logf("fencedrun %-30s %8v, at most %d MB", strings.Join(args, " "), time.Since(began).Round(time.Millisecond), used.Maxrss>>10)
	}
	return stdout.String()
}

// script reads a text of SQL and fills in what {from} and the like stand for.
func script(t *testing.T, file string, values ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(values...).Replace(string(text))
}

func span(from, to int) []string {
	return []string{"{from}", strconv.Itoa(from), "{to}", strconv.Itoa(to)}
}

type scaledSQLite struct {
	*sql.DB

	path string
}

func scaleSQLite(t *testing.T) (string, scaled) {
	t.Helper()
	path := t.TempDir() + "/ledger.db"
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // a temporary table belongs to its connection
	t.Cleanup(func() { _ = db.Close() })
	return "sqlite:" + path, scaledSQLite{db, path}
}

func (l scaledSQLite) run(t *testing.T, text string) {
	t.Helper()
	if _, err := l.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

func (l scaledSQLite) copy(t *testing.T, from, to int) {
	t.Helper()
	l.run(t, script(t, "testdata/scale/sqlite.sql", span(from, to)...))
}

func (l scaledSQLite) plan(t *testing.T, kind int) string {
	t.Helper()
	rows, err := l.QueryContext(t.Context(), "explain query plan "+script(t, "../../ledger/sqliteledger/sql/scan_open.sql"),
		kind, int64(1)<<60, []byte("0:/"), []byte("0:0"), nil, 500, -int64(1)<<63, []byte{}, []byte{})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "\n")
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return plan.String()
}

func (l scaledSQLite) rows(t *testing.T) (rows, size int64) {
	t.Helper()
	err := l.QueryRowContext(t.Context(), `select (select count(*) from conversation) + (select count(*) from record) + (select count(*) from home) + (select count(*) from lease),
		(select page_count * page_size from pragma_page_count, pragma_page_size)`).Scan(&rows, &size)
	if err != nil {
		t.Fatal(err)
	}
	return rows, size
}

// walks: SQLite does not count them.
func (scaledSQLite) walks(*testing.T) int64 { return 0 }

func (l scaledSQLite) vacuum(t *testing.T, full bool) {
	t.Helper()
	if full {
		l.run(t, "vacuum")
		return
	}
	l.run(t, "analyze")
}

type scaledPostgres struct{ *pgx.Conn }

func scalePostgres(t *testing.T) (string, scaled) {
	t.Helper()
	at := private.ServicePostgres.Need(t)
	connect := func(at string) *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		return conn
	}
	admin := scaledPostgres{connect(at)}
	admin.run(t, "drop database if exists fencedrun_scale with (force)")
	admin.run(t, "create database fencedrun_scale")
	t.Cleanup(func() {
		_, _ = admin.Exec(context.WithoutCancel(t.Context()), "drop database fencedrun_scale with (force)")
	})
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/fencedrun_scale"
	return u.String(), scaledPostgres{connect(u.String())}
}

func (l scaledPostgres) run(t *testing.T, text string) {
	t.Helper()
	if _, err := l.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

func (l scaledPostgres) copy(t *testing.T, from, to int) {
	t.Helper()
	l.run(t, script(t, "testdata/scale/postgres.sql", span(from, to)...))
}

func (l scaledPostgres) plan(t *testing.T, kind int) string {
	t.Helper()
	text := script(t, "../../ledger/pgledger/sql/scan_open.sql", "{schema}", "fencedrun", "{open}", strconv.Itoa(kind))
	rows, err := l.Query(t.Context(), "explain "+text, pgx.QueryExecModeExec, int64(1)<<60, []byte("0:/"), []byte("0:0"), int32(500), -int64(1)<<63, []byte{}, []byte{})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func (l scaledPostgres) rows(t *testing.T) (rows, size int64) {
	t.Helper()
	const count = `select (select count(*) from fencedrun.conversation) + (select count(*) from fencedrun.record) + (select count(*) from fencedrun.home)
		+ (select count(*) from fencedrun.lease), (select sum(pg_total_relation_size(c.oid))::bigint from pg_class c where c.relnamespace = 'fencedrun'::regnamespace and c.relkind = 'r')`
	if err := l.QueryRow(t.Context(), count).Scan(&rows, &size); err != nil {
		t.Fatal(err)
	}
	return rows, size
}

// walks waits until the processes that have ended have told the server's statistics what they did.
func (l scaledPostgres) walks(t *testing.T) (n int64) {
	t.Helper()
	const others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
	for alive := 1; alive > 0; time.Sleep(10 * time.Millisecond) {
		if err := l.QueryRow(t.Context(), others).Scan(&alive); err != nil {
			t.Fatal(err)
		}
	}
	// Our own counts come when this session has nothing to do: they are not of interest, so force them now.
	const walked = "select pg_stat_force_next_flush(), (select sum(seq_scan) from pg_stat_user_tables where relname in ('record', 'conversation', 'home'))::bigint"
	for range 2 {
		if err := l.QueryRow(t.Context(), walked).Scan(nil, &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (l scaledPostgres) vacuum(t *testing.T, full bool) {
	t.Helper()
	for _, table := range []string{"conversation", "record", "home", "lease"} {
		if full {
			l.run(t, "vacuum (full) fencedrun."+table)
		} else {
			l.run(t, "vacuum (analyze) fencedrun."+table)
		}
	}
}

//go:build unix

package checkup

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/runs"
)

// poolOf returns a pool of one connection, with settings of its sessions ("name=value").
func poolOf(t *testing.T, url string, settings ...string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		config.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t *testing.T, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, statements ...string,
) {
	t.Helper()
	for _, s := range statements {
		if _, err := on.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// schema makes a ledger of the test's own.
func schemaOn(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	schema := "doctor_" + strings.ToLower(rand.Text()[:10])
	if err := pgledger.Migrate(t.Context(), pool, schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "drop schema if exists "+schema+" cascade"); err != nil {
			t.Error(err)
		}
	})
	return schema
}

func look4(t *testing.T, pool *pgxpool.Pool, schema string) []Finding {
	t.Helper()
	r := Check(t.Context(), Target{Kind: Postgres, Postgres: pool, Schema: schema, Records: &fake{}})
	complete(t, r.Findings)
	return r.Findings
}

func TestPostgresAsItShouldBe(t *testing.T) {
	pool := poolOf(t, private.ServicePostgres.Need(t))
	schema := schemaOn(t, pool)
	findings := look4(t, pool, schema)
	for _, f := range findings {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{"version", "clock", "fsync", "full_page_writes", "synchronous_commit", "isolation", "autovacuum", "schema", "role_settings", "standbys", "tables", "transactions", "locks", "connections"} {
		wants(t, findings, check, "ok: ")
	}
	wants(t, findings, "schema", "are of version 1")
}

func TestSessionsOfPostgresThatHurtAreFound(t *testing.T) {
	url := private.ServicePostgres.Need(t)
	pool := poolOf(t, url)
	schema := schemaOn(t, pool)
	for setting, want := range map[string][2]string{
		"synchronous_commit=off":                        {"synchronous_commit", "problem: synchronous_commit is off"},
		"default_transaction_isolation=serializable":    {"isolation", "warning: default_transaction_isolation is serializable"},
		"default_transaction_isolation=repeatable read": {"isolation", "warning: default_transaction_isolation is repeatable read"},
		"default_transaction_read_only=on":              {"read_only", "problem: default_transaction_read_only is on"},
	} {
		wants(t, look4(t, poolOf(t, url, setting), schema), want[0], want[1])
	}
	wants(t, look4(t, pool, "no_such_schema"), "schema", "problem: ", "no ledger in schema no_such_schema")
	exec(t, pool, "insert into "+schema+".migration (version) values (99)")
	wants(t, look4(t, pool, schema), "schema", "problem: ", "version 99", "newer version")
	exec(t, pool, "delete from "+schema+".migration")
	wants(t, look4(t, pool, schema), "schema", "problem: ", "version 0", "run pgledger.Migrate")
}

func TestTablesWithoutAutovacuumAreFound(t *testing.T) {
	pool := poolOf(t, private.ServicePostgres.Need(t))
	schema := schemaOn(t, pool)
	exec(t, pool, "alter table "+schema+".record set (autovacuum_enabled = false)")
	wants(t, look4(t, pool, schema), "tables", "warning: autovacuum is off for "+schema+".record")
}

func TestWhoeverKeepsOthersOutIsFound(t *testing.T) {
	url := private.ServicePostgres.Need(t)
	pool := poolOf(t, url)
	schema := schemaOn(t, pool)
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	exec(t, other, "begin", "lock table "+schema+".lease in access exclusive mode")
	wants(t, look4(t, pool, schema), "locks", "problem: somebody keeps all others out")

	defer func(was time.Duration) { longTransaction = was }(longTransaction)
	longTransaction = time.Millisecond
	exec(t, other, "select pg_sleep(0.05)")
	findings := look4(t, pool, schema)
	wants(t, findings, "transactions", "warning: a transaction has been open for ", "idle in transaction")
	exec(t, other, "rollback")
	wants(t, look4(t, pool, schema), "locks", "ok")
}

// What a role may not see is said, and is no failure.
func TestARoleWithoutPrivilegesIsTold(t *testing.T) {
	url := private.ServicePostgres.Need(t)
	pool := poolOf(t, url)
	schema := schemaOn(t, pool)
	role := "weak_" + strings.ToLower(rand.Text()[:8])
	exec(t, pool, "create role "+role+" login", "alter role "+role+" set synchronous_commit = off")
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "drop role "+role); err != nil {
			t.Error(err)
		}
	})
	wants(t, look4(t, pool, schema), "role_settings", "warning: role "+role+" has synchronous_commit=off")
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.User = role
	weak, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer weak.Close()
	findings := look4(t, weak, schema)
	wants(t, findings, "transactions", "warning: could not look at the transactions of other roles")
	wants(t, findings, "schema", "problem: ")
	wants(t, findings, "synchronous_commit", "problem: ")
}

func TestADatabaseThatIsAwayIsAProblem(t *testing.T) {
	findings := Check(t.Context(), Target{Kind: Postgres, Postgres: poolOf(t, "postgres://nobody@127.0.0.1:1/x?sslmode=disable&connect_timeout=5")}).Findings
	wants(t, findings, "reach", "problem: the server cannot be reached")
	wants(t, findings, "unresolved", "warning: could not look at the records")
}

func folder(t *testing.T) string {
	t.Helper()
	f, err := private.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f.Path
}

func ctxForServer(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestAPostgresServerThatLosesClaimsIsFound(t *testing.T) {
	private.ServicePostgres.Need(t)
	if err := private.Missing([]private.Service{private.ServicePostgres}); err != nil {
		private.Unavailable(t, err.Error())
	}
	server, err := private.StartPostgres(ctxForServer(t), filepath.Join(folder(t), "pg"),
		"fsync=off", "full_page_writes=off", "synchronous_commit=local", "synchronous_standby_names=ghost", "autovacuum=off", "superuser_reserved_connections=0", "max_connections=8")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Crash() })
	pool := poolOf(t, server.URL)
	schema := schemaOn(t, pool)
	findings := look4(t, pool, schema)
	for check, want := range map[string]string{
		"fsync":              "problem: fsync is off",
		"full_page_writes":   "problem: full_page_writes is off",
		"synchronous_commit": "warning: synchronous_commit is local, although there is a synchronous standby",
		"autovacuum":         "warning: autovacuum or track_counts is off",
		"standbys":           "problem: synchronous_standby_names is set, and no such standby is connected",
	} {
		wants(t, findings, check, want)
	}

	// A connection that asks for the log is a standby, as far as the server knows.
	config, err := pgconn.ParseConfig(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"], config.RuntimeParams["application_name"] = "true", "spare"
	spare, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close(context.Background())
	wants(t, look4(t, pool, schema), "standbys", "warning: no standby is synchronous: spare")
	exec(t, pool, "create role weak login")
	weak := poolOf(t, strings.Replace(server.URL, "postgres@", "weak@", 1))
	wants(t, look4(t, weak, schema), "standbys", "warning: could not look at 1 standby server")
	weak.Close()

	for range 7 {
		conn, err := pgx.Connect(t.Context(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
	}
	wants(t, look4(t, pool, schema), "connections", "warning: ", "of max_connections = 8 connections are in use")
}

func TestAPoolerIsNoticed(t *testing.T) {
	url := private.ServicePostgres.Need(t)
	if err := private.Missing([]private.Service{private.ServicePgBouncer}); err != nil {
		private.Unavailable(t, err.Error())
	}
	direct := poolOf(t, url)
	schema := schemaOn(t, direct)
	wants(t, look4(t, direct, schema), "pooler")
	bouncer, err := private.StartPgBouncer(ctxForServer(t), filepath.Join(folder(t), "pgbouncer"), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bouncer.Crash() })
	findings := look4(t, poolOf(t, bouncer.URL), schema)
	wants(t, findings, "pooler", "ok: there is a pooler in front of the server")
	wants(t, findings, "schema", "ok: ")
}

func TestAnUnresolvedEffectInPostgresIsCounted(t *testing.T) {
	pool := poolOf(t, private.ServicePostgres.Need(t))
	schema := schemaOn(t, pool)
	store, err := pgledger.Open(t.Context(), pool, &pgledger.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := runs.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	_ = keeper.Once(t.Context(), "c", runs.Effect{Intent: "reply", Key: runs.ID("m")}, func(context.Context, *runs.Call) error { return context.DeadlineExceeded })
	r := Check(t.Context(), Target{Kind: Postgres, Postgres: pool, Schema: schema, Records: keeper})
	wants(t, r.Findings, "unresolved", "warning: the outcome of 1 effect is unknown")
}

func TestStandbysAreJudged(t *testing.T) {
	for _, c := range []struct {
		found []standby
		names string
		want  string
	}{
		{nil, "", "ok: there are no standbys"},
		{nil, "a", "problem: synchronous_standby_names is set"},
		{[]standby{{"a", new("streaming"), new("async")}, {"b", new("streaming"), new("async")}}, "", "warning: no standby is synchronous: a, b"},
		{[]standby{{"a", new("streaming"), new("async")}, {"b", new("streaming"), new("sync")}}, "b", "ok: of 2 standby servers 1 synchronous"},
		{[]standby{{"a", new("streaming"), new("quorum")}}, "a", "ok: of 1 standby server 1 synchronous"},
		{[]standby{{"a", new("streaming"), new("potential")}}, "b", "warning: no standby is synchronous: a"},
		{[]standby{{"a", nil, nil}}, "", "warning: could not look at 1 standby server"},
	} {
		p := &postgres{list: &list{}}
		p.judgeStandbys(c.found, c.names)
		wants(t, p.findings, "standbys", c.want)
		complete(t, p.findings)
	}
}

func TestTablesAreJudged(t *testing.T) {
	for want, one := range map[string]table{
		"ok: the ledger's tables are vacuumed and analyzed":              {name: "record", live: 50, dead: 90_000},
		"warning: s.record has 300000 dead rows beside 100000 live ones": {name: "record", live: 100_000, dead: 300_000},
		"warning: s.record has 20000 rows and was never analyzed":        {name: "record", live: 20_000, never: true},
		"warning: autovacuum is off for s.record":                        {name: "record", off: true},
		"ok: the ledger's tables are vacuumed and analyzed\n":            {name: "record", live: 1_000_000, dead: 200_000},
	} {
		p := &postgres{list: &list{}, schema: "s"}
		p.judgeTables([]table{one})
		wants(t, p.findings, "tables", want)
		complete(t, p.findings)
	}
}

func TestOldAndStandbyServersAreProblems(t *testing.T) {
	p := &postgres{list: &list{}}
	p.judge(&pgSettings{number: 120004, version: "12.4", standby: true})
	wants(t, p.findings, "version", "problem: the server is Postgres 12.4")
	wants(t, p.findings, "standby", "problem: the server is a standby")
	complete(t, p.findings)
}

package checkup

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

//go:embed sql/*.sql
var texts embed.FS

func text(name string) string {
	b, err := texts.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// postgres is a database being looked at.
type postgres struct {
	*list
	t      *Target
	conn   *pgxpool.Conn
	schema string
}

func checkPostgres(ctx context.Context, l *list, t *Target) {
	p := &postgres{list: l, t: t, schema: t.Schema}
	if p.schema == "" {
		p.schema = pgledger.DefaultSchema
	}
	reach, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	conn, err := t.Postgres.Acquire(reach)
	if err != nil {
		l.problem("reach", "the server cannot be reached: "+err.Error(), "", "Look at its URL, its password and the network.")
		return
	}
	p.conn = conn
	version, usable := p.session(ctx)
	p.conn.Release() // a pool may have no more than one
	if usable {
		p.open(ctx, version)
	}
}

// session is what is asked on one connection. It returns the version of the tables, 0 if there are
// none, and whether there is a database to be opened.
func (p *postgres) session(ctx context.Context) (version int, usable bool) {
	is, ok := p.settings(ctx)
	if !ok {
		return 0, false
	}
	p.judge(&is)
	if is.standby {
		return 0, false // nothing of the rest is known there
	}
	query := strings.ReplaceAll(text("version"), "{schema}", pgx.Identifier{p.schema}.Sanitize())
	if found, err := ask(ctx, p, query, pgx.RowTo[int]); err == nil && len(found) == 1 {
		version = found[0]
	}
	p.overrides(ctx)
	p.standbys(ctx, &is)
	p.tables(ctx)
	p.transactions(ctx, &is)
	p.locks(ctx)
	p.connections(ctx, &is)
	return version, true
}

// ask asks in a mode of pgx that leaves nothing in the session, so that a pooler does no harm.
func ask[T any](ctx context.Context, p *postgres, query string, row func(pgx.CollectableRow) (T, error), args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if p.conn.Conn().IsClosed() { // an earlier question was given up
		p.conn.Release()
		conn, err := p.t.Postgres.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	rows, err := p.conn.Query(ctx, query, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, row)
	if cause := ctx.Err(); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return found, err
}

// pgSettings is what settings.sql says.
type pgSettings struct {
	number                          int
	version                         string
	backend                         uint32
	now, sent, answered             time.Time
	fsync, fullPageWrites           bool
	synchronousCommit, standbyNames string
	isolation                       string
	readOnly, standby, autovacuum   bool
	maxConnections                  int
	seesAll                         bool // other roles' sessions, too
	pooled                          bool
}

func (p *postgres) settings(ctx context.Context) (pgSettings, bool) {
	sent := p.t.Now()
	found, err := ask(ctx, p, text("settings"), func(row pgx.CollectableRow) (is pgSettings, err error) {
		is.answered = p.t.Now()
		err = row.Scan(&is.number, &is.version, &is.backend, &is.now, &is.fsync, &is.fullPageWrites, &is.synchronousCommit, &is.standbyNames,
			&is.isolation, &is.readOnly, &is.standby, &is.autovacuum, &is.maxConnections, &is.seesAll)
		return is, err
	})
	if err != nil || len(found) != 1 {
		p.unseen("settings", "the server's settings", orNothing(err), "")
		return pgSettings{}, false
	}
	is := found[0]
	is.sent = sent
	is.pooled = is.backend != p.conn.Conn().PgConn().PID()
	return is, true
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("there was no answer")
	}
	return err
}

// judge judges what the session's settings are.
func (p *postgres) judge(is *pgSettings) {
	if is.number < 130000 {
		p.problem("version", "the server is Postgres "+is.version, "The library needs Postgres 13 or newer.", "Upgrade the server.")
	} else {
		p.ok("version", "the server is Postgres "+is.version)
	}
	if is.standby {
		p.problem("standby", "the server is a standby", "The ledger must be written; a standby refuses.", "Connect to the primary.")
		return
	}
	p.skew("clock", "the server", is.sent, is.answered, is.now)
	p.durability(is)
	if is.readOnly {
		p.problem("read_only", "default_transaction_read_only is on", "The ledger cannot be written: every claim fails.", "Set it to off for the service's role and database.")
	}
	if is.isolation != "read committed" {
		p.warn("isolation", "default_transaction_isolation is "+is.isolation,
			"The ledger works, but its statements collide and are made again, and a transaction with OnceTx may fail with 40001.",
			"Set it to read committed for the service's role, or be ready to make those transactions again.")
	} else {
		p.ok("isolation", "default_transaction_isolation is read committed")
	}
	if is.pooled {
		p.ok("pooler", "there is a pooler in front of the server; a service must set pgledger.Config.Pooler, or it refuses to start")
	}
	if !is.autovacuum {
		p.warn("autovacuum", "autovacuum or track_counts is off", "The ledger's tables are rewritten all the time: without it they grow, and plans go bad.", "Set both to on.")
	} else {
		p.ok("autovacuum", "autovacuum is on")
	}
}

func (p *postgres) durability(is *pgSettings) {
	if !is.fsync {
		p.problem("fsync", "fsync is off", "A crash of the machine loses claims, or the whole database, and effects are done again.", "Set fsync to on and restart the server.")
	} else {
		p.ok("fsync", "fsync is on")
	}
	if !is.fullPageWrites {
		p.problem("full_page_writes", "full_page_writes is off", "A crash in the middle of a write can leave pages of the ledger that are half old.",
			"Set it to on, unless the file system never writes half a page (ZFS).")
	} else {
		p.ok("full_page_writes", "full_page_writes is on")
	}
	const do = "Set synchronous_commit to on or above for the service's role and database. What need not be flushed, the library does not wait for anyway."
	switch {
	case is.synchronousCommit == "off":
		p.problem("synchronous_commit", "synchronous_commit is off", "A crash of the server loses claims that were acknowledged, and their effects are done again.", do)
	case is.synchronousCommit == "local" && is.standbyNames != "":
		p.warn("synchronous_commit", "synchronous_commit is local, although there is a synchronous standby", "A failover loses claims that the standby had not received, and their effects are done again.", do)
	default:
		p.ok("synchronous_commit", "synchronous_commit is "+is.synchronousCommit)
	}
}

// open asks what the library itself asks at a start. It writes nothing.
func (p *postgres) open(ctx context.Context, version int) {
	if p.t.OpenError != nil {
		return // said already
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	_, err := pgledger.Open(ctx, p.t.Postgres, &pgledger.Config{Schema: p.schema, Pooler: true})
	switch {
	case errors.Is(err, pgledger.ErrNotMigrated):
		p.problem("schema", err.Error(), "A service that starts now refuses to.", "Run fencedrun migrate.")
	case err != nil:
		p.problem("schema", err.Error(), "A service that starts now fails the same way.", "Mend what the error says.")
	default:
		p.ok("schema", fmt.Sprintf("the tables in schema %s are there, may be written, and are of version %d, which this library needs", p.schema, version))
	}
}

// overrides looks for settings that other sessions than this one have.
func (p *postgres) overrides(ctx context.Context) {
	type override struct{ role, setting string }
	found, err := ask(ctx, p, text("overrides"), func(row pgx.CollectableRow) (o override, err error) {
		err = row.Scan(&o.role, &o.setting)
		return o, err
	})
	if err != nil {
		p.unseen("role_settings", "the settings of roles", err, "Look at pg_db_role_setting.")
		return
	}
	for _, o := range found {
		whose := "role " + o.role + " has"
		if o.role == "" {
			whose = "all roles of this database have"
		}
		p.warn("role_settings", whose+" "+o.setting, "If the service connects so, it is as if the server were set so.",
			"Unless that role is never a service's with this ledger, alter role or alter database … reset "+strings.SplitN(o.setting, "=", 2)[0]+".")
	}
	if len(found) == 0 {
		p.ok("role_settings", "no role or database overrides these settings")
	}
}

func (p *postgres) standbys(ctx context.Context, is *pgSettings) {
	found, err := ask(ctx, p, text("standbys"), func(row pgx.CollectableRow) (s standby, err error) {
		err = row.Scan(&s.name, &s.state, &s.sync)
		return s, err
	})
	if err != nil {
		p.unseen("standbys", "the standbys", err, "Look at pg_stat_replication as a superuser.")
		return
	}
	p.judgeStandbys(found, is.standbyNames)
}

type standby struct {
	name        string
	state, sync *string
}

func (p *postgres) judgeStandbys(found []standby, names string) {
	var async []string
	synchronous, hidden := 0, 0
	for _, s := range found {
		switch {
		case s.sync == nil:
			hidden++
		case *s.sync == "sync" || *s.sync == "quorum":
			synchronous++
		default:
			async = append(async, s.name)
		}
	}
	const why = "A standby that is promoted has lost what it had not received: claims too, and their effects are done again."
	switch {
	case hidden > 0:
		p.hidden("standbys", "could not look at "+plural(hidden, "standby server"), "This role may not see whether they are synchronous.", "Grant pg_monitor to it, or look at pg_stat_replication.")
	case synchronous > 0:
		p.ok("standbys", fmt.Sprintf("of %s %d synchronous; promote no other", plural(len(found), "standby server"), synchronous))
	case len(async) > 0:
		p.warn("standbys", "no standby is synchronous: "+strings.Join(async, ", "), why, "Set synchronous_standby_names, or accept it and look at what was under way after each failover.")
	case names != "":
		p.problem("standbys", "synchronous_standby_names is set, and no such standby is connected", "Every commit waits until one is: claims time out.", "Bring the standby back, or take it out of synchronous_standby_names.")
	default:
		p.ok("standbys", "there are no standbys")
	}
}

type table struct {
	name       string
	off, never bool
	live, dead int64
}

func (p *postgres) tables(ctx context.Context) {
	found, err := ask(ctx, p, text("tables"), func(row pgx.CollectableRow) (t table, err error) {
		err = row.Scan(&t.name, &t.off, &t.live, &t.dead, &t.never)
		return t, err
	}, p.schema)
	if err != nil {
		p.unseen("tables", "the statistics of the tables", err, "")
		return
	}
	p.judgeTables(found)
}

// Fewer dead rows than that are nothing to talk about.
const manyRows = 100_000

func (p *postgres) judgeTables(found []table) {
	well := len(found) > 0
	for _, t := range found {
		name := p.schema + "." + t.name
		if t.off {
			well = false
			p.warn("tables", "autovacuum is off for "+name, "It is rewritten all the time: without it the table grows, and plans go bad.", "alter table "+name+" reset (autovacuum_enabled);")
		}
		switch {
		case t.dead > manyRows && t.dead > 2*t.live:
			well = false
			p.warn("tables", fmt.Sprintf("%s has %d dead rows beside %d live ones", name, t.dead, t.live), "Autovacuum does not keep up, or a transaction that never ends holds it up: see below.",
				"vacuum (analyze) "+name+"; then give autovacuum more, or end the transaction.")
		case t.never && t.live > manyRows/10:
			well = false
			p.warn("tables", fmt.Sprintf("%s has %d rows and was never analyzed", name, t.live), "The planner takes it for empty and walks through it.", "analyze "+name+";")
		}
	}
	if well {
		p.ok("tables", "the ledger's tables are vacuumed and analyzed")
	}
}

// longTransaction is from when on a transaction holds up vacuum and locks.
var longTransaction = 5 * time.Minute

func (p *postgres) transactions(ctx context.Context, is *pgSettings) {
	type transaction struct {
		what    string
		seconds float64
	}
	found, err := ask(ctx, p, text("activity"), func(row pgx.CollectableRow) (t transaction, err error) {
		err = row.Scan(&t.what, &t.seconds)
		return t, err
	}, longTransaction.Seconds())
	if err != nil {
		p.unseen("transactions", "open transactions", err, "Look at pg_stat_activity as a superuser.")
		return
	}
	for _, t := range found {
		p.warn("transactions", fmt.Sprintf("a transaction has been open for %s: %s", age(time.Duration(t.seconds*float64(time.Second))), t.what),
			"Nothing that died since is cleaned up, and what it has locked waits.", "End it, and set idle_in_transaction_session_timeout.")
	}
	switch {
	case !is.seesAll:
		p.hidden("transactions", "could not look at the transactions of other roles", "This role may not see them.", "Grant pg_monitor to it, or look at pg_stat_activity.")
	case len(found) == 0:
		p.ok("transactions", "no transaction has been open for "+age(longTransaction))
	}
}

func (p *postgres) locks(ctx context.Context) {
	type locked struct {
		waiting, exclusive int
		seconds            float64
	}
	found, err := ask(ctx, p, text("locks"), func(row pgx.CollectableRow) (l locked, err error) {
		err = row.Scan(&l.waiting, &l.exclusive, &l.seconds)
		return l, err
	}, p.schema)
	switch {
	case err != nil || len(found) != 1:
		p.unseen("locks", "locks", orNothing(err), "")
	case found[0].exclusive > 0:
		p.problem("locks", fmt.Sprintf("somebody keeps all others out of a table of the ledger (%d wait)", found[0].waiting), "Every claim waits for it: a migration, a VACUUM FULL, an ALTER TABLE.",
			"Look for AccessExclusiveLock in pg_locks; let it end, or end it with pg_cancel_backend.")
	case found[0].waiting > 0 && found[0].seconds > 1:
		p.warn("locks", fmt.Sprintf("%d statements wait for a lock in the ledger's tables, for up to %.0f seconds", found[0].waiting, found[0].seconds),
			"A transaction with OnceTx locks its conversation until it ends.", "Look at pg_locks and pg_stat_activity for who holds it.")
	default:
		p.ok("locks", "nobody waits for a lock in the ledger's tables")
	}
}

func (p *postgres) connections(ctx context.Context, is *pgSettings) {
	found, err := ask(ctx, p, text("connections"), pgx.RowTo[int])
	switch {
	case err != nil || len(found) != 1:
		p.unseen("connections", "connections", orNothing(err), "")
	case found[0]*10 > is.maxConnections*9:
		p.warn("connections", fmt.Sprintf("%d of max_connections = %d connections are in use", found[0], is.maxConnections),
			"A worker that finds none cannot claim; renewals of leases need two more per process.", "Make pools smaller, put a pooler in front, or raise max_connections.")
	default:
		p.ok("connections", fmt.Sprintf("%d of max_connections = %d connections are in use", found[0], is.maxConnections))
	}
}

// Package pgledger is a ledger in a Postgres database: durable, and shared by any number of
// processes on any number of machines. It needs Postgres 13 or newer and pgx v5.
//
//	pool, err := pgxpool.New(ctx, url)
//	err = pgledger.Migrate(ctx, pool, pgledger.DefaultSchema) // at each start, or once at deployment
//	store, err := pgledger.Open(ctx, pool, nil)
//	keeper, err := runs.New(store, nil)
//
// The tables live in a schema of their own, beside the service's. The view "readable" in it shows
// them decoded, for people.
//
// # What a crash may lose
//
// Nothing that was acknowledged is lost when a process of the service crashes.
//
// When the database server does, what must never be lost is there: claims, ends, cancels,
// dismissals, reports, stamps and people's verdicts are committed before they are acknowledged, and
// so before an effect is called. How is for the session's synchronous_commit to say: the store
// never weakens it for those, and never strengthens it. A settle, a Begin, a renewal or saved
// progress of the last moments (about three times wal_writer_delay, 0.6 seconds by default) may be
// gone, unless something flushed came after it: they are committed asynchronously. A lost settle
// turns a committed effect into one whose outcome is unknown: it is not called again, and a
// probe or a person must look. Set Config.FlushAll to pay a second flush for each effect instead.
//
// So leave synchronous_commit at on or above, and fsync on: with either of them off, a crash of
// the server loses claims too, and effects are called twice.
//
// A standby that is promoted has lost what it had not received. Only a synchronous standby makes
// claims survive a failover.
//
// # Connections
//
// A call takes one connection of the pool, for one statement or, on a contended conversation,
// for one short transaction. No connection is held while an effect runs. Renewals of leases
// have up to two connections of their own, opened when the first lease is renewed: a pool whose
// connections are all in handlers' hands cannot make a worker lose its leases. Plan for them
// when counting the server's max_connections.
//
// # The planner
//
// Every statement finds its rows by an index and keeps its plan. Postgres may prefer to walk
// through a table that it has seen empty, and keep to that plan until its statistics change:
// leave autovacuum on, and run ANALYZE after a test or a restore that fills the tables at once.
//
// # Poolers
//
// Behind PgBouncer in transaction mode, or anything like it, set Config.Pooler. The store needs
// no state of the session: no session's advisory lock, LISTEN, SET or temporary table. Before
// version 1.21, or without max_prepared_statements, PgBouncer does not know prepared statements,
// and pgx uses them by default; Open refuses what would fail in the middle of a job. Migrate
// works through a pooler too.
//
// # Transactions of the caller
//
// [Store.Join] takes a pgx.Tx of the same database. It sets nothing in that transaction. In
// isolation levels above read committed its errors 40001 mean what they always mean: the
// transaction must be made again, by whoever began it.
package pgledger

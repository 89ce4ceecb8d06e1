// Package redisledger is a ledger in Redis: shared by any number of processes on any number of
// machines, without a database to run. It works with a single server, with a master that Sentinel
// watches, and with Redis Cluster; Redis 6.2 or newer, or a server that speaks its language.
//
//	store, err := redisledger.Connect(ctx, "redis://127.0.0.1:6379/0", nil)
//	keeper, err := runs.New(store, nil)
//
// Open takes a client that the program has already, such as the one that Asynq uses.
//
// # What a crash and a failover may lose
//
// This is the one place where it is said; everything else in this library assumes that a claim that
// was acknowledged stays. What is lost is forgotten without a trace: an effect whose claim is lost
// looks as if it had never been tried, and a job that is delivered again does it a second time.
//
//   - A process of yours that crashes or is killed loses nothing that was acknowledged.
//   - A Redis server that crashes or is killed loses nothing either, with an append-only file
//     (appendonly yes): what is acknowledged has been handed to its operating system.
//   - A machine that crashes (a power cut, a kernel panic) loses what was not yet flushed:
//     with appendfsync everysec, Redis's default, up to two seconds; with no, about half a minute;
//     with always, nothing. Config.WaitAOF with Local 1 makes what must not be lost wait for the flush
//     whatever the setting is.
//   - A failover, by Sentinel, by Cluster or by hand, loses what the promoted replica had not
//     received, because Redis replicates after it has answered: usually milliseconds, and all that
//     a cut-off master accepted until it noticed (min-replicas-to-write bounds that). Config.Wait makes
//     what must not be lost wait until so many replicas have it. That narrows the window and does
//     not close it: Redis may promote a replica that is not among them, unless Wait.Replicas is the
//     number of all replicas. Redis promises no more than that, so this library cannot.
//
// Where that is not good enough, take pgledger. What cannot happen in either case is that two
// workers both hold the right to write because of what was lost: tags and nonces are random, so
// whoever decided on a state that is gone is refused (rule S3.2).
//
// Clocks: leases and deadlines are judged by the clock of the server that answers. After a failover
// that is another machine's; keep them synchronized.
//
// # What Redis must be set to
//
// maxmemory-policy must be noeviction and appendonly must be yes. Open refuses anything else, with
// an error that names the field of Config that accepts it. Nothing here ever expires by itself;
// memory is freed by purging, and a conversation that was purged leaves nothing behind. A server
// that is full refuses claims, and their effects are not called.
//
// The user needs the commands EVAL, EVALSHA, GET, SET, SETNX, DEL, UNLINK, HGET, HMGET, HGETALL, HSET,
// HDEL, HEXISTS, ZADD, ZREM, ZRANGEBYLEX, ZLEXCOUNT, TIME on keys that begin with Config.Prefix, and INFO and CONFIG GET
// for the check; where those two are forbidden Open warns instead. WAIT and WAITAOF if Config says so.
//
// # Cluster
//
// A conversation's keys are in one slot, one of 256, so that a claim, its lease and the list of what is
// unresolved change as one. The directory of runs is in other slots: a Begin on a new
// conversation makes two round trips there instead of one, and apart.go says in which order
// and what a crash in between leaves. While Cluster moves one of those slots to another node its
// conversations answer with errors, and no effect is called; 256 of 16,384 slots are in use.
//
// A client that reads from replicas (ReadOnly, RouteByLatency, RouteRandomly) may be given: this
// package asks masters only.
//
// # Lost answers
//
// The client sends a command again when the connection broke before its answer came. Every script
// here gives the second one the answer of the first, or one that the ledger knows how to
// read. Deleting is the exception: Purge may count one conversation or tombstone too few.
package redisledger

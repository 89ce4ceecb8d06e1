// Package sqliteledger is a ledger in a SQLite file: durable, with no server to run, and shared by
// any number of processes on one machine. It is the default for services that live on one host.
//
//	store, err := sqliteledger.Open(ctx, "/var/lib/bot/ledger.db", nil)
//	keeper, err := runs.New(store, nil)
//
// The file is the ledger's own: nothing else belongs into it but the tables of a service that
// makes effects in the ledger's transaction (see [Store.Join]). It is in WAL mode, so there are two
// more files beside it, and all three must be on a local disk; network file systems do not lock
// as SQLite needs it. For several machines take pgledger or redisledger.
//
// # What a crash may lose
//
// Nothing that was acknowledged is lost when a process crashes or is killed.
//
// When the machine does (a power cut, a kernel panic), what must never be lost is there: claims,
// ends, cancels, dismissals, reports, stamps and people's verdicts are flushed to the disk
// before they are acknowledged, and so before an effect is called (synchronous=FULL). A
// settle, a Begin, a renewal or saved progress of the last moments may be gone, unless something
// flushed came after it. A lost settle turns a committed effect into one whose outcome is
// unknown: it is not called again, and a probe or a person must look. Set Config.FlushAll to
// pay a second flush for each effect instead.
//
// # One writer
//
// SQLite lets one connection write at a time. Within a process writes queue up; between
// processes they wait for each other, at most Config.BusyTimeout. Reads wait for nobody. A process
// that stands still within a write (SIGSTOP, a debugger, a frozen container) keeps the file from all
// others until it goes on or is killed: their jobs come back meanwhile, and nothing is done twice.
//
// Do not open and close the file by other means in a process that uses it, not even to copy it:
// closing any descriptor of a file gives up every POSIX lock that the process holds on it. Copy it
// from another process, with SQLite's own backup.
package sqliteledger

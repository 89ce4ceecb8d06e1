package ledger

import (
	"context"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// Store keeps the rows of conversations. It is what a driver implements; the contract is
// written here and checked by ledgertest.Run.
//
// A conversation is a tag, a head row and further rows under keys of its own, the leases of
// the deliveries at work on it, and nothing else. Beside the conversations a store keeps a
// directory: for each run the conversation it lives in.
//
// Conversation names, row keys, run names, tags and nonces are arbitrary bytes, at most 2 KiB
// long. Bodies are opaque: a store must give back the very bytes it was given, and must not
// look into them; that one of no bytes comes back as nil is fine. Names and keys sort by their
// bytes.
//
// Every method may be called by many goroutines, and by many processes where the store is
// shared. A store must not hold a connection, a transaction or a lock after a method returns,
// and must not need a second connection while it holds one. When ctx is done a method returns
// soon with an error; what it was writing may or may not have been written.
//
// An error means that the outcome is not known. A store may try again by itself what it knows
// not to have happened; it must not translate an error into a refusal or into an absence.
type Store interface {
	// Load returns one conversation as of one moment: tag, head, rows, leases and directory
	// entry must all belong to the same state, though a lease may be renewed at any time. A
	// conversation that does not exist has the tag "".
	Load(ctx context.Context, conversation string, q Query) (Snapshot, error)

	// Apply writes w in one atomic step, or nothing. It must refuse (Applied false, no
	// error) when the conversation's tag is not w.Tag, when a key in w.Absent has a row, or
	// when the run's directory entry is not w.Home.Was, of which the tombstone's bytes do
	// not count. It may not rely on the tag being ordered: it is random. Written by Apply and
	// acknowledged, a Durable change survives a crash of the store's machine; one that is not
	// Durable may be lost by a crash, but only together with everything later.
	//
	// A store whose directory cannot be changed in the same step writes the directory entry
	// first: an entry without its run is harmless, a run without its entry is not.
	Apply(ctx context.Context, conversation string, w Write) (Result, error)

	// Renew extends leases, of any number of conversations, in one statement, to the store's
	// now plus d. It must not change any tag, must not create a lease that is not there, and
	// must extend one that has run out: whether somebody used that is for the rules to say.
	// The answers are in the order of the questions.
	Renew(ctx context.Context, leases []LeaseKey, d time.Duration) ([]Renewed, error)

	// FindRun looks a run up in the directory.
	FindRun(ctx context.Context, run string) (Home, error)

	// Bury writes a tombstone for a run that the directory does not know, durably, and
	// reports false when it knows the run.
	Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error)

	// Scan lists rows, at most q.Limit, in the order that q asks for. It may miss or repeat
	// what changes meanwhile.
	Scan(ctx context.Context, q Scan) ([]Found, error)

	// Exhume deletes at most limit tombstones whose time is up, and returns how many.
	Exhume(ctx context.Context, limit int) (int, error)

	// Close releases what the store opened itself.
	Close() error
}

// Locker is what a [Store] may offer beside: a way to load, decide and write while nobody
// else can write the conversation. The ledger uses it after its first compare-and-swap was
// refused, so that a hot conversation is fair instead of racing.
type Locker interface {
	// WithLock calls fn once while it holds the conversation's write lock; what fn applied
	// is written when fn returns nil, as one step, and nothing of it when fn fails. An error
	// of fn is returned as it is. fn does no I/O but through tx. It is called a second time
	// only if nothing of the first is, or will be, written.
	WithLock(ctx context.Context, conversation string, fn func(tx Tx) error) error
}

// Tx is a [Locker]'s view of the locked conversation.
type Tx interface {
	Load(ctx context.Context, conversation string, q Query) (Snapshot, error)
	Apply(ctx context.Context, conversation string, w Write) (Result, error)
}

// Joiner is what a [Store] may offer beside: a way to decide and write inside a transaction that
// the caller of the library began and will commit, so that an effect in the same database and its
// record are one (promise S11.6).
type Joiner interface {
	// Join locks the conversation inside tx until tx ends, and returns a Tx that reads and writes
	// in tx. tx is what the store's documentation names, pgx.Tx or *sql.Tx; anything else, and one
	// that the store can tell to be of another database, is an error. It does not end tx, changes
	// no setting of it, and needs no other connection.
	Join(ctx context.Context, tx any, conversation string) (Tx, error)
}

// Query says what of a conversation to load beside its tag, head and leases.
type Query struct {
	Keys []string // rows
	Run  string   // directory entry, "" none
	// Tail asks for the rows with Landed above Since, in the order of Landed.
	Tail  bool
	Since int64
	// Open asks for the newest MaxOpen rows with Open = OpenInbound, newest At first, and
	// for how many there are.
	Open bool
}

// Snapshot is what Load found. Its rows carry the Index that they were written with.
type Snapshot struct {
	Now       fence.Millis // the store's clock, not the process's
	Tag       string       // "" when the conversation does not exist
	Head      Row          // its key is ""
	Rows      []Row        // those of Query.Keys that exist, in any order
	Leases    []Lease
	Home      Home
	Tail      []Row
	Open      []Row
	OpenCount int
}

// Write is one change of one conversation.
type Write struct {
	// Tag is what the conversation's tag must be; "" means that it must not exist.
	Tag string
	// NewTag is what its tag becomes.
	NewTag string
	Head   Row
	Put    []Row    // insert or replace; no key twice
	Delete []string // row keys, none that is in Put
	Absent []string // keys that must have no row
	Leases []LeaseWrite
	Home   *HomeWrite
	// Forget are runs whose directory entry goes if it names this conversation. A run that
	// lives elsewhere by now keeps it.
	Forget []string
	// Drop deletes the conversation with its rows and leases; only Tag matters then.
	Drop    bool
	Durable bool
	// Want is what a refusal should come with, if the store can read it in the same step.
	Want Query
}

// Result answers an Apply.
type Result struct {
	Applied bool
	Now     fence.Millis
	// Current may accompany a refusal: the conversation as it is, as Load would give it for
	// Write.Want. A store whose refusal cannot see a consistent present must leave it nil.
	Current *Snapshot
}

// LeaseKey names a lease: a delivery of a run on a conversation.
type LeaseKey struct {
	Conversation string
	Run          string // row key
	Nonce        string
}

// Lease is one lease of a conversation.
type Lease struct {
	Run, Nonce string
	Until      fence.Millis
}

// LeaseWrite takes a lease until the store's now plus For, or deletes it when For is 0.
type LeaseWrite struct {
	Run, Nonce string
	For        time.Duration
}

// Renewed says what became of a lease's renewal.
type Renewed struct {
	Found bool         // the lease is there and was extended
	Until fence.Millis // the lease's end, if Found
	Tag   string       // the conversation's, so that whoever holds it sees that it moved; "" none
}

// Home is a run's directory entry.
type Home struct {
	Found bool
	// Conversation is where the run lives; "" for a tombstone.
	Conversation string
	Tombstone    []byte
}

// HomeWrite makes a run's directory entry name this conversation, if it is what Was says.
type HomeWrite struct {
	Run string
	Was Home
}

// Scan asks for rows across conversations, or of one.
type Scan struct {
	Kind ScanKind
	// Conversation limits the scan to one; "" means all whose name starts with Prefix.
	Conversation string
	Prefix       string
	// Open and Before are for ScanOpen: the kind, and an upper limit of At.
	Open   fence.OpenKind
	Before fence.Millis
	// Keys is for ScanRows: the prefix of the row keys.
	Keys string
	// After continues a scan behind a row it gave before.
	After *Found
	Limit int
}

// ScanKind says which rows and in which order.
type ScanKind int

// The kinds of scans.
const (
	ScanOpen ScanKind = iota + 1 // Index.Open = Open and At <= Before, oldest At first, then conversation, then key
	ScanDue                      // Due > 0 and Due <= now, heads too, oldest Due first, then conversation, then key
	ScanRows                     // one conversation's rows whose key starts with Keys, by key; not its head
)

// Found is a row that a scan gave. A head has the key "".
type Found struct {
	Conversation string
	Row          Row
}

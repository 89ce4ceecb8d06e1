package fence

// View is what a decision looks at: a bounded part of one conversation, all of it as of one
// moment. A View is not modified.
type View struct {
	// Now is the ledger's clock (rule S3.3).
	Now Millis
	// Head is nil when the conversation is not known yet.
	Head *Head
	// Rows holds the rows that were looked up, by row key; nil means known to be absent. A
	// key that is missing was not looked up.
	Rows map[string]Record
	// Leases holds until when each seat's lease runs, by run and delivery nonce.
	Leases map[LeaseID]Millis
	// Home is where the run in question lives, as the directory of runs knows it.
	Home Home
	// Since and Tail: every effect and report that landed with a seq above Since is in Tail.
	// Only looked up for a delivery that has not caught up for longer than the head
	// remembers; Tailed says that it was.
	Tailed bool
	Since  int64
	Tail   []Record
	// Open are the newest open inbound messages, at most MaxOpen, and OpenCount says how many
	// there are in all; Opened says that they were looked up.
	Opened    bool
	Open      []*Inbound
	OpenCount int
}

// LeaseID names the lease of one delivery.
type LeaseID struct {
	Run   string // row key of the run
	Nonce string // of the Begin that made the delivery
}

// Home is the directory's entry of a run: the conversation it lives in, or a tombstone left
// by cancelling a job that had not begun (rule S4.4).
type Home struct {
	Known     bool // looked up
	Found     bool
	Where     string // the conversation's key in the ledger; "" for a tombstone
	Tombstone Tombstone
}

// Tombstone is a cancel that came before its job.
type Tombstone struct {
	At  Millis `json:"at,omitempty"`
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// MaxOpen is how many open messages a view holds at most, newest first (rule S10.5).
const MaxOpen = 100

// Needs says what a decision still has to look up. An empty Needs asks for nothing.
type Needs struct {
	Keys  []string // rows
	Tail  bool     // everything that landed after Since
	Since int64
	Open  bool // the open inbound messages
}

// Empty reports whether nothing is needed.
func (n Needs) Empty() bool { return len(n.Keys) == 0 && !n.Tail && !n.Open }

// Change is what a decision writes: some rows, on the condition that the conversation is
// still the one that was decided on and that every key in Absent has no row.
type Change struct {
	// Needs is not empty when the view did not hold enough to decide. Then nothing else of
	// the Change, and nothing of the verdict, means anything.
	Needs Needs
	// Head is the new head, nil when nothing is written.
	Head *Head
	// Rows are the rows to insert or replace, Delete the row keys to delete.
	Rows   []Record
	Delete []string
	// Absent are keys that the decision took to have no row without having looked. A verdict
	// that writes is right if they have none; one that does not write must look first.
	Absent []string
	// Lease takes, keeps or gives up the lease of a delivery.
	Lease []LeaseChange
	// Home, when set, is the run whose directory entry must be as the view had it, and is
	// to say Where afterwards.
	Home *HomeChange
	// Forget are runs whose directory entry goes with their record (rule S10.4).
	Forget []RunKey
	// Durable asks the store to make the change durable before it answers (rule S5.7).
	Durable bool
	// Learn, when set, is called once the verdict is final. The rules leave it alone; the
	// ledger uses it to hand a delivery what it learned.
	Learn func()
	// Events are for the observer, once the change is written.
	Events []Event
}

// Writes reports whether the change writes anything.
func (c *Change) Writes() bool { return c.Head != nil }

// LeaseChange takes a lease for For from the store's now, or gives it up when For is 0.
type LeaseChange struct {
	ID  LeaseID
	For Millis
}

// HomeChange moves a run's directory entry to this conversation.
type HomeChange struct {
	Run RunKey
	Due Millis // when the entry may be purged
}

// Event is something that an observer is told after it is true.
type Event struct {
	Kind     EventKind
	Run      RunKey
	Delivery int64
	Effect   string // id
	Intent   string
	Key      string
	Call     int
	Inbound  string
	Reason   Reason
	Text     string // for people; never a key or a summary
}

package ledger

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
)

// Options are what a Ledger decides with. All fields are set by runs.New.
type Options struct {
	Namespace string
	Rules     fence.Rules
	Seam      *seam.Seam
	// Emit is told of events after they are true. It is called without any lock held.
	Emit func(ctx context.Context, conversation string, events []fence.Event)
	// Tries is how often a store call that failed is tried again before the operation fails.
	Tries int
}

// Ledger loads, decides and writes.
type Ledger struct {
	store Store
	Options

	mu       sync.Mutex
	convs    map[string]*conversation
	heardNow fence.Millis // the store's clock as last heard …
	heardAt  time.Time    // … at this time of the process's
	purged   *Found       // where the last Purge stopped looking
}

// New returns a ledger over store.
func New(store Store, o Options) *Ledger {
	if o.Tries == 0 {
		o.Tries = 3
	}
	if o.Emit == nil {
		o.Emit = func(context.Context, string, []fence.Event) {}
	}
	return &Ledger{store: store, Options: o, convs: map[string]*conversation{}}
}

// conversation is this process's copy of one conversation. Operations on it queue up at its
// lock: two runs of one process never race each other for a compare-and-swap, which is what
// makes a hot conversation fast and fair.
type conversation struct {
	name string // as the user wrote it
	key  string // in the store, namespace included
	lock seam.Lock

	// Guarded by Ledger.mu.
	refs    int
	handles map[*Handle]struct{}           // the open ones
	renewed map[fence.LeaseID]fence.Millis // leases that Renew extended and view does not know of

	// What follows is guarded by lock.
	have   bool         // view is as of tag
	tag    string       // of the state in view
	view   fence.View   // its Now is when the store was last heard about this conversation
	loaded fence.Millis // when the store was last asked about the leases of others
}

// ConversationKey names a conversation in the store. The length in front keeps namespaces
// apart whatever bytes the names hold.
func ConversationKey(namespace, conversation string) string {
	return namespacePrefix(namespace) + conversation
}

func namespacePrefix(namespace string) string {
	return strconv.Itoa(len(namespace)) + ":" + namespace + "/"
}

func (l *Ledger) runKey(k fence.RunKey) string {
	return namespacePrefix(l.Namespace) + fence.RunRow(k)
}

// nameOf takes a conversation's name out of its key.
func (l *Ledger) nameOf(key string) string {
	return strings.TrimPrefix(key, namespacePrefix(l.Namespace))
}

// open returns the process's copy of a conversation; close gives it back. The copy is
// forgotten when nobody holds it.
func (l *Ledger) open(name string) *conversation {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.convs[name]
	if c == nil {
		c = &conversation{name: name, key: ConversationKey(l.Namespace, name), lock: l.Seam.NewLock()}
		l.convs[name] = c
	}
	c.refs++
	return c
}

func (l *Ledger) close(c *conversation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.refs--
	if c.refs == 0 {
		delete(l.convs, c.name)
	}
}

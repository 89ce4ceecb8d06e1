package ledger

import (
	"cmp"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
)

// Part is a row of the one result in which a store on SQL loads a conversation.
type Part struct {
	Kind      PartKind
	Key, Body []byte
	Index     fence.Index
}

// PartKind says what of a conversation a Part is. The numbers stand in the stores' SQL.
type PartKind int

// The kinds of parts.
const (
	PartConversation PartKind = iota // Key: the tag, nil for a conversation that does not exist; Body: the head; At: the store's clock
	PartRow
	PartLease // Key: the run; Body: the nonce; At: the lease's end
	PartHome  // Key: the conversation, nil for a tombstone; Body: the tombstone
	PartTail
	PartOpen
	PartOpenCount // At: the number
)

// Add puts a part in its place.
func (s *Snapshot) Add(p Part) {
	row := func(index fence.Index) Row { return NewRow(string(p.Key), index, p.Body) }
	switch p.Kind {
	case PartConversation:
		s.Now, s.Tag = p.Index.At, string(p.Key)
		if p.Key != nil {
			s.Head = NewRow("", fence.Index{Due: p.Index.Due}, p.Body)
		}
	case PartRow:
		s.Rows = append(s.Rows, row(p.Index))
	case PartLease:
		s.Leases = append(s.Leases, Lease{Run: string(p.Key), Nonce: string(p.Body), Until: p.Index.At})
	case PartHome:
		s.Home = HomeOf(p.Key, p.Body)
	case PartTail:
		s.Tail = append(s.Tail, row(p.Index))
	case PartOpen:
		s.Open = append(s.Open, row(p.Index))
	case PartOpenCount:
		s.OpenCount = int(p.Index.At)
	}
}

// Sort brings the tail and the open messages into the order that Query promises.
func (s *Snapshot) Sort() {
	slices.SortFunc(s.Tail, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Index.Landed, b.Index.Landed), cmp.Compare(a.Key, b.Key))
	})
	slices.SortFunc(s.Open, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Index.At, a.Index.At), cmp.Compare(a.Key, b.Key))
	})
}

// HomeOf returns a directory entry that a store has read; conversation is nil for a tombstone.
func HomeOf(conversation, tombstone []byte) Home {
	return Home{Found: true, Conversation: string(conversation), Tombstone: tombstone}
}

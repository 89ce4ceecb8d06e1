// Package memledger is a ledger in this process's memory: for tests, demos, and services of a
// single process that can live with what a restart forgets.
//
// A restart forgets everything: which effects happened, which are unknown, which runs
// ended. A job that is redelivered afterwards is a new run and does its effects again. Use
// sqliteledger wherever that would hurt.
package memledger

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
)

// New returns an empty ledger.
func New() *Store { return NewSeamed(seam.Real()) }

// NewSeamed is New on another clock, for this module's own simulator.
func NewSeamed(s *seam.Seam) *Store {
	return &Store{seam: s, convs: map[string]*conversation{}, homes: map[string]home{}}
}

// Store implements ledger.Store. A ledger.Locker is not needed: the process's own queue for a
// conversation is all the contention there is.
type Store struct {
	seam *seam.Seam

	mu    sync.Mutex // never held while anything waits
	convs map[string]*conversation
	homes map[string]home
}

type conversation struct {
	tag    string
	head   ledger.Row
	rows   map[string]ledger.Row
	leases []ledger.Lease
}

type home struct {
	ledger.Home
	due fence.Millis
}

func (s *Store) now() fence.Millis { return fence.Millis(s.seam.Now().UnixMilli()) }

// Load implements ledger.Store.
func (s *Store) Load(ctx context.Context, conv string, q ledger.Query) (ledger.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return ledger.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(conv, q), nil
}

func (s *Store) load(conv string, q ledger.Query) ledger.Snapshot {
	snap := ledger.Snapshot{Now: s.now()}
	if q.Run != "" {
		snap.Home = s.homes[q.Run].Home
	}
	c := s.convs[conv]
	if c == nil {
		return snap
	}
	snap.Tag, snap.Head, snap.Leases = c.tag, c.head, slices.Clone(c.leases)
	for _, key := range q.Keys {
		if row, ok := c.rows[key]; ok {
			snap.Rows = append(snap.Rows, row)
		}
	}
	if q.Tail {
		snap.Tail = c.where(func(row ledger.Row) bool { return row.Index.Landed > max(q.Since, 0) })
	}
	if q.Open {
		snap.Open = c.where(func(row ledger.Row) bool { return row.Index.Open == fence.OpenInbound })
	}
	snap.Sort()
	snap.OpenCount = len(snap.Open)
	snap.Open = snap.Open[:min(len(snap.Open), fence.MaxOpen)]
	return snap
}

// where returns the rows that match, in no order.
func (c *conversation) where(match func(ledger.Row) bool) []ledger.Row {
	var rows []ledger.Row
	for _, row := range c.rows {
		if match(row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// Apply implements ledger.Store.
func (s *Store) Apply(ctx context.Context, conv string, w ledger.Write) (ledger.Result, error) {
	if err := ctx.Err(); err != nil {
		return ledger.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	c := s.convs[conv]
	if !s.allowed(c, w) {
		current := s.load(conv, w.Want)
		return ledger.Result{Now: now, Current: &current}, nil
	}
	if w.Drop {
		delete(s.convs, conv)
		return ledger.Result{Applied: true, Now: now}, nil
	}
	if c == nil {
		c = &conversation{rows: map[string]ledger.Row{}}
		s.convs[conv] = c
	}
	c.tag, c.head = w.NewTag, w.Head
	for _, row := range w.Put {
		c.rows[row.Key] = row
	}
	for _, key := range w.Delete {
		delete(c.rows, key)
	}
	for _, lease := range w.Leases {
		c.lease(lease, now)
	}
	if w.Home != nil {
		s.homes[w.Home.Run] = home{Home: ledger.Home{Found: true, Conversation: conv}}
	}
	for _, run := range w.Forget {
		if s.homes[run].Conversation == conv {
			delete(s.homes, run)
		}
	}
	return ledger.Result{Applied: true, Now: now}, nil
}

func (s *Store) allowed(c *conversation, w ledger.Write) bool {
	tag := ""
	if c != nil {
		tag = c.tag
		for _, key := range w.Absent {
			if _, ok := c.rows[key]; ok {
				return false
			}
		}
	}
	if tag != w.Tag {
		return false
	}
	if w.Home == nil {
		return true
	}
	is, was := s.homes[w.Home.Run], w.Home.Was
	return is.Found == was.Found && is.Conversation == was.Conversation
}

func (c *conversation) lease(w ledger.LeaseWrite, now fence.Millis) {
	i := slices.IndexFunc(c.leases, func(l ledger.Lease) bool { return l.Run == w.Run && l.Nonce == w.Nonce })
	switch {
	case w.For == 0 && i >= 0:
		c.leases = slices.Delete(c.leases, i, i+1)
	case w.For == 0:
	case i >= 0:
		c.leases[i].Until = now + fence.MillisOf(w.For)
	default:
		c.leases = append(c.leases, ledger.Lease{Run: w.Run, Nonce: w.Nonce, Until: now + fence.MillisOf(w.For)})
	}
}

// Renew implements ledger.Store.
func (s *Store) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	renewed := make([]ledger.Renewed, len(leases))
	now := s.now()
	for i, key := range leases {
		c := s.convs[key.Conversation]
		if c == nil {
			continue
		}
		renewed[i].Tag = c.tag
		for l := range c.leases {
			if lease := &c.leases[l]; lease.Run == key.Run && lease.Nonce == key.Nonce {
				lease.Until = now + fence.MillisOf(d)
				renewed[i].Found, renewed[i].Until = true, lease.Until
			}
		}
	}
	return renewed, nil
}

// FindRun implements ledger.Store.
func (s *Store) FindRun(ctx context.Context, run string) (ledger.Home, error) {
	if err := ctx.Err(); err != nil {
		return ledger.Home{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.homes[run].Home, nil
}

// Bury implements ledger.Store.
func (s *Store) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.homes[run].Found {
		return false, nil
	}
	s.homes[run] = home{Home: ledger.Home{Found: true, Tombstone: slices.Clone(tombstone)}, due: due}
	return true, nil
}

// Exhume implements ledger.Store.
func (s *Store) Exhume(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, n := s.now(), 0
	for _, run := range slices.Sorted(maps.Keys(s.homes)) {
		if h := s.homes[run]; n < limit && h.Conversation == "" && h.due <= now {
			delete(s.homes, run)
			n++
		}
	}
	return n, nil
}

// Scan implements ledger.Store.
func (s *Store) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []ledger.Found
	match := s.matches(q)
	for name, c := range s.among(q) {
		if q.Kind == ledger.ScanDue && match(c.head) {
			found = append(found, ledger.Found{Conversation: name, Row: c.head})
		}
		for _, row := range c.rows {
			if match(row) {
				found = append(found, ledger.Found{Conversation: name, Row: row})
			}
		}
	}
	slices.SortFunc(found, func(a, b ledger.Found) int { return compare(q.Kind, a, b) })
	if q.After != nil {
		found = slices.DeleteFunc(found, func(f ledger.Found) bool { return compare(q.Kind, f, *q.After) <= 0 })
	}
	return found[:min(len(found), max(q.Limit, 0))], nil
}

// among returns the conversations that q speaks of, in no order.
func (s *Store) among(q ledger.Scan) iter.Seq2[string, *conversation] {
	return func(yield func(string, *conversation) bool) {
		if q.Conversation != "" {
			if c := s.convs[q.Conversation]; c != nil {
				yield(q.Conversation, c)
			}
			return
		}
		for name, c := range s.convs {
			if strings.HasPrefix(name, q.Prefix) && !yield(name, c) {
				return
			}
		}
	}
}

func (s *Store) matches(q ledger.Scan) func(ledger.Row) bool {
	now := s.now()
	return func(row ledger.Row) bool {
		switch q.Kind {
		case ledger.ScanOpen:
			return row.Index.Open == q.Open && row.Index.At <= q.Before
		case ledger.ScanDue:
			return row.Index.Due > 0 && row.Index.Due <= now
		default:
			return strings.HasPrefix(row.Key, q.Keys)
		}
	}
}

func compare(kind ledger.ScanKind, a, b ledger.Found) int {
	first := 0
	switch kind {
	case ledger.ScanOpen:
		first = cmp.Compare(a.Row.Index.At, b.Row.Index.At)
	case ledger.ScanDue:
		first = cmp.Compare(a.Row.Index.Due, b.Row.Index.Due)
	}
	return cmp.Or(first, cmp.Compare(a.Conversation, b.Conversation), cmp.Compare(a.Row.Key, b.Row.Key))
}

// Close implements ledger.Store. The rows stay, for whoever still holds the store.
func (s *Store) Close() error { return nil }

package redisledger

import (
	"context"
	"math"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Scan implements ledger.Store. A list across conversations merges the indexes of all buckets,
// each read a few members at a time; then the rows are read, and those that changed meanwhile are
// left out.
func (s *Store) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	return await(ctx, s, "scan", func() ([]ledger.Found, error) {
		switch {
		case q.Limit <= 0:
			return nil, nil
		case q.Kind == ledger.ScanRows:
			return s.list(ctx, q)
		}
		m := s.mergeOf(q)
		var found []ledger.Found
		for len(found) < q.Limit {
			members, err := m.next(ctx, q.Limit-len(found))
			if err != nil || len(members) == 0 {
				return found, err
			}
			rows, err := s.indexed(ctx, q.Kind, members)
			if err != nil {
				return nil, err
			}
			found = append(found, rows...)
		}
		return found, nil
	})
}

// list gives one conversation's rows by key.
func (s *Store) list(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	from, to := "[k"+q.Keys, "(l"
	if q.After != nil && q.After.Row.Key >= q.Keys {
		from = "(k" + q.After.Row.Key
	}
	if end := below(q.Keys); end != "" {
		to = "(k" + end
	}
	answer, err := s.run(ctx, listScript, s.conversationKeys(q.Conversation)[:2], from, to, q.Limit)
	if err != nil {
		return nil, err
	}
	rows, err := listed(answer)
	if err != nil {
		return nil, err
	}
	found := make([]ledger.Found, len(rows))
	for i, row := range rows {
		found[i] = ledger.Found{Conversation: q.Conversation, Row: row}
	}
	return found, nil
}

// merge reads members of buckets' indexes in their common order.
type merge struct {
	s        *Store
	buckets  []int // nil all
	from, to string
	now      bool // to is continued by the server's time
	limit    int
	keep     func(member string) bool // nil all

	streams []stream
	begun   bool
}

type stream struct {
	bucket  int
	members []string
	page    int
	from    string
	ended   bool
}

// firstPage is how many members of each bucket are read at first. Later pages of a bucket double.
const firstPage = 8

func (s *Store) mergeOf(q ledger.Scan) *merge {
	m := &merge{s: s, limit: q.Limit}
	if q.Conversation != "" {
		m.buckets = []int{bucketOf(q.Conversation)}
	}
	at := 9 // where in a member the conversation begins
	if q.Kind == ledger.ScanOpen {
		at = 10
		kind := "o" + string([]byte{byte(q.Open)})
		m.from, m.to = "["+kind, "("+kind+sorting(int64(q.Before)+1)
		if q.Before == math.MaxInt64 {
			m.to = "(o" + string([]byte{byte(q.Open) + 1})
		}
	} else {
		m.from, m.to, m.now = "[d"+sorting(1), "(d", true
	}
	if q.After != nil {
		m.from = "(" + memberOf(q.Kind, *q.After)
	}
	only := ordered(q.Conversation)
	prefix := strings.TrimSuffix(ordered(q.Prefix), "\x00\x01")
	m.keep = func(member string) bool {
		if q.Conversation != "" {
			return strings.HasPrefix(member[at:], only)
		}
		return strings.HasPrefix(member[at:], prefix)
	}
	return m
}

// memberOf is the member of the bucket's index that stands for a row.
func memberOf(kind ledger.ScanKind, f ledger.Found) string {
	ix := f.Row.Index
	if kind == ledger.ScanOpen {
		return "o" + string([]byte{byte(ix.Open)}) + sorting(int64(ix.At)) + ordered(f.Conversation) + f.Row.Key
	}
	return "d" + sorting(int64(ix.Due)) + ordered(f.Conversation) + f.Row.Key
}

// next returns at most n members behind those that it gave before; none means that there are none.
func (m *merge) next(ctx context.Context, n int) ([]string, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	var members []string
	for len(members) < n {
		var first *stream
		for i := range m.streams {
			st := &m.streams[i]
			if len(st.members) == 0 && !st.ended {
				if err := m.read(ctx, m.streams[i:i+1]); err != nil {
					return nil, err
				}
			}
			if len(st.members) > 0 && (first == nil || st.members[0] < first.members[0]) {
				first = st
			}
		}
		if first == nil {
			break
		}
		if member := first.members[0]; m.keep == nil || m.keep(member) {
			members = append(members, member)
		}
		first.members = first.members[1:]
	}
	return members, nil
}

func (m *merge) begin(ctx context.Context) error {
	if m.begun {
		return nil
	}
	m.begun = true
	which := m.buckets
	if which == nil {
		which = make([]int, buckets)
		for b := range which {
			which[b] = b
		}
	}
	m.streams = make([]stream, len(which))
	for i, b := range which {
		m.streams[i] = stream{bucket: b, from: m.from, page: max(min(m.limit, firstPage), 1)}
	}
	return m.read(ctx, m.streams)
}

// read fills streams that are empty: all with one script where one server has them, else with one
// for each bucket.
func (m *merge) read(ctx context.Context, streams []stream) error {
	size := len(streams)
	if !m.s.together {
		size = 1
	}
	var asks []ask
	continued := ""
	if m.now {
		continued = "1"
	}
	for i := 0; i < len(streams); i += size {
		a := ask{args: []any{m.s.now(), streams[i].from, m.to, continued, streams[i].page}}
		for _, st := range streams[i : i+size] {
			a.keys = append(a.keys, m.s.indexKey(st.bucket))
		}
		asks = append(asks, a)
	}
	answers, err := m.s.all(ctx, peekScript, asks)
	if err != nil {
		return err
	}
	for i, answer := range answers {
		parts, err := list(answer, size)
		if err != nil {
			return err
		}
		for j, part := range parts {
			if err := streams[i*size+j].fill(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (st *stream) fill(answer any) error {
	members, err := list(answer, -1)
	if err != nil {
		return err
	}
	for _, one := range members {
		member, _, err := text(one)
		if err != nil {
			return err
		}
		if len(member) < 9 {
			return errForeign
		}
		st.members = append(st.members, member)
	}
	st.ended = len(members) < st.page
	if !st.ended {
		st.from = "(" + st.members[len(st.members)-1]
		st.page *= 2
	}
	return nil
}

// indexed reads the rows that members of indexes stand for, in their order. Those that stand there
// no more are left out.
func (s *Store) indexed(ctx context.Context, kind ledger.ScanKind, members []string) ([]ledger.Found, error) {
	at := 9
	if kind == ledger.ScanOpen {
		at = 10
	}
	type place struct{ ask, field int }
	places := make([]place, len(members))
	found := make([]ledger.Found, len(members))
	asked := map[string]int{}
	var asks []ask
	for i, member := range members {
		conversation, key, err := unordered(member[at:])
		if err != nil {
			return nil, err
		}
		n, ok := asked[conversation]
		if !ok {
			n = len(asks)
			asked[conversation] = n
			asks = append(asks, ask{keys: s.conversationKeys(conversation)[:1]})
		}
		places[i] = place{n, len(asks[n].args)}
		if key == "" {
			asks[n].args = append(asks[n].args, "t", "h")
		} else {
			asks[n].args = append(asks[n].args, "r"+key)
		}
		found[i] = ledger.Found{Conversation: conversation, Row: ledger.NewRow(key, fence.Index{}, nil)}
	}
	answers, err := s.all(ctx, rowsScript, asks)
	if err != nil {
		return nil, err
	}
	there := found[:0]
	for i, member := range members {
		values, err := list(answers[places[i].ask], len(asks[places[i].ask].args))
		if err != nil {
			return nil, err
		}
		f := found[i]
		if f.Row.Key == "" {
			f.Row, err = headOf(values[places[i].field], values[places[i].field+1])
		} else {
			f.Row, err = foundRow(f.Row.Key, values[places[i].field])
		}
		if err != nil {
			return nil, err
		}
		if memberOf(kind, f) == member {
			there = append(there, f)
		}
	}
	return there, nil
}

// headOf and foundRow return an empty row, which stands in no index, for one that is gone.

func headOf(state, body any) (ledger.Row, error) {
	value, found, err := text(state)
	if err != nil || !found {
		return ledger.Row{}, err
	}
	head, _, err := text(body)
	if err != nil {
		return ledger.Row{}, err
	}
	due, _, err := stateOf(value)
	return ledger.NewRow("", fence.Index{Due: due}, []byte(head)), err
}

func foundRow(key string, answer any) (ledger.Row, error) {
	value, found, err := text(answer)
	if err != nil || !found {
		return ledger.Row{}, err
	}
	return rowOf(key, value)
}

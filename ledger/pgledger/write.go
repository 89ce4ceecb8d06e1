package pgledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// statement is a change as one statement.
type statement struct {
	text string
	args []any
	// clock is the place of the argument that overrides the clock.
	clock int
}

// answer is what a change's statement says.
type answer struct {
	applied bool
	now     fence.Millis
	present bool // it was refused although the tag was right
}

func (s *Store) apply(ctx context.Context, q querier, st statement) (answer, error) {
	var a answer
	st.args[st.clock] = s.now()
	err := s.ask(ctx, q, st.text, func(rows pgx.Rows) error {
		var now int64
		err := rows.Scan(&a.applied, &now, &a.present, nil)
		a.now = fence.Millis(now)
		return err
	}, st.args...)
	return a, err
}

// statement chooses the cheapest text that can say w.
func (s *Store) statement(conversation string, w ledger.Write, async bool) (statement, error) {
	name, tag := []byte(conversation), []byte(w.Tag)
	if w.Drop {
		return statement{text: s.texts.drop, args: []any{name, tag, async, nil}, clock: 3}, nil
	}
	head, err := bodyOf(w.Head)
	if err != nil {
		return statement{}, fmt.Errorf("pgledger: apply: %w", err)
	}
	due := int64(w.Head.Index.Due)
	if w.Tag != "" && single(w) {
		row := w.Put[0]
		body, err := bodyOf(row)
		if err != nil {
			return statement{}, fmt.Errorf("pgledger: apply: %w", err)
		}
		ix := row.Index
		return statement{text: s.texts.put1, args: []any{
			name, tag, []byte(w.NewTag), head, due,
			[]byte(row.Key), int16(ix.Open), int64(ix.At), ix.Landed, int64(ix.Due), body, len(w.Absent) > 0, async, nil,
		}, clock: 13}, nil
	}
	c := columnsOf(len(w.Put))
	for _, row := range w.Put {
		if err := c.add(row); err != nil {
			return statement{}, fmt.Errorf("pgledger: apply: %w", err)
		}
	}
	l := leasesOf(w.Leases)
	run, there, where := homeArgs(w.Home)
	if w.Tag == "" {
		return statement{text: s.texts.create, args: []any{
			name, []byte(w.NewTag), head, due, c.keys, c.open, c.at, c.landed, c.due, c.body, async, nil,
			l.runs, l.nonces, l.ms, run, there, where, names(w.Forget),
		}, clock: 11}, nil
	}
	args := []any{name, tag, []byte(w.NewTag), head, due, c.keys, c.open, c.at, c.landed, c.due, c.body, names(w.Absent), async, nil}
	if len(w.Delete) == 0 && len(w.Leases) == 0 && w.Home == nil && len(w.Forget) == 0 {
		return statement{text: s.texts.puts, args: args, clock: 13}, nil
	}
	args = append(args, names(w.Delete), l.runs, l.nonces, l.ms, run, there, where, names(w.Forget))
	return statement{text: s.texts.change, args: args, clock: 13}, nil
}

// single reports whether w writes one row beside the head and nothing else, and needs no other row
// to be absent.
func single(w ledger.Write) bool {
	return len(w.Put) == 1 && len(w.Delete) == 0 && len(w.Leases) == 0 && w.Home == nil && len(w.Forget) == 0 &&
		(len(w.Absent) == 0 || len(w.Absent) == 1 && w.Absent[0] == w.Put[0].Key)
}

// columns are rows as arrays, one for each column.
type columns struct {
	keys, body      [][]byte
	open            []int16
	at, landed, due []int64
}

func columnsOf(n int) *columns {
	if n == 0 {
		return &columns{}
	}
	numbers := make([]int64, 3*n)
	return &columns{
		keys: make([][]byte, 0, n), body: make([][]byte, 0, n), open: make([]int16, 0, n),
		at: numbers[:0:n], landed: numbers[n : n : 2*n], due: numbers[2*n : 2*n : 3*n],
	}
}

func (c *columns) add(row ledger.Row) error {
	body, err := bodyOf(row)
	if err != nil {
		return err
	}
	ix := row.Index
	c.keys, c.body = append(c.keys, []byte(row.Key)), append(c.body, body)
	c.open = append(c.open, int16(ix.Open))
	c.at, c.landed, c.due = append(c.at, int64(ix.At)), append(c.landed, ix.Landed), append(c.due, int64(ix.Due))
	return nil
}

type leases struct {
	runs, nonces [][]byte
	ms           []int64
}

func leasesOf(writes []ledger.LeaseWrite) (l leases) {
	for _, w := range writes {
		l.runs, l.nonces = append(l.runs, []byte(w.Run)), append(l.nonces, []byte(w.Nonce))
		l.ms = append(l.ms, int64(fence.MillisOf(w.For)))
	}
	return l
}

// homeArgs returns the run, whether it is in the directory, and where it is thought to live.
func homeArgs(h *ledger.HomeWrite) (run any, there bool, where any) {
	if h == nil {
		return nil, false, nil
	}
	if h.Was.Conversation != "" {
		where = []byte(h.Was.Conversation)
	}
	return []byte(h.Run), h.Was.Found, where
}

// bodyOf returns a row's bytes, never nil: nil would be NULL.
func bodyOf(row ledger.Row) ([]byte, error) {
	body, err := row.Body()
	if body == nil {
		body = []byte{}
	}
	return body, err
}

package ledger

import (
	"errors"
	"fmt"

	"github.com/fencedrun/fencedrun/fence"
)

// ErrCorrupt is returned when a row of the store cannot be read: something else than this
// library, or a newer version of it, has written it. Nothing is decided on such a row.
var ErrCorrupt = errors.New("unreadable row")

// Row is one row of a conversation: a key, what an index needs, and an opaque body. A row is
// immutable.
type Row struct {
	Key   string
	Index fence.Index
	body  []byte
	rec   fence.Record
}

// NewRow returns a row that a store has read. The store must not change body afterwards.
func NewRow(key string, index fence.Index, body []byte) Row {
	return Row{Key: key, Index: index, body: body}
}

// Body returns the bytes that a store has to keep. A store that lives in this process's memory
// may keep the Row itself instead.
func (r Row) Body() ([]byte, error) {
	if r.body != nil || r.rec == nil {
		return r.body, nil
	}
	body, err := encode(r.rec)
	if err != nil {
		return nil, fmt.Errorf("encode row %q: %w", r.Key, err)
	}
	return body, nil
}

func rowOf(rec fence.Record) Row {
	return Row{Key: rec.RowKey(), Index: rec.Index(), rec: rec}
}

// record decodes a row; the kind of a record is the first letter of its key.
func (r Row) record() (fence.Record, error) {
	if r.rec != nil {
		return r.rec, nil
	}
	rec := blank(r.Key)
	if rec == nil {
		return nil, fmt.Errorf("%w %q: of no known kind", ErrCorrupt, r.Key)
	}
	if err := decode(r.body, rec); err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrCorrupt, r.Key, err)
	}
	return rec, nil
}

func blank(key string) fence.Record {
	switch {
	case key == "":
		return new(fence.Head)
	case len(key) < 2 || key[1] != '/':
		return nil
	}
	switch key[0] {
	case 'r':
		return new(fence.Run)
	case 'e':
		return new(fence.Effect)
	case 'i':
		return new(fence.Inbound)
	case 'o':
		return new(fence.Report)
	case 'x':
		return new(fence.Reference)
	}
	return nil
}

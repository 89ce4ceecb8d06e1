package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/fencedrun/fencedrun/fence"
)

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
	body, err := json.Marshal(r.rec)
	if err != nil {
		return nil, fmt.Errorf("ledger: encode row %q: %w", r.Key, err)
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
	var rec fence.Record
	switch {
	case r.Key == "":
		rec = new(fence.Head)
	case len(r.Key) < 2 || r.Key[1] != '/':
		return nil, fmt.Errorf("ledger: row %q is of no known kind", r.Key)
	default:
		switch r.Key[0] {
		case 'r':
			rec = new(fence.Run)
		case 'e':
			rec = new(fence.Effect)
		case 'i':
			rec = new(fence.Inbound)
		case 'o':
			rec = new(fence.Report)
		case 'x':
			rec = new(fence.Reference)
		default:
			return nil, fmt.Errorf("ledger: row %q is of no known kind", r.Key)
		}
	}
	if err := json.Unmarshal(r.body, rec); err != nil {
		return nil, fmt.Errorf("ledger: decode row %q: %w", r.Key, err)
	}
	return rec, nil
}

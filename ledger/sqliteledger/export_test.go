package sqliteledger

import (
	"context"

	"github.com/fencedrun/fencedrun/internal/seam"
)

// Unflushed makes a store that never waits for the disk, for tests that write a lot and pull no
// plug.
func Unflushed(s *Store) *Store {
	off := &query{"pragma synchronous = off"}
	s.flushed, s.unflushed = off, off
	return s
}

// OpenReadOnly opens a file as if this process were not allowed to write it, which the tests'
// user may well be.
func OpenReadOnly(ctx context.Context, path string) (*Store, error) {
	return open(ctx, path, nil, seam.Real(), false, "&mode=ro")
}

// Synchronous returns how the last transaction was committed: 1 normal, 2 full.
func Synchronous(s *Store) (level int, err error) {
	err = s.alone(context.Background(), func(ctx context.Context) error {
		return s.writer.conn.QueryRowContext(ctx, "pragma synchronous").Scan(&level)
	})
	return level, err
}

// Disconnect throws the connection for writing away, as after an error of the disk.
func Disconnect(s *Store) error {
	return s.alone(context.Background(), func(context.Context) error { return s.writer.discard() })
}

// Queries are the texts whose plans matter, by name.
var Queries = map[string]string{
	"load": load.text, "peek": peek.text, "absent": absent.text, "put": put.text, "update": update.text, "renew": renew.text, "renewed": renewed.text,
	"home": findHome.text, "exhume": exhume.text, "scan_open": scanOpen.text, "scan_due": scanDue.text, "scan_rows": scanRows.text,
	"delete": remove.text, "drop_rows": dropRows.text, "drop_leases": dropLeases.text,
}

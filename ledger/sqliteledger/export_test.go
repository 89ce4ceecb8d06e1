package sqliteledger

// Unflushed makes a store that never waits for the disk, for tests that write a lot and pull no
// plug.
func Unflushed(s *Store) *Store {
	off := &query{"pragma synchronous = off"}
	s.flushed, s.unflushed = off, off
	return s
}

package fence

// Stamp takes a ledger stamp: a fresh seq of the conversation, which serves as order and as
// as-of (rules S1, S3.1).
func (r Rules) Stamp(v View, id Identity) (int64, Change) {
	s := r.start(new(step), v, id)
	n := s.seq()
	s.change.Durable = true
	s.event(Event{Kind: EventStamped})
	return n, s.done()
}

package fence

// Unfinished asks what would refuse this delivery's End with success (rule S10.1), without
// ending anything.
func (r Rules) Unfinished(v View, q EndRequest) (*Refusal, Change) {
	s := r.start(v, q.Identity)
	if s.mustAll(q.Delivery.Inbound) {
		return nil, s.done()
	}
	ref := s.unfinished(q.Delivery)
	if !s.needs.Empty() {
		return nil, s.done()
	}
	return ref, Change{}
}

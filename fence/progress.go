package fence

// ProgressRequest stores what a handler wants its run's next delivery to find (rule S9.1).
type ProgressRequest struct {
	Identity
	Delivery *Delivery
	Value    []byte
}

// SaveProgress stores it, unless the delivery may no longer write.
func (r Rules) SaveProgress(v View, q ProgressRequest) (*Refusal, Change) {
	s := r.start(new(step), v, q.Identity)
	run, ok := s.mustRun(q.Delivery.Run)
	if !ok || s.mustAll(q.Delivery.Inbound) {
		return nil, s.done()
	}
	if ref := s.rights(run, q.Delivery); ref != nil {
		return ref, s.idle()
	}
	s.editRun(run).Progress = q.Value
	s.event(Event{Kind: EventProgressSaved, Run: run.Key, Delivery: run.Delivery.Number})
	return nil, s.done()
}

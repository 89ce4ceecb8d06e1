package sim

// Class says who is at fault: the queue, a worker, the ledger, the provider, or people.
func (f Fault) Class() string {
	switch f {
	case Duplicate, Twin, JobTimeout, Shutdown, ClosedRow, EditedJob, Moved, ReusedID:
		return "queue"
	case StoreError, LostAck, WrittenTwice, StoreSlow, Outage, Cut, LoseWrites:
		return "ledger"
	case NotApplied, TimeoutBefore, TimeoutAfter, LateSend, CrashLate, EffectPanics, EffectSlow, EffectHangs, BigResult, Echo, Grumpy:
		return "provider"
	case Human, HumanTwice, Cancel, EarlyWord, Lookup:
		return "people"
	}
	return "worker"
}

// everyFault lists the faults.
func everyFault() []Fault {
	list := make([]Fault, 0, faults)
	for f := NoFault + 1; f < faults; f++ {
		list = append(list, f)
	}
	return list
}

// harmless says why a fault of the queue, a worker or the provider makes no duplicate alone,
// even without the library; and why one of people's breaks no rule alone.
var harmless = map[Fault]string{
	PauseShort: "a pause alone makes no queue deliver again; Duplicate and JobTimeout do that",
	PauseLease: "a pause alone makes no queue deliver again; Duplicate and JobTimeout do that",
	EffectSlow: "it is slow and succeeds",
	BigResult:  "without the library nobody keeps results",
	ClockStep:  "without the library nobody asks a worker's clock",
	EditedJob:  "an edited job is still delivered once",
	Moved:      "without the library nothing is bound to a conversation",
	ReusedID:   "without the library nothing is bound to a job's id",
	Human:      "a person is one more writer: it breaks no rule that a second job does not break as well",
	Lookup:     "no world lasts longer than the retention",
	Echo:       "without the library nobody listens to the provider's webhooks",
}

package fence

// Delivery is what one execution of a run carries with it in its process: its right to write,
// and what it has seen. What has been seen belongs to the delivery, never to the run (rule
// S5, catching up); an older delivery cannot inherit it because it is not in the ledger.
//
// Transitions return a changed copy; the caller keeps the newest.
type Delivery struct {
	Run     RunKey
	ID      DeliveryID
	Mode    Mode
	Order   Order
	Reads   Reads
	Inbound []string
	// Seen is the seq up to which this delivery knows the conversation.
	Seen int64
	// CaughtUp is the seq of the last explicit CatchUp, 0 before the first.
	CaughtUp int64
	// FirstSeq is the run's: nothing it wrote landed before.
	FirstSeq int64
	// Replayed holds the seqs of landings that were replayed to this delivery, and so are no
	// news to it (rule S5.1).
	Replayed []int64
	// Earlier are the landings of earlier deliveries of its run that only an explicit CatchUp
	// covers (rule S5.3), as of the seq Looked; 0 means that nobody has looked yet. They are
	// kept so that a redelivered run with a long past is read once, not at every claim.
	Earlier []*Landed
	Looked  int64
	// Taken are the inbound ids of its own job that an unresolved effect had taken when it
	// last caught up (rule S10.1).
	Taken []string
	// Waits are the claims whose being pending refused it (rule S4.6).
	Waits []string
	// Refused is the signature of the last refusal with no CatchUp since; Twice says that it
	// came a second time: the job is to be parked (rule S5, catching up).
	Refused string
	Twice   bool
}

// Refusal says why something may not happen, with all that a caller, a queue or a person
// needs to go on.
type Refusal struct {
	Reason Reason
	// ComeBack says that waiting helps: try again, at At if it is set. A refusal that is
	// neither ComeBack nor settled by the handler is for good.
	ComeBack bool
	At       Millis
	// Stale says that a later delivery of the same run holds the right to write.
	Stale bool
	// Unknown says that an ambiguous effect stands in the way: only a probe, late evidence or
	// a person can help.
	Unknown bool
	// Conflicts are the effects and reports that stand in the way; More says that there may be
	// older ones, which CatchUp lists.
	Conflicts []Conflict
	More      bool
	// Answered and Open are for already_answered: which of the ids are answered, by what, and
	// which are still open.
	Answered []Conflict
	Open     []string
	// Stored and Asked are the two canonical params of params_changed.
	Stored, Asked string
	// Twice says that the same conflicts refused this run before, with no CatchUp between.
	Twice bool
	// Again says that the provider's key window, or the intent, allows another call.
	Again bool
}

// Conflict is one effect or report that stands in the way.
type Conflict struct {
	ID       string // of the effect or report
	Report   bool
	Intent   string
	Key      string
	Summary  string
	State    State
	Run      RunKey
	Delivery int64
	Call     int // its number, 0 if not known
	Seq      int64
	Deadline Millis   // of its claim
	Inbound  []string // the inbound ids concerned, for already_answered
}

func (u *Unresolved) conflict() Conflict {
	deadline := u.Deadline
	if u.State == Ambiguous {
		deadline = max(deadline, u.Latest)
	}
	return Conflict{
		ID: u.Effect, Intent: u.Intent, Key: u.Key, Summary: u.Summary, State: u.State,
		Run: u.Run, Delivery: u.Delivery.Number, Call: u.Call, Seq: u.Seq, Deadline: deadline,
	}
}

func (l *Landed) conflict() Conflict {
	return Conflict{
		ID: l.ID, Report: l.Report, Intent: l.Intent, Key: l.Key, Summary: l.Summary, State: Committed,
		Run: l.Run, Delivery: l.Delivery.Number, Seq: l.Seq,
	}
}

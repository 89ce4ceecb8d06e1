package fence

// The words of this file are persisted, logged and shown to people. They are stable.

// State is what is known of an effect, or of one call of it. The zero State is no answer.
type State string

// The states of rule S2. A call is never "none": an effect without a record has no State.
const (
	Pending   State = "pending"   // claimed; the call may be under way
	Committed State = "committed" // it happened
	Failed    State = "failed"    // it is known not to have happened
	Ambiguous State = "ambiguous" // nobody knows: the outcome is unknown
)

// RunState is where a run is in its life (rule S2). Superseded is not a state of a run but a
// relation between runs, computed when it is asked for (rule S4.6).
type RunState string

// The states of a run.
const (
	RunActive    RunState = "active"
	RunEnded     RunState = "ended"
	RunCancelled RunState = "cancelled"
)

// EndReason says why a run ended (rule S10.2).
type EndReason string

// The reasons of rule S10.2. Only a run that ended with success is finished (rule S4.3).
const (
	EndSuccess    EndReason = "success"
	EndDiscarded  EndReason = "discarded"
	EndSuperseded EndReason = "superseded"
)

// Mode says how runs of one conversation share it (rules S4.6, S4.7).
type Mode string

// The modes.
const (
	Supersede Mode = "supersede" // a newer run takes over; the default
	Exclusive Mode = "exclusive" // one holder at a time, the others wait
)

// Reads says when a handler reads the conversation (rule S4.8). There is no default: the
// wrong choice duplicates, blocks or loses.
type Reads string

// The ways of reading.
const (
	AfterBegin  Reads = "after_begin"  // the handler reads after it was entered, or not at all
	FromPayload Reads = "from_payload" // the job's payload carries a snapshot
)

// Policy says which changes of the conversation refuse an effect (rule S5.3).
type Policy string

// The policies.
const (
	AnyChange  Policy = "any" // any effect or outside write of somebody else; the default
	SameIntent Policy = "same_intent"
	NoChange   Policy = "none"
)

// Reason says why something was refused or stopped. One word per idea.
type Reason string

// The reasons. Those up to ReasonWaitTimeout refuse; the rest stop a job.
const (
	ReasonSuperseded           Reason = "superseded"
	ReasonConversationChanged  Reason = "conversation_changed"
	ReasonAlreadyAnswered      Reason = "already_answered"
	ReasonUnresolved           Reason = "unresolved"
	ReasonParamsChanged        Reason = "params_changed"
	ReasonInFlight             Reason = "in_flight"
	ReasonAmbiguous            Reason = "ambiguous"
	ReasonNoRun                Reason = "no_run"
	ReasonCancelled            Reason = "cancelled"
	ReasonEnded                Reason = "ended"
	ReasonBusy                 Reason = "busy"
	ReasonExhausted            Reason = "exhausted"
	ReasonConversationMismatch Reason = "conversation_mismatch"
	ReasonNotStarted           Reason = "not_started"
	ReasonWaitTimeout          Reason = "wait_timeout"

	ReasonStalePayload Reason = "stale_payload"
	ReasonRefusedTwice Reason = "refused_twice"
	ReasonLeaseLost    Reason = "lease_lost"
	ReasonReplayOnly   Reason = "replay_only"
	ReasonTakenAgain   Reason = "open_again"
	ReasonFinished     Reason = "finished"
	ReasonLedger       Reason = "ledger"
	ReasonValueNotKept Reason = "value_not_kept"
	ReasonInvalid      Reason = "invalid"
)

// EventKind names what an observer is told.
type EventKind string

// The events. Their texts are in Describe; which transition raises which is in its file.
const (
	EventBegun          EventKind = "begun"           // a delivery was entered for the first time
	EventResumed        EventKind = "resumed"         // a later delivery of a known run was entered
	EventReopened       EventKind = "reopened"        // a discarded or superseded run was pressed to run again (S4.3)
	EventNewGeneration  EventKind = "new_generation"  // the queue reused the id for new work (S4.3, S4.4, S4.5)
	EventDigestChanged  EventKind = "digest_changed"  // somebody edited a waiting job (S4.2)
	EventFinishedAgain  EventKind = "finished_again"  // a job that had ended with success was delivered again (S4.3)
	EventTombstoneBound EventKind = "tombstone_bound" // a job cancelled before it began has arrived (S4.4)
	EventRefused        EventKind = "refused"         // a Begin, claim or End was refused
	EventClaimed        EventKind = "claimed"         // a call was granted
	EventReplayed       EventKind = "replayed"        // a stored result was given instead of a call
	EventCommitted      EventKind = "committed"       // an effect is known to have happened
	EventFailed         EventKind = "failed"          // a call is known not to have applied
	EventAmbiguous      EventKind = "ambiguous"       // the outcome of a call became unknown
	EventLapsed         EventKind = "lapsed"          // a pending claim outlived its deadline (S5.0)
	EventLate           EventKind = "late"            // evidence arrived after the claim's deadline or a verdict (S7.3)
	EventDuplicate      EventKind = "duplicate"       // a second success, or success after "did not happen" (S7.3)
	EventVanished       EventKind = "vanished"        // the record of a settled claim was gone and was re-created (S7.4)
	EventCaughtUp       EventKind = "caught_up"       // a run marked what it reads from now on as current
	EventDismissed      EventKind = "dismissed"       // an inbound message was closed without an answer (S4.9)
	EventUnanswered     EventKind = "unanswered"      // a run ended while a message of its job was open (S4.9)
	EventReported       EventKind = "reported"        // something else wrote to the conversation (S5)
	EventEcho           EventKind = "echo"            // a report was one of our own effects (S5)
	EventResolved       EventKind = "resolved"        // a person or a probe decided an unknown (S8)
	EventProbed         EventKind = "probed"          // a probe was made, and the outcome is still unknown (S8)
	EventCancelled      EventKind = "cancelled"       // a run was cancelled (S10.3)
	EventReleased       EventKind = "released"        // a handler returned without ending its run (S10.2)
	EventParked         EventKind = "parked"          // a job was stopped for a person or a probe (S1)
	EventEnded          EventKind = "ended"           // a run ended (S10.2)
	EventStaleEnd       EventKind = "stale_end"       // an old delivery's End changed nothing (S10.2)
	EventInboundDropped EventKind = "inbound_dropped" // an open message outlived the retention (S10.5)
	EventPurged         EventKind = "purged"          // records past their retention were deleted (S10.4)
	EventStamped        EventKind = "stamped"         // a ledger stamp was taken
	EventLeaseLost      EventKind = "lease_lost"      // a handler's ctx was cancelled because it may no longer write (S9)
	EventComeBack       EventKind = "come_back"       // a delivery was sent back to its queue without spending an attempt
	EventNotRecorded    EventKind = "not_recorded"    // an outcome could not be written down (S7.1)
	EventValueNotKept   EventKind = "value_not_kept"  // a result was too large or not encodable (S7.5)
	EventLedgerError    EventKind = "ledger_error"    // the ledger could not be asked
	EventProgressSaved  EventKind = "progress_saved"  // a handler stored its progress (S9.1)
	EventLeaseRejoined  EventKind = "lease_rejoined"  // a lapsed lease that nobody had used was taken up again (S9.4)
)

package runs

import "github.com/fencedrun/fencedrun/fence"

// What is known of an effect or a call (rule S2).
const (
	Pending   = fence.Pending   // claimed; the call may be under way
	Committed = fence.Committed // it happened
	Failed    = fence.Failed    // it is known not to have happened
	Ambiguous = fence.Ambiguous // nobody knows
)

// The reasons of refusals and verdicts. Most have a sentinel error: ErrSuperseded and so on.
const (
	ReasonSuperseded           = fence.ReasonSuperseded
	ReasonConversationChanged  = fence.ReasonConversationChanged
	ReasonAlreadyAnswered      = fence.ReasonAlreadyAnswered
	ReasonUnresolved           = fence.ReasonUnresolved
	ReasonParamsChanged        = fence.ReasonParamsChanged
	ReasonInFlight             = fence.ReasonInFlight
	ReasonAmbiguous            = fence.ReasonAmbiguous
	ReasonNoRun                = fence.ReasonNoRun
	ReasonCancelled            = fence.ReasonCancelled
	ReasonEnded                = fence.ReasonEnded
	ReasonBusy                 = fence.ReasonBusy
	ReasonExhausted            = fence.ReasonExhausted
	ReasonConversationMismatch = fence.ReasonConversationMismatch
	ReasonNotStarted           = fence.ReasonNotStarted
	ReasonWaitTimeout          = fence.ReasonWaitTimeout
	ReasonStalePayload         = fence.ReasonStalePayload
	ReasonRefusedTwice         = fence.ReasonRefusedTwice
	ReasonLeaseLost            = fence.ReasonLeaseLost
	ReasonReplayOnly           = fence.ReasonReplayOnly
	ReasonTakenAgain           = fence.ReasonTakenAgain
	ReasonFinished             = fence.ReasonFinished
	ReasonLedger               = fence.ReasonLedger
	ReasonValueNotKept         = fence.ReasonValueNotKept
	ReasonInvalid              = fence.ReasonInvalid
)

// The events that an observer is told.
const (
	EventBegun          = fence.EventBegun          // a delivery was entered for the first time
	EventResumed        = fence.EventResumed        // a later delivery of a known run was entered
	EventReopened       = fence.EventReopened       // a discarded or superseded run was pressed to run again (S4.3)
	EventNewGeneration  = fence.EventNewGeneration  // the queue reused the id for new work (S4.3, S4.4, S4.5)
	EventDigestChanged  = fence.EventDigestChanged  // somebody edited a waiting job (S4.2)
	EventFinishedAgain  = fence.EventFinishedAgain  // a job that had ended with success was delivered again (S4.3)
	EventTombstoneBound = fence.EventTombstoneBound // a job cancelled before it began has arrived (S4.4)
	EventRefused        = fence.EventRefused        // a Begin, claim or End was refused
	EventClaimed        = fence.EventClaimed        // a call was granted
	EventReplayed       = fence.EventReplayed       // a stored result was given instead of a call
	EventCommitted      = fence.EventCommitted      // an effect is known to have happened
	EventFailed         = fence.EventFailed         // a call is known not to have applied
	EventAmbiguous      = fence.EventAmbiguous      // the outcome of a call became unknown
	EventLapsed         = fence.EventLapsed         // a pending claim outlived its deadline (S5.0)
	EventLate           = fence.EventLate           // evidence arrived after the claim's deadline or a verdict (S7.3)
	EventDuplicate      = fence.EventDuplicate      // a second success, or success after "did not happen" (S7.3)
	EventVanished       = fence.EventVanished       // the record of a settled claim was gone and was re-created (S7.4)
	EventCaughtUp       = fence.EventCaughtUp       // a run marked what it reads from now on as current
	EventDismissed      = fence.EventDismissed      // an inbound message was closed without an answer (S4.9)
	EventUnanswered     = fence.EventUnanswered     // a run ended while a message of its job was open (S4.9)
	EventReported       = fence.EventReported       // something else wrote to the conversation (S5)
	EventEcho           = fence.EventEcho           // a report was one of our own effects (S5)
	EventResolved       = fence.EventResolved       // a person or a probe decided an unknown (S8)
	EventProbed         = fence.EventProbed         // a probe was made, and the outcome is still unknown (S8)
	EventCancelled      = fence.EventCancelled      // a run was cancelled (S10.3)
	EventReleased       = fence.EventReleased       // a handler returned without ending its run (S10.2)
	EventParked         = fence.EventParked         // a job was stopped for a person or a probe (S1)
	EventEnded          = fence.EventEnded          // a run ended (S10.2)
	EventStaleEnd       = fence.EventStaleEnd       // an old delivery's End changed nothing (S10.2)
	EventInboundDropped = fence.EventInboundDropped // an open message outlived the retention (S10.5)
	EventPurged         = fence.EventPurged         // records past their retention were deleted (S10.4)
	EventStamped        = fence.EventStamped        // a ledger stamp was taken
	EventLeaseLost      = fence.EventLeaseLost      // a handler's ctx was cancelled because it may no longer write (S9)
	EventComeBack       = fence.EventComeBack       // a delivery was sent back to its queue without spending an attempt
	EventNotRecorded    = fence.EventNotRecorded    // an outcome could not be written down (S7.1)
	EventValueNotKept   = fence.EventValueNotKept   // a result was too large or not encodable (S7.5)
	EventLedgerError    = fence.EventLedgerError    // the ledger could not be asked
	EventProgressSaved  = fence.EventProgressSaved  // a handler stored its progress (S9.1)
	EventLeaseRejoined  = fence.EventLeaseRejoined  // a lapsed lease that nobody had used was taken up again (S9.4)
)

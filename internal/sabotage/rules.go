package sabotage

// The rules that can be switched off. The words name the mistake, not the rule.

// What an effect and a run are: sections 2 and 3.
var (
	LastCallDecides      = rule("S2.3", "last-call-decides", "an effect's state is its last call's")
	CommittedNotFinal    = rule("S2", "committed-not-final", "a committed effect can become failed")
	NumbersRestart       = rule("S3.1", "numbers-restart", "a conversation that was lost and re-created counts from one")
	DeliveryByNumberOnly = rule("S3.2", "delivery-by-number-only", "a delivery is known by its number alone")
	PeersSupersede       = rule("S3.4", "peers-supersede", "orders of different sources are compared by number")
)

// Who may begin: section 4.
var (
	BeginNonceIgnored     = rule("S4", "begin-nonce-ignored", "a repeated Begin makes another delivery")
	RefusedLeavesRun      = rule("S4.1", "refused-leaves-run", "a Begin that is refused leaves a run behind")
	RedeliveryIsNewRun    = rule("S4.2", "redelivery-is-new-run", "delivery numbers restart")
	FinishedRunsAgain     = rule("S4.3", "finished-runs-again", "a run that ended with success is entered again")
	DigestIgnored         = rule("S4.3", "digest-ignored", "another payload under a finished id is acknowledged unhandled")
	EditIsHandled         = rule("S4.2", "edit-is-handled", "a job that was edited after it wrote is acknowledged by ReplayOnly, its new payload unhandled")
	DiscardedIsFinal      = rule("S4.3", "discarded-is-final", "a discarded job that is pressed to run again is acknowledged unhandled")
	CancelForgotten       = rule("S4.4", "cancel-forgotten", "a cancelled run may begin")
	RunsAnywhere          = rule("S4.5", "runs-anywhere", "an active run may be resumed on another conversation")
	NoSupersede           = rule("S4.6", "no-supersede", "a newer run takes over from nobody")
	LapsedLeaseSupersedes = rule("S4.6", "lapsed-lease-supersedes", "a newer run whose lease has lapsed still supersedes")
	SupersededIsFinal     = rule("S4.6", "superseded-is-final", "a newer run that wrote supersedes although messages are open")
	WaitsForgotten        = rule("S4.6", "waits-forgotten", "a run refused by a pending effect is entered while it is still pending")
	ExclusiveNotExclusive = rule("S4.7", "exclusive-not-exclusive", "mode exclusive lets several in")
	PayloadIsFresh        = rule("S4.8", "payload-is-fresh", "a payload's snapshot counts as read now")
	RefusedForgetsInbound = rule("S4.9", "refused-forgets-inbound", "a refused Begin does not register the messages its job brings")
	UnansweredSilently    = rule("S4.9", "unanswered-silently", "a run may end and say nothing of a message left open")
)

// What may be claimed: section 5.
var (
	ExpiredBecomesFailed   = rule("S5.0", "expired-becomes-failed", "a pending claim past its deadline is taken as not applied")
	NeverLapses            = rule("S5.0", "never-lapses", "a pending claim past its deadline stays pending")
	OwnAnswerSupersedes    = rule("S4.6", "own-answer-supersedes", "a run that answered its own message is superseded by a newer one that wrote")
	ParamsIgnored          = rule("S5.1", "params-ignored", "other params under the same key are replayed")
	PendingRetried         = rule("S5.1", "pending-retried", "an effect that is pending is called again")
	AmbiguousRetried       = rule("S5.1", "ambiguous-retried", "an effect whose outcome is unknown is called again")
	ReplayCoversAll        = rule("S5.1", "replay-covers-all", "a replay is given though the caller names a message it does not answer")
	RightsBeforeReplay     = rule("S5.1", "rights-before-replay", "a run that may no longer write gets no replay")
	NoFence                = rule("S5.2", "no-fence", "any delivery may write")
	StaleDeliveryWrites    = rule("S5.2", "stale-delivery-writes", "an older delivery of the same run may write")
	NoConversationCheck    = rule("S5.3", "no-conversation-check", "a claim does not look at what changed")
	UnresolvedIgnored      = rule("S5.3", "unresolved-ignored", "unresolved effects of the same intent do not conflict")
	UnresolvedBySeqOnly    = rule("S5.3", "unresolved-by-seq-only", "an unresolved effect stops conflicting once it was seen")
	OwnEarlierCovered      = rule("S5.3", "own-earlier-covered", "Begin's catching up covers effects of earlier deliveries")
	AnswersIgnored         = rule("S5.4", "answers-ignored", "a message may be answered by several effects")
	CallsUnlimited         = rule("S5.6", "calls-unlimited", "failed calls are not limited")
	NotStartedCounts       = rule("S5.6", "not-started-counts", "a call that never reached the provider counts against the limit")
	OwnClaimUnknown        = rule("S5.7", "own-claim-unknown", "a claim whose answer was lost is not recognised when it is asked for again")
	ClaimNotDurable        = rule("S5.7", "claim-not-durable", "the effect is called before its claim is written")
	LostAnswerIsRight      = rule("S5.7", "lost-answer-is-right", "a claim whose answer was lost is taken as a right to send")
	RefusedForEver         = rule("S5", "refused-for-ever", "a run that never looks is refused without end")
	RefusalCatchesUp       = rule("S5", "refusal-catches-up", "a refusal counts as catching up")
	ViewSharedByDeliveries = rule("S5", "view-shared-by-deliveries", "deliveries of one run share what they have seen")
	ReportsRepeat          = rule("S5", "reports-repeat", "a redelivered webhook is another report")
	EchoIsNews             = rule("S5", "echo-is-news", "our own effect's echo conflicts like a stranger's write")
)

// What a call is and what became of it: sections 2, 6, 7 and 8.
var (
	TimeoutMeansFailed  = rule("S2.2", "timeout-means-failed", "an error that does not say so is taken as not applied")
	LateStartCalls      = rule("S6.3", "late-start-calls", "a claim granted too late is called all the same")
	FenceStands         = rule("S6.4", "fence-stands", "a claim takes the fence number of the one before")
	SettleByHandlerCtx  = rule("S7.1", "settle-by-handler-ctx", "the settle stops with the handler's ctx")
	SettleNeedsRight    = rule("S7.2", "settle-needs-right", "a run that may no longer write cannot say what became of its claim")
	LateOverwrites      = rule("S7.3", "late-overwrites", "late evidence is written to the newest call")
	OneKeyIsTwoDeeds    = rule("S7.3", "one-key-is-two-deeds", "two successes under one key that the provider honours raise duplicate")
	VanishedIgnored     = rule("S7.4", "vanished-ignored", "the outcome of a claim whose record is gone is dropped")
	BigResultFails      = rule("S7.5", "big-result-fails", "a result that cannot be kept is recorded as failed")
	SettledTwice        = rule("S7.6", "settled-twice", "a settle that is repeated is another settle")
	ResolveWhilePending = rule("S8", "resolve-while-pending", "a claim can be resolved while its call is under way")
	ProbesEarly         = rule("S8", "probes-early", "a provider is asked before the quiet period is over")
	NotFoundBelieved    = rule("S8", "not-found-believed", "\"not applied\" is taken from a provider that does not show at once what it accepted")
	ProbesCrowd         = rule("S8", "probes-crowd", "several ask about one effect at the same time")
	LateProbes          = rule("S8", "late-probes", "whoever slept after the right to ask was granted asks all the same")
	OldProbeCounts      = rule("S8", "old-probe-counts", "an answer counts although another call was made since the question")
)

// Leases, ends and retention: sections 9 and 10.
var (
	BeatsForEver      = rule("S9.1", "beats-for-ever", "renewal goes on after the queue's ctx is done")
	ProgressForgotten = rule("S9.1", "progress-forgotten", "the next delivery does not find the progress of the one before")
	LeaseNeeded       = rule("S9.3", "lease-needed", "in mode supersede a claim needs a live lease")
	NoWatchdog        = rule("S9.4", "no-watchdog", "mode exclusive goes on when its lease may have run out")
	UsedLeaseForgiven = rule("S9.4", "used-lease-forgiven", "a lapsed lease that another holder has used since is no loss")
	LateBeginReleases = rule("S9.4", "late-begin-releases", "a Begin that took too long gives up the lease it took from a handler at work")
	LeaseLossRetries  = rule("S9.5", "lease-loss-retries", "a pending effect is called again once its caller's lease has lapsed")
	EndUnchecked      = rule("S10.1", "end-unchecked", "a run ends with success whatever is unresolved")
	TakenForgotten    = rule("S10.1", "taken-forgotten", "a run ends although a message it left to others is open again")
	OldEndEndsNew     = rule("S10.2", "old-end-ends-new", "an older delivery's End ends the run")
	EndedWrites       = rule("S10.2", "ended-writes", "a run that has ended may still write")
	CancelledWrites   = rule("S10.3", "cancelled-writes", "a run that was cancelled may still write")
	PurgeBeforeRun    = rule("S10.4", "purge-before-run", "effects are purged before the run that may ask for them")
	PurgesUnresolved  = rule("S10.4", "purges-unresolved", "pending, ambiguous and live things are purged like others")
	DroppedSilently   = rule("S10.5", "dropped-silently", "an open message that outlives the retention goes without a word")
)

// CounterTags is the ledger's.
var CounterTags = rule("S3.2", "counter-tags", "the tag that compare-and-swap compares is a counter")

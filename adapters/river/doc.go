// Package riverruns makes the jobs of github.com/riverqueue/river fenced runs.
//
// A [Plugin] goes first into the Plugins of every client that works jobs. Clients
// that only insert them have the plugin too, or a [Stamper], which needs no
// ledger.
//
//	fenced, err := riverruns.NewPlugin(keeper, &riverruns.Config{
//		Inbound: riverruns.FromArgs,
//		Reads:   runs.AfterBegin,
//	})
//	config := &river.Config{Plugins: []rivertype.Plugin{fenced}, …}
//	err = fenced.Check(config)
//
// Job args say what a job works on by methods, which the plugin asks at insert
// and stamps into the job's metadata (Insert, InsertTx, InsertMany and
// InsertManyFast alike):
//
//	func (ReplyArgs) Conversation() string  // needed
//	func (ReplyArgs) Inbound() []string     // needed with FromArgs
//	func (ReplyArgs) Order() runs.Order     // if not the job's id, see below
//	func (ReplyArgs) AsOf() int64           // for runs.FromPayload
//
// Workers stay as they are and find their run in their ctx ([runs.FromContext]).
// What a worker returns goes to River as it came, unless the run itself decides:
//
//	the run                              River sees
//	done, or finished before             nil
//	superseded for good, or cancelled    nil, with a note in the job's metadata (or JobCancel: Config.CancelDropped)
//	to come back, or busy                JobSnooze
//	parked                               JobCancel with the reason; JobRetry resumes the run
//	discarded                            JobCancel with the reason
//	retried                              an error: an attempt is spent
//	stale                                a value that leaves the row alone
//
// When the run decides, the error is a [*runs.VerdictError], which an ErrorHandler
// finds with errors.As. It hides what the worker's own error wraps, because River
// looks for JobSnooze and JobCancel through the whole chain; the text is kept.
//
// # What River does, and what follows
//
// River applies what a delivery returns to the job's row if the row is running,
// whichever delivery made it so. A delivery that is no longer the current one,
// because the job was rescued while it lived, must not return anything of the
// ordinary kind; the plugin returns the one value that River leaves unreported.
// A Worker.Middleware, or a plugin before this one, can hide that value, and a
// version of River that this package was not tested with need not know it. Then
// the plugin holds the return until the newer delivery has ended.
//
// A job's id and attempt do not identify a delivery: both repeat after a snooze
// and a soft stop. The ledger numbers deliveries.
//
// A newer job is one with a larger id. A job scheduled for the future was
// inserted long before; let its args give an Order.
//
// On a soft stop River keeps the attempt of a job whose worker returns the ctx's
// error, and runs it once more. If the run decided meanwhile, its verdict counts.
// A job cancelled remotely is cancelled whatever is returned.
//
// A completed job can be delivered again, because River writes completions in
// batches; it is acknowledged without entering the worker.
//
// A resumable step (river.ResumableStep) that fails does not make the worker fail: River
// makes an error of the worker's nil afterwards. The run then goes on with the job's next
// attempt; what the step's error was, a refusal for instance, only River sees.
//
// A job whose Timeout is -1 is never rescued by River: after a crash it stays
// running. The plugin warns when it sees one.
//
// river.JobCompleteTx of a delivery that is no longer the current one completes
// the row under the newer one and returns no error. Use [CompleteTx] in workers of
// fenced jobs, which asks the run first.
package riverruns

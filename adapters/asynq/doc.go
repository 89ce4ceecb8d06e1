// Package asynqruns makes the tasks of github.com/hibiken/asynq fenced runs.
//
// A worker needs two hooks: [Adapter.Middleware] on its mux, and
// [Adapter.Config] around its server's configuration. A producer makes its tasks
// with [Adapter.NewTask], or with [Headers] where it has no ledger.
//
//	fenced, err := asynqruns.New(keeper, &asynqruns.Config{
//		Inbound: asynqruns.FromHeaders,
//		Reads:   runs.AfterBegin,
//	})
//	mux.Use(fenced.Middleware)
//	server := asynq.NewServer(redis, fenced.Config(asynq.Config{Concurrency: 10}))
//
// Handlers stay as they are and find their run in their ctx
// ([runs.FromContext]). What a handler returns goes to asynq as it came, unless
// the run itself decides:
//
//	the run                              asynq sees
//	done, or finished before             nil
//	superseded for good, or cancelled    nil, with a note as the task's result (or RevokeTask: Config.Revoke)
//	to come back, or busy                an error that is no failure: retried after a delay, no retry spent
//	parked                               an error with SkipRetry: archived; RunTask resumes the run
//	discarded                            an error with SkipRetry: archived
//	retried                              an error: a retry is spent
//	stale                                nothing yet: the return is held until the newer delivery has ended
//
// When the run decides, the error is a [*runs.VerdictError], which an ErrorHandler
// finds with errors.As. It hides what the handler's own error wraps, because asynq
// looks for RevokeTask and SkipRetry through the whole chain; the text is kept.
//
// # What asynq does, and what follows
//
// Asynq delivers a task at least once and knows a delivery by the task's id
// alone. The same task runs twice at once after a timeout, after a shutdown that
// did not wait for it, after a failover of Redis, and when one id is used in two
// queues of one server; the retry count does not tell the deliveries apart. So a
// run is keyed by queue and id, and the ledger numbers its deliveries.
//
// Asynq ignores what a handler returns once its ctx is done. The truth about
// what was done is in the ledger before the handler returns; the redelivery finds
// it there.
//
// Asynq archives a task whose last attempt fails even if the error is no
// failure. A busy conversation must not do that, so on the last attempt the
// middleware waits inside, as long as the task's timeout allows. It does the same
// when the server's configuration did not pass through [Adapter.Config].
//
// A task id can be used again once its task is done. [Adapter.NewTask] and
// [Headers] put a nonce into the task's headers, so that new work under an old id
// is never taken for a redelivery.
//
// A task that a Scheduler enqueues again and again keeps its headers, and with them
// its order: its runs are peers. A task that a GroupAggregator makes is a new one:
// give it headers of its own.
//
// Asynq's Timeout counts for the handler and for waiting. Its lease is 30 s and a
// crashed worker's task comes back after a minute or more; a run's lease (30 s by
// default) has run out by then.
package asynqruns

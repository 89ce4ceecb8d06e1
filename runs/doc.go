// Package runs keeps queue workers from doing things twice.
//
// A [Keeper] opens fenced runs over a ledger. Every job that a queue delivers becomes a run
// on a conversation, keyed by queue and job id: a redelivered job resumes its run, a newer
// job on the same conversation supersedes it, and [Run.Once] or [Intent.Once] inside the
// handler does a side effect at most once. It replays the stored result, or refuses and says
// why, or says that the outcome is unknown and keeps it unknown until somebody knows.
//
// Most programs use one of the adapters (adapters/asynq, adapters/river), which call
// [Keeper.Deliver] for every job. Refusals are errors: a handler's plain "return err" is
// right, because the adapter turns the error into the queue's verdict.
//
// Rule numbers such as S5.3 are those of docs/semantics.md.
package runs

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencedrun/fencedrun/chaos/internal/storm"
)

const liveIntro = `Runs the library for real, on processes, servers and a queue, and breaks everything at once:
workers are killed and frozen for longer than they may, their connections to the ledger are
cut between two frames, the queue delivers jobs that somebody is at work on, servers drop their
clients, and the provider answers late, fails, or does something and hangs up. Customers write
in bursts meanwhile; each message is a job that answers what is open and refunds what it is
about. When the time is over, faults stop and what is left is worked off.

Then it counts, in the log of the provider alone: what was done twice? And it asks the ledger
about every message without an answer: it must be listed as open, or its answer as unknown.
Else it was lost silently.

Without flags there is no server: the ledger is a SQLite file, and the coordinator hands out the
jobs by itself. With -ledger postgres or -ledger redis it starts a server of its own on this
machine, which must have one installed, and breaks that as well, every few seconds: the whole
server stands still (SIGSTOP) for longer than leases and claim deadlines; it is killed (an
immediate shutdown of Postgres, SIGKILL to Redis, which flushes each change before it answers)
and started on what it left; or one of Postgres's processes is (SIGKILL), and Postgres recovers.
Both are gone in the end, and the table counts what they went through.

With a URL the server is yours: it is never stopped. Give it one that nobody else needs: its
clients are dropped, and Redis forgets its scripts (SCRIPT FLUSH), which other programs must
bear. What is created there has names that begin with fencedrun_live_, and is removed in the
end, on Ctrl-C too.

What strikes whom depends on the seed, when it does on the machine: two storms of one seed are
alike, not equal. Lease, effect timeout and claim deadline are a second or less, so that a minute
holds thousands of jobs and every deadline is overrun all the time.

Examples:
  fencedrun chaos live                        a quarter of a minute, no server needed
  fencedrun chaos live -without               the same without the library: look at duplicates
  fencedrun chaos live -minutes 5 -queue river -ledger postgres
  fencedrun chaos live -queue asynq -ledger redis -json
  fencedrun chaos live -minutes 5 -queue river -ledger postgres://me@localhost/test
  fencedrun chaos live -minutes 5 -queue asynq -ledger redis://localhost:6379
  fencedrun chaos live -queue asynq -queue-url redis://localhost -ledger postgres://me@localhost/test

It exits with 1 if the library let something be done twice or lost a message silently, and shows
what the provider did and what the ledger remembers; also if it is interrupted; with 2 if the
command line is wrong or a server cannot be used; else with 0. With -without it exits with 0
whatever the duplicates.
`

// Live runs a storm on real processes and servers. It returns the process's exit code. It is also
// what the storm's own processes run, which are this program once more.
func Live(args []string, stdout, stderr io.Writer) int {
	if code, ok := storm.Child(); ok {
		return code
	}
	var c storm.Config
	var asJSON bool
	minutes := 0.25
	f := newFlags("fencedrun chaos live", liveIntro)
	f.stringVar(&c.Ledger, "ledger", "the URL of a server, postgres://… or redis://…, or postgres or redis", "where the ledger is, without TLS; postgres or redis for a server that is started for the storm, and stopped and restarted by it; a SQLite file of its own if not given")
	f.stringVar(&c.Queue, "queue", "one of plain, river, asynq", "what hands out the jobs: plain (the coordinator itself), river (on Postgres or a SQLite file) or asynq (on Redis); plain if not given")
	f.stringVar(&c.QueueURL, "queue-url", "the URL of a server, postgres://… for river, redis://… for asynq, or postgres or redis", "where the queue is, as with -ledger; the ledger's server if that can be; else a SQLite file for river, and asynq needs one")
	f.Float64Var(&minutes, "minutes", minutes, "how long faults strike; up to a minute more for what is left then")
	f.takes["minutes"] = "a whole number or a fraction, 0.05 to 10000"
	f.uint64Var(&c.Seed, "seed", 1, "a whole number, 0 or more", "what strikes whom")
	f.boolVar(&c.Without, "without", "let handlers call the provider directly, without the library and its ledger")
	f.boolVar(&asJSON, "json", "print JSON instead of a table")
	if code, ok := f.parse(args, stdout, stderr); !ok {
		return code
	}
	switch {
	case !(minutes >= 0.05 && minutes <= 10_000): // not a number is neither
		return f.refuse(stderr, f.bad("minutes", minutes))
	case f.set("queue") && c.Queue == "":
		return f.refuse(stderr, f.bad("queue", quote(c.Queue)))
	case c.Without && c.Ledger != "" && c.Queue != "river" && c.Queue != "asynq":
		return f.refuse(stderr, "-ledger means nothing with -without and no queue: there is no ledger")
	}
	c.Duration = time.Duration(minutes * float64(time.Minute))
	c.Progress, c.Terminal = stderr, isTerminal(stderr)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := storm.Run(ctx, c)
	if setup := (*storm.SetupError)(nil); errors.As(err, &setup) {
		return f.refuse(stderr, f.misset(setup))
	}
	if err == nil {
		if asJSON {
			err = encode(stdout, r)
		} else {
			err = r.Write(stdout)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(stderr, "fencedrun chaos live: interrupted; what it had made is removed")
		return exitFound
	case err != nil:
		fmt.Fprintln(stderr, "fencedrun chaos live:", err)
		return exitFound
	case r.Broken():
		fmt.Fprintf(stderr, "fencedrun chaos live: seed %d: with the library, %d duplicates and %d lost messages\n", r.Seed, r.Duplicates, r.Lost)
		return exitFound
	}
	return exitOK
}

// misset names the flag that a storm could not begin with, and what that takes. A URL is not
// shown: it may hold a password.
func (f *flags) misset(setup *storm.SetupError) string {
	name := map[string]string{"Ledger": "ledger", "Queue": "queue", "QueueURL": "queue-url"}[setup.Field]
	if name == "" {
		return setup.Error()
	}
	return fmt.Sprintf("-%s: %v; -%s takes %s", name, setup, name, f.takes[name])
}

// isTerminal reports whether w is something that people look at, where a line can be rewritten.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

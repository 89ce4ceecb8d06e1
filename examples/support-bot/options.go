package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/provider"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/queue"
	"github.com/fencedrun/fencedrun/examples/support-bot/internal/transcript"
)

//go:embed testdata/abcd.jsonl
var sample []byte

const (
	defaultConversations = 12
	maxConversations     = 10_000
	maxWorkers           = 16
)

type options struct {
	queue         string
	server        string // URL of a real Redis or Postgres
	conversations []transcript.Conversation
	n             int // scripts to play
	workers       int
	seed          uint64
	kill          bool
	redeliver     float64
	faults        provider.Faults
	arms          []string
	json          bool
	drain         time.Duration
}

func (o options) scripts() []*transcript.Script { return transcript.Scripts(o.conversations, o.n) }

const usage = `Support-bot plays recorded support conversations against a support bot. Every customer message is a job on a real
queue; worker processes are killed, jobs are delivered twice, and the help desk fails and times out. It does so without
fencedrun and with it, and counts in the help desk's own log what the customers saw.

Usage: support-bot [flags]

Flags:
`

const inputHelp = `
--input takes one conversation a line, as JSON:

  {"convo_id": "c1", "original": [["customer", "Hi!"], ["agent", "Hello, who are you?"], ["action", "The manager has been notified."]]}

"customer" turns are sent in, several in a row as a burst; "agent" turns are what a good bot would answer; "action" turns
are carried out. Malformed lines are reported by number.

Exit status: 0, or 1 if the fenced run shows a duplicate or loses a message, or 2 for a bad flag or input, or a server
that cannot be used.
`

func parseOptions(args []string, help io.Writer) (options, error) {
	flags := flag.NewFlagSet("support-bot", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var (
		o             options
		input         string
		redis         string
		postgres      string
		server        string // the flag that names one
		without, with bool
	)
	flags.StringVar(&o.queue, "queue", queue.Asynq, "the `queue`: asynq or river")
	flags.StringVar(&redis, "redis", "", "with --queue asynq: `URL` of a real Redis with an empty database, for the queue and the ledger of one run at a time (default: miniredis in this process, and a ledger in a SQLite file)")
	flags.StringVar(&postgres, "postgres", "", "with --queue river: `URL` of a real Postgres, for the queue and the ledger; two schemas are created and dropped (default: SQLite files)")
	flags.StringVar(&input, "input", "", "play the conversations of this JSONL `FILE` (default: three of the ABCD data set)")
	flags.IntVar(&o.n, "conversations", 0, "play `N` conversations, repeating them under new ids (default: 12, or each of --input once)")
	flags.IntVar(&o.workers, "workers", 2, "`number` of worker processes")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of kills, redeliveries and faults")
	flags.BoolVar(&o.kill, "kill", true, "kill (SIGKILL) and restart workers at random moments")
	flags.Float64Var(&o.redeliver, "redeliver", 0.1, "share of jobs delivered a second time while the first delivery lives")
	flags.Float64Var(&o.faults.Late, "late", 0.2, "share of the help desk's answers that come late")
	flags.Float64Var(&o.faults.FailBefore, "fail-before", 0.08, "share of requests that fail and do nothing")
	flags.Float64Var(&o.faults.ActAndTimeout, "act-and-timeout", 0.06, "share of requests that are carried out though the client sees a timeout or a broken connection")
	flags.BoolVar(&without, "without", false, "only run without fencedrun")
	flags.BoolVar(&with, "with", false, "only run with fencedrun")
	flags.BoolVar(&o.json, "json", false, "print the result as JSON")
	flags.DurationVar(&o.drain, "drain", 25*time.Second, "how long to wait for the queue to become empty after the last message")

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(help, usage)
			flags.SetOutput(help)
			flags.PrintDefaults()
			fmt.Fprint(help, inputHelp)
		}
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: flags only", flags.Arg(0))
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })

	switch o.queue {
	case queue.Asynq:
		if given["postgres"] {
			return o, errors.New("--postgres: only with --queue river")
		}
		o.server, server = redis, "redis"
	case queue.River:
		if given["redis"] {
			return o, errors.New("--redis: only with --queue asynq")
		}
		o.server, server = postgres, "postgres"
	default:
		return o, fmt.Errorf("--queue: %q is neither asynq nor river", o.queue)
	}
	for _, name := range []string{"redis", "postgres", "input"} {
		if given[name] && flags.Lookup(name).Value.String() == "" {
			return o, fmt.Errorf("--%s: empty", name)
		}
	}
	if err := queue.CheckURL(o.queue, o.server); err != nil {
		return o, fmt.Errorf("--%s: %w", server, err)
	}
	if given["conversations"] && (o.n < 1 || o.n > maxConversations) {
		return o, fmt.Errorf("--conversations: %d is not between 1 and %d", o.n, maxConversations)
	}
	if o.workers < 1 || o.workers > maxWorkers {
		return o, fmt.Errorf("--workers: %d is not between 1 and %d", o.workers, maxWorkers)
	}
	if o.drain <= 0 {
		return o, fmt.Errorf("--drain: %s is not positive", o.drain)
	}
	for _, rate := range []struct {
		name  string
		value float64
	}{
		{"redeliver", o.redeliver}, {"late", o.faults.Late}, {"fail-before", o.faults.FailBefore},
		{"act-and-timeout", o.faults.ActAndTimeout},
	} {
		if !(rate.value >= 0 && rate.value <= 1) { // NaN is neither
			return o, fmt.Errorf("--%s: %v is not between 0 and 1", rate.name, rate.value)
		}
	}
	if o.faults.FailBefore+o.faults.ActAndTimeout > 1 {
		return o, errors.New("--fail-before and --act-and-timeout: more than 1 together")
	}
	o.faults.Seed, o.faults.Deadline = o.seed, deskDeadline

	switch {
	case without && with:
		return o, errors.New("--with and --without: each means only; give neither to run both")
	case !without && !with:
		o.arms = []string{armWithout, armWith}
	case without:
		o.arms = []string{armWithout}
	default:
		o.arms = []string{armWith}
	}

	var err error
	if input == "" {
		o.conversations, err = transcript.Read(bytes.NewReader(sample))
		if o.n == 0 {
			o.n = defaultConversations
		}
	} else {
		o.conversations, err = readInput(input)
		if o.n == 0 {
			o.n = len(o.conversations)
		}
	}
	if err != nil {
		return o, fmt.Errorf("--input: %w", err)
	}
	return o, nil
}

func readInput(path string) ([]transcript.Conversation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	conversations, err := transcript.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	return conversations, nil
}

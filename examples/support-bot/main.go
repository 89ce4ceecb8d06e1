// Support-bot is a support agent on real Asynq or River jobs whose workers are killed, whose jobs are delivered twice and
// whose help desk times out: once as most people write it, once with fencedrun. It counts what the customers saw.
//
//	go run ./examples/support-bot             # Asynq, no server needed
//	go run ./examples/support-bot --queue river
//	go run ./examples/support-bot -h
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1 // the fenced run duplicated or lost something, or the program could not do its work
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	if role := proc.Role(os.Args); role != "" {
		os.Exit(runRole(role))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// runRole is the life of a process that the program started itself.
func runRole(role string) int {
	// Ctrl-C reaches every process of the terminal; the parent decides when its children end.
	signal.Ignore(os.Interrupt)
	var err error
	switch role {
	case roleProvider:
		err = proc.Serve(serveProvider)
	case roleWorker:
		err = proc.Serve(serveWorker)
	default:
		err = fmt.Errorf("no such role: %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "support-bot:", role+":", err)
		return exitFailed
	}
	return exitOK
}

func run(args []string, stdout, stderr *os.File) int {
	o, err := parseOptions(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "support-bot: %v\nRun it with -h to see its flags.\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := show(ctx, o, stdout, stderr)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "support-bot: interrupted")
		return exitInterrupted
	}
	if err != nil {
		fmt.Fprintln(stderr, "support-bot:", err)
		if _, ok := errors.AsType[serverError](err); ok {
			return exitUsage
		}
		return exitFailed
	}
	return status
}

// show plays the workload once per arm and reports.
func show(ctx context.Context, o options, stdout, stderr *os.File) (status int, err error) {
	folder, err := os.MkdirTemp("", "support-bot-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	screen := stdout
	if o.json {
		screen = stderr
	}
	introduce(screen, o)
	results := map[string]*result{}
	for _, name := range o.arms {
		results[name], err = perform(ctx, o, name, folder, newProgress(stderr, name))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	if o.json {
		err = writeJSON(stdout, o, results)
	} else {
		err = writeReport(stdout, o, results)
	}
	if err != nil {
		return 0, fmt.Errorf("write the report: %w", err)
	}
	if fenced := results[armWith]; fenced != nil {
		if complaint := fenced.complaint(); complaint != "" {
			fmt.Fprintln(stderr, "support-bot: with fencedrun:", complaint)
			return exitFailed, nil
		}
	}
	return exitOK, nil
}

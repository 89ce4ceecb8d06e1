//go:build unix

// Command services runs a command, such as go test, with private servers to test against:
//
//	go run ./internal/services -- go test -race ./...
//
// Its -h says the rest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fencedrun/fencedrun/internal/services/private"
)

const usage = `services runs a command with private servers to test against, and stops them afterwards.

  go run ./internal/services [flags] -- COMMAND [ARGUMENTS]
  go run ./internal/services [flags]

Without a command it prints the variables below and waits for Ctrl-C.

Each server listens on a free port of 127.0.0.1, has its data in a folder for temporary files
(under TMPDIR), and runs under your account, or under postgres or nobody if you are root. They
end with the command, with a signal, and on Linux also when this program is killed. The
command finds them in its environment:

  FENCEDRUN_TEST_POSTGRES       URL. 300 connections, default durability, superuser postgres.
  FENCEDRUN_TEST_PGBOUNCER      URL. Transaction mode, 2 connections to that Postgres.
  FENCEDRUN_TEST_REDIS          URL. Appends every change to its file, evicts nothing.
  FENCEDRUN_TEST_REDIS_CLUSTER  host:port,host:port,host:port. 3 masters, no replicas.
  FENCEDRUN_TEST_SERVICES       "required", unless -only is given: tests that need one of the
                                above and do not have it fail instead of being skipped.

A variable that you have set already is left as it is, and its server is not started.

Servers that are not installed are installed from the packages postgresql, pgbouncer and
redis-server if you are root and there is apt-get. Else you are told what is missing.

The exit status is the command's; 128 and the signal's number if one ended it; 1 if the
servers could not be started, 2 for a wrong flag. (go run makes 1 of each.)

Flags:
`

// How long a command that was asked to end may take for it.
const grace = 10 * time.Second

func main() {
	// The command is told when the thread that started it ends, so that is this one.
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:]))
}

// options are what the command line says.
type options struct {
	only    []private.Service
	install bool
	command []string
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{install: true}
	flags := flag.NewFlagSet("services", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	flags.Func("only", "start only these `services`, separated by commas: "+strings.Join(names(private.Services()), ","), func(list string) error {
		for name := range strings.SplitSeq(list, ",") {
			o.only = append(o.only, private.Service(strings.TrimSpace(name)))
		}
		_, err := private.Wanted(o.only, os.LookupEnv)
		return err
	})
	flags.BoolVar(&o.install, "install", o.install, "install packages that are missing, if you are root")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = flags.Args()
	return o, nil
}

func names(services []private.Service) []string {
	var all []string
	for _, s := range services {
		all = append(all, string(s))
	}
	return all
}

// run returns the exit status. What it started is stopped also when it panics.
func run(args []string) (status int) {
	o, err := parse(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if executable, err := os.Executable(); err == nil && strings.Contains(executable, "/go-build") {
		go followGoRun(os.Getppid(), signals)
	}

	group, sig, err := start(o, signals)
	switch {
	case sig != 0:
		return 128 + int(sig)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := group.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}()

	env := group.Env()
	if _, set := os.LookupEnv(private.Required); len(o.only) == 0 && !set {
		env = append(env, private.Required+"=required")
	}
	if len(o.command) == 0 {
		for _, variable := range env {
			name, value, _ := strings.Cut(variable, "=")
			fmt.Printf("export %s='%s'\n", name, value)
		}
		<-signals
		return 0
	}
	return command(o.command, env, signals)
}

// start starts what is wanted and not there yet, until a signal says to give up.
func start(o options, signals <-chan os.Signal) (*private.Group, syscall.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type outcome struct {
		group *private.Group
		err   error
	}
	started := make(chan outcome, 1)
	go func() {
		g, err := wanted(ctx, o)
		started <- outcome{g, err}
	}()
	select {
	case out := <-started:
		return out.group, 0, out.err
	case s := <-signals:
		cancel()
		out := <-started
		if out.group != nil {
			out.err = out.group.Close()
		}
		sig, _ := s.(syscall.Signal)
		return nil, sig, out.err
	}
}

func wanted(ctx context.Context, o options) (*private.Group, error) {
	services, err := private.Wanted(o.only, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if err := private.Missing(services); err != nil {
		var missing *private.MissingError
		if !o.install || !errors.As(err, &missing) {
			return nil, err
		}
		if err := private.Install(ctx, missing, os.Stderr); err != nil {
			return nil, err
		}
	}
	before := time.Now()
	group, err := private.Start(ctx, services, os.Getenv(private.ServicePostgres.Variable()))
	if err == nil && len(services) > 0 {
		fmt.Fprintf(os.Stderr, "services: %s started in %.1f s\n", strings.Join(names(services), ", "), time.Since(before).Seconds())
	}
	return group, err
}

// command runs the command until it ends, and hands signals on to it.
func command(args, env []string, signals <-chan os.Signal) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	private.DieWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "services: run:", err)
		return 127
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState says it too
		close(ended)
	}()
	var late <-chan time.Time
	for {
		select {
		case <-ended:
			state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if ok && state.Signaled() {
				return 128 + int(state.Signal())
			}
			return cmd.ProcessState.ExitCode()
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended meanwhile
			if late == nil {
				late = time.After(grace)
			}
		case <-late:
			fmt.Fprintf(os.Stderr, "services: %s does not end: killed\n", args[0])
			_ = cmd.Process.Kill()
		}
	}
}

// followGoRun sends SIGTERM when the go command that started this program is gone: it hands no
// signal on but Ctrl-C.
func followGoRun(parent int, signals chan<- os.Signal) {
	for os.Getppid() == parent {
		time.Sleep(100 * time.Millisecond)
	}
	signals <- syscall.SIGTERM
}

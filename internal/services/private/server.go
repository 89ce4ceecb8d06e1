//go:build unix

package private

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	startTimeout = 30 * time.Second // for one server until it answers; a busy machine is slow
	stopTimeout  = 10 * time.Second // for one server until it is killed
	pollPeriod   = 20 * time.Millisecond
)

// Server is one process that serves, and can be crashed and started again on its data and port.
// Its methods must not be called at the same time.
type Server struct {
	Dir string // its folder, with its data and server.log
	PID int    // of the process, as long as it runs

	path  string
	args  []string
	quit  syscall.Signal // ends it at once, without writing anything more
	ready func(context.Context) error
	done  chan struct{} // closed when the process is gone
	err   error         // how it ended, after done
}

// start starts the process and waits until it answers.
func (s *Server) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := command(s.Dir, s.path, s.args...)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	// A terminal's Ctrl-C is for the tests; their servers end after them.
	cmd.SysProcAttr.Setpgid = true
	DieWithParent(cmd.SysProcAttr, s.quit)

	s.done, s.err = make(chan struct{}), nil
	started := make(chan error)
	go func() {
		// The kernel takes the end of the thread that started a process for the end of its
		// parent, so this thread waits for it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.err = cmd.Wait()
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		close(s.done)
		return err
	}
	s.PID = cmd.Process.Pid
	if err := s.await(ctx); err != nil {
		return errors.Join(err, s.Crash())
	}
	return nil
}

// await polls until the server is ready, has ended or has taken too long.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.ready(ctx)
		select {
		case <-s.done: // then it was somebody else on that port who answered, if anybody did
			return fmt.Errorf("%s ended while it started: %w\n%s", filepath.Base(s.path), s.err, s.logTail())
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %w\n%s", filepath.Base(s.path), ctx.Err(), err, s.logTail())
		case <-time.After(pollPeriod):
		}
	}
}

// Crash ends the server at once, as if it had crashed: nothing more is written, clients are
// not told. It returns when the process is gone.
func (s *Server) Crash() error { return s.end(s.quit) }

// Stop ends the server, and keeps its data.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

func (s *Server) end(signal syscall.Signal) error {
	if s.PID == 0 {
		return nil
	}
	for _, signal := range []syscall.Signal{signal, syscall.SIGKILL} {
		select {
		case <-s.done: // and its number may be another's by now
			s.PID = 0
			return nil
		default:
		}
		if err := syscall.Kill(s.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("services: stop %s: %w", filepath.Base(s.path), err)
		}
		select {
		case <-s.done:
		case <-time.After(stopTimeout):
		}
	}
	select {
	case <-s.done:
		s.PID = 0
		return nil
	default:
		return fmt.Errorf("services: stop %s: process %d does not end", filepath.Base(s.path), s.PID)
	}
}

// Restart starts a server that was stopped or crashed, on its old port with its old data, and
// returns when it answers.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("services: restart %s: %w", filepath.Base(s.path), err)
	}
	return nil
}

// logTail is the end of what the server wrote.
func (s *Server) logTail() []byte {
	text, err := os.ReadFile(filepath.Join(s.Dir, "server.log"))
	if err != nil {
		return []byte(err.Error())
	}
	const most = 4000
	return bytes.TrimSpace(text[max(0, len(text)-most):])
}

// onFreePort starts a server on a port that seems to be free, and on another one when somebody
// else was faster.
func onFreePort(ctx context.Context, start func(port int) (*Server, error)) (*Server, error) {
	var err error
	for range 3 {
		var port int
		if port, err = freePort(); err != nil {
			return nil, err
		}
		var s *Server
		if s, err = start(port); err != nil {
			return nil, err
		}
		if err = s.start(ctx); err == nil {
			return s, nil
		}
		if ctx.Err() != nil || !bytes.Contains(bytes.ToLower(s.logTail()), []byte("address already in use")) {
			return nil, err
		}
	}
	return nil, err
}

// command prepares a program that runs in dir, under the account that servers run under.
func command(dir, path string, args ...string) (*exec.Cmd, error) {
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	// Nothing of the caller's environment, PGDATA for one, may lead a server elsewhere.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	return cmd, nil
}

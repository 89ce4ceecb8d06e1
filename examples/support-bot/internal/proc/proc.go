// Package proc runs the parts of the example that are processes of their own: the program starts itself again under a
// hidden subcommand, hands its child a configuration on standard input, and reads events from the child's standard output.
//
// A child's standard input stays open for as long as its parent wants it. When it ends, because the parent closed it or
// is gone, however it went, the child stops: nothing is left behind, on any operating system.
package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Event is one line that a child writes.
type Event struct {
	At           time.Time `json:"at"`
	Kind         Kind      `json:"kind"`
	Job          string    `json:"job,omitempty"`
	Conversation string    `json:"conversation,omitempty"`
	Message      string    `json:"message,omitempty"`
	Text         string    `json:"text,omitempty"`
	Worker       int       `json:"worker,omitempty"` // the child's number, filled in by the parent
}

// Kind says what an event is about.
type Kind string

// The kinds of events.
const (
	Ready   Kind = "ready" // the child is at work; Text is its address, if it has one
	Began   Kind = "began" // a delivery of Job begins
	Ended   Kind = "ended" // that delivery returned; Text is its error, if any
	Thought Kind = "model" // the model was called
	Noted   Kind = "note"  // something worth showing in a conversation's transcript
)

const tailSize = 4 << 10

// Process is a child of this process.
type Process struct {
	Number int

	cmd   *exec.Cmd
	stdin io.WriteCloser
	ready chan string
	done  chan struct{}
	err   error // why it ended; read after done
	tail  tail
}

// Start runs this very program again as role. The child gets config as JSON; its events go to onEvent, one at a time, in their order.
func Start(role string, number int, config any, onEvent func(Event)) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	line, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode configuration of %s: %w", role, err)
	}
	p := &Process{Number: number, ready: make(chan string, 1), done: make(chan struct{})}
	p.cmd = exec.Command(program, hidden+role)
	p.cmd.Stderr = &p.tail
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	go p.follow(stdout, onEvent)
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		p.Kill()
		return nil, fmt.Errorf("start %s: %w: %s", role, err, p.tail.String())
	}
	return p, nil
}

// follow hands on what the child says until it ends.
func (p *Process) follow(stdout io.Reader, onEvent func(Event)) {
	defer close(p.done)
	lines := json.NewDecoder(stdout)
	for {
		var event Event
		if err := lines.Decode(&event); err != nil {
			// The end of the pipe, or half a line of a child that was killed while it wrote.
			break
		}
		event.Worker = p.Number
		if event.Kind == Ready {
			select {
			case p.ready <- event.Text:
			default:
			}
		}
		if onEvent != nil {
			onEvent(event)
		}
	}
	_, _ = io.Copy(io.Discard, stdout) // Wait must not be called before the pipe is drained
	p.err = p.cmd.Wait()
}

// AwaitReady waits until the child is at work and returns the address it gave.
func (p *Process) AwaitReady(ctx context.Context) (string, error) {
	select {
	case address := <-p.ready:
		return address, nil
	case <-p.done:
		return "", fmt.Errorf("%s ended before it was ready: %w: %s", p.cmd.Args[1], cmpErr(p.err), p.tail.String())
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Done is closed when the child has ended and its last event was handed on.
func (p *Process) Done() <-chan struct{} { return p.done }

// Why tells how a child that is done ended, with the last it wrote to standard error.
func (p *Process) Why() string {
	<-p.done
	return fmt.Sprintf("%v: %s", cmpErr(p.err), p.tail.String())
}

// Kill ends the child at once, as a crash would (SIGKILL), and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.stdin.Close()
}

// Stop asks the child to end, and kills it if it has not within patience.
func (p *Process) Stop(patience time.Duration) {
	_ = p.stdin.Close()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// tail keeps the end of what a child writes to standard error, to be shown if it fails.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if over := len(t.last) - tailSize; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

const hidden = "__"

// Role returns the role that this process was started for, or "" if it is the program itself.
func Role(args []string) string {
	if len(args) == 2 && len(args[1]) > len(hidden) && args[1][:len(hidden)] == hidden {
		return args[1][len(hidden):]
	}
	return ""
}

// Serve is a child's life: it reads its configuration, runs serve with a ctx that is done when the parent wants the child
// to end or is gone, and returns what serve returned. Whatever serve emits reaches the parent even if the child is killed
// right afterwards.
func Serve[C any](serve func(ctx context.Context, config C, emit func(Event)) error) error {
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var config C
	if err := json.Unmarshal(line, &config); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	return serve(ctx, config, func(event Event) {
		if event.At.IsZero() {
			event.At = time.Now()
		}
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(event) // a parent that is gone needs no events
	})
}

package storm

import (
	"bufio"
	"bytes"
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

// partVariable holds what a process of a storm plays, as JSON.
const partVariable = "FENCEDRUN_STORM_PART"

// part is what a child is told.
type part struct {
	Provider *providerPart `json:"provider,omitempty"`
	Worker   *workerPart   `json:"worker,omitempty"`
}

// event is a line that a child writes.
type event struct {
	Kind    eventKind     `json:"kind"`
	Job     string        `json:"job,omitempty"`
	Address string        `json:"address,omitempty"`
	Action  string        `json:"action,omitempty"` // what the delivery came to, in queue plain
	After   time.Duration `json:"after,omitempty"`
}

type eventKind string

const (
	ready eventKind = "ready" // at work, at Address if there is one
	began eventKind = "began" // a delivery of Job
	ended eventKind = "ended" // it returned
)

// Child plays the part that this process was started for. It reports false if it was started by
// somebody else than a storm; else code is what the process is to exit with.
func Child() (code int, ok bool) {
	text := os.Getenv(partVariable)
	if text == "" {
		return 0, false
	}
	if err := play(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func play(text string) error {
	var p part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("storm: part: %w", err)
	}
	// Standard input stays open for as long as the coordinator wants the child. Its end is the
	// end of the child's ctx.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := make(chan []byte)
	go func() {
		defer cancel()
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	emit := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(e) // a coordinator that is gone needs no events
	}
	if p.Provider != nil {
		return p.Provider.serve(ctx, emit)
	}
	if p.Worker != nil {
		return p.Worker.work(ctx, lines, emit)
	}
	return errors.New("storm: a part without a role")
}

// process is a child, from its parent's side.
type process struct {
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	ready  chan string
	done   chan struct{} // its last event was handed on, and it is gone
	err    error         // why it ended; read after done
	stderr tail
}

// start runs this program again. Its events go to on, one at a time.
func start(number int, p part, on func(number int, e event)) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("storm: find own program: %w", err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("storm: part: %w", err)
	}
	c := &process{number: number, ready: make(chan string, 1), done: make(chan struct{})}
	// Whoever looks at the list of processes sees what they belong to.
	c.cmd = exec.CommandContext(context.Background(), program, "chaos", "live", fmt.Sprintf("(process %d)", number)) //nolint:gosec // it starts itself
	c.cmd.Args[0] = os.Args[0]
	c.cmd.Env = append(os.Environ(), partVariable+"="+string(text))
	c.cmd.SysProcAttr = attributes()
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("storm: start: %w", err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("storm: start: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("storm: start: %w", err)
	}
	go c.follow(stdout, on)
	return c, nil
}

func (c *process) follow(stdout io.Reader, on func(int, event)) {
	defer close(c.done)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // half a line of a child that was killed counts for nothing
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		if e.Kind == ready {
			select {
			case c.ready <- e.Address:
			default:
			}
			continue
		}
		if on != nil {
			on(c.number, e)
		}
	}
	c.err = c.cmd.Wait()
}

// awaitReady returns the address that the child gave.
func (c *process) awaitReady(ctx context.Context) (string, error) {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case address := <-c.ready:
		return address, nil
	case <-c.done:
		return "", fmt.Errorf("storm: a process ended before it was ready: %s", c.why())
	case <-limit.C:
		return "", fmt.Errorf("storm: a process was not ready after %v", startLimit)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// why tells how a child that is done ended.
func (c *process) why() string {
	<-c.done
	status := "exit status 0"
	if c.err != nil {
		status = c.err.Error()
	}
	return status + ": " + c.stderr.String()
}

// send writes a line to the child. What is written to one that dies is lost.
func (c *process) send(v any) {
	if line, err := json.Marshal(v); err == nil {
		_, _ = c.stdin.Write(append(line, '\n'))
	}
}

// kill ends the child as a crash would, also a frozen one, and waits until it is gone.
func (c *process) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
	_ = c.stdin.Close()
}

// stop asks the child to end and kills it if it does not.
func (c *process) stop() {
	_ = thaw(c.cmd.Process)
	_ = c.stdin.Close()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		c.kill()
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	t.last = t.last[max(0, len(t.last)-keep):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.last))
}

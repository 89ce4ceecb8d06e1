package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progress shows that something is going on: one line on standard error that changes in place, or on anything but a
// terminal a line every few seconds.
type progress struct {
	out      *os.File
	name     string
	terminal bool
	began    time.Time
	stop     chan struct{}
	stopped  sync.WaitGroup
}

const (
	progressFast = 200 * time.Millisecond
	progressSlow = 5 * time.Second
	wipe         = "\r\x1b[K"
)

func newProgress(out *os.File, name string) *progress {
	info, err := out.Stat()
	return &progress{out: out, name: name, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// follow shows line until end.
func (p *progress) follow(line func() string) {
	p.began, p.stop = time.Now(), make(chan struct{})
	every := progressSlow
	if p.terminal {
		every = progressFast
	}
	p.stopped.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.print(line())
			case <-p.stop:
				p.print(line())
				if p.terminal {
					fmt.Fprintln(p.out)
				}
				return
			}
		}
	})
}

func (p *progress) print(line string) {
	text := fmt.Sprintf("%s: %2.0f s, %s", p.name, time.Since(p.began).Seconds(), line)
	if p.terminal {
		fmt.Fprint(p.out, wipe+text)
	} else {
		fmt.Fprintln(p.out, text)
	}
}

// say prints a line of its own.
func (p *progress) say(format string, args ...any) {
	if p.terminal {
		fmt.Fprint(p.out, wipe)
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) end() {
	close(p.stop)
	p.stopped.Wait()
}

//go:build unix

package storm

import (
	"os"
	"syscall"
)

const canFreeze = true

// attributes keep the terminal's Ctrl-C from the children: their parent ends them.
func attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	return attr
}

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

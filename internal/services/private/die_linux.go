package private

import "syscall"

// DieWithParent makes the kernel send a signal to the child when its parent is gone, however
// that came about.
func DieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

package storm

import "syscall"

// dieWithParent makes the kernel kill the child when its parent is gone, frozen or not.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

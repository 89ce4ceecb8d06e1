//go:build unix && !linux

package storm

import "syscall"

// dieWithParent does nothing where only Linux has the means. A child notices by itself that its
// parent is gone, unless it is frozen at that moment.
func dieWithParent(*syscall.SysProcAttr) {}

//go:build unix && !linux

package private

import "syscall"

// DieWithParent does nothing where only Linux has the means: a parent that is killed leaves its
// servers behind.
func DieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

//go:build !unix

package storm

import (
	"errors"
	"os"
	"syscall"
)

// There are no pauses where no process can be stopped and continued.
const canFreeze = false

func attributes() *syscall.SysProcAttr { return nil }

func freeze(*os.Process) error { return errors.ErrUnsupported }

func thaw(*os.Process) error { return errors.ErrUnsupported }

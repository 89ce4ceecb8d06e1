//go:build unix

package private

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Folder is a folder for servers. The account that they run under may pass through it, which it
// may not where testing.T.TempDir made a folder for root.
type Folder struct {
	Path string

	lock *os.File
}

const (
	folderPrefix = "fencedrun-services-"
	lockName     = "in-use" // locked by the process that the folder belongs to
)

// NewFolder makes a folder in the system's one for temporary files, and removes those that
// processes have left behind which were killed.
func NewFolder() (*Folder, error) {
	removeStale(os.TempDir())
	path, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("services: make folder: %w", err)
	}
	f := &Folder{Path: path}
	if err := f.occupy(); err != nil {
		return nil, errors.Join(fmt.Errorf("services: make folder: %w", err), f.Close())
	}
	return f, nil
}

func (f *Folder) occupy() error {
	if err := os.Chmod(f.Path, 0o711); err != nil {
		return err
	}
	var err error
	if f.lock, err = os.OpenFile(filepath.Join(f.Path, lockName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	return syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// Close removes the folder with all that is in it.
func (f *Folder) Close() error {
	err := os.RemoveAll(f.Path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("services: remove folder: %w", err)
	}
	return nil
}

func removeStale(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue // it is just being made
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path) // what cannot be removed is tried again next time
		}
		_ = lock.Close()
	}
}

//go:build unix

package private

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged says as whom servers run: nil for the process's own account, and where that is
// root's, which Postgres and PgBouncer refuse, the account of postgres or of nobody.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.ParseUint(account.Uid, 10, 32)
		gid, errG := strconv.ParseUint(account.Gid, 10, 32)
		if errU == nil && errG == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("servers do not run as root, and there is neither an account postgres nor an account nobody")
}

// folder makes dir, which must not exist, for a server that runs under the account of command.
func folder(dir string) error {
	owner, err := unprivileged()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("give %s to the servers' account: %w", dir, err)
		}
	}
	return nil
}

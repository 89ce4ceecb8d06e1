//go:build unix

package private

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Install installs the Debian packages of what is missing, where that can be done without
// asking: for root, on a system with apt-get. What apt-get says goes to out. No server is
// started, and those that are installed already are not looked at. Elsewhere missing comes
// back, with the reason.
func Install(ctx context.Context, missing *MissingError, out io.Writer) error {
	_, err := exec.LookPath("apt-get")
	switch {
	case err != nil:
		return &MissingError{Services: missing.Services, Why: "there is no apt-get to install it with"}
	case os.Geteuid() != 0:
		return &MissingError{Services: missing.Services, Why: "installing takes root"}
	}
	fmt.Fprintf(out, "services: install %s\n", strings.Join(missing.Packages(), ", "))
	restore, err := holdServers("/usr/sbin/policy-rc.d")
	if err != nil {
		return fmt.Errorf("services: install %s: %w", strings.Join(missing.Packages(), ", "), err)
	}
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing.Packages()...)
	if err = aptGet(ctx, out, install...); err != nil {
		// The lists of a new machine are empty, and those of an old one name what is gone.
		if err = aptGet(ctx, out, "update", "-q"); err == nil {
			err = aptGet(ctx, out, install...)
		}
	}
	if err := errors.Join(err, restore()); err != nil {
		return fmt.Errorf("services: install %s: %w", strings.Join(missing.Packages(), ", "), err)
	}
	return Missing(missing.Services)
}

func aptGet(ctx context.Context, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(cmd.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = out, out
	// apt-get that is killed leaves locks and half a package; it may finish what it began.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", args[0], err)
	}
	return nil
}

// holdServers tells Debian's packages at path, the administrator's policy, to start no server
// when they are installed, until restore is called. A policy that is there stays as it is.
func holdServers(path string) (restore func() error, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString("#!/bin/sh\n# Made for the time of one apt-get install: start no server.\nexit 101\n")
	if err = errors.Join(err, file.Chmod(0o755), file.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return func() error { return os.Remove(path) }, nil
}

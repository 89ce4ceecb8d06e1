package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

const (
	ownModule   = "github.com/fencedrun/fencedrun"
	riverModule = "github.com/riverqueue/river"
)

var (
	//go:embed inject/plugins.go.txt
	pluginsFile string
	//go:embed inject/inject_test.go.txt
	injectFile string
)

// patches are what is changed in River's own files. A version in which one does not fit exactly once
// is looked at by a person.
var patches = []struct{ file, from, to string }{
	{
		"client.go", "append(riverplugin.DefaultPlugins(), config.Plugins...)",
		"append(WithExtraPlugins(riverplugin.DefaultPlugins(), config.Schema), config.Plugins...)",
	},
	{
		"rivertest/worker.go", "append(riverplugin.DefaultPlugins(), w.config.Plugins...)",
		"append(river.WithExtraPlugins(riverplugin.DefaultPlugins(), w.config.Schema), w.config.Plugins...)",
	},
}

// command runs the go command in dir, "" for this repository's, and returns what it printed.
func command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are written below
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("riversuite: go %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// prepare makes a copy of the pinned River in dir, with the seam for our plugin, and returns its version.
func prepare(ctx context.Context, dir string) (version string, err error) {
	if _, err := command(ctx, "", "mod", "download", riverModule); err != nil {
		return "", err
	}
	sources, err := command(ctx, "", "list", "-m", "-f", "{{.Dir}}", riverModule) // tests included
	if err != nil {
		return "", err
	}
	if version, err = command(ctx, "", "list", "-m", "-f", "{{.Version}}", riverModule); err != nil {
		return "", err
	}
	own, err := command(ctx, "", "list", "-m", "-f", "{{.Dir}}", ownModule)
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS(sources)); err != nil {
		return "", err
	}
	if err := inject(dir); err != nil {
		return "", err
	}
	_, err = command(ctx, dir, "mod", "edit", "-require", ownModule+"@v0.0.0", "-replace", ownModule+"="+own)
	return version, err
}

// inject changes the copy.
func inject(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	// It names River's other modules by folders that the module does not have.
	if err := root.Remove("go.work"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, p := range patches {
		text, err := root.ReadFile(p.file)
		if err != nil {
			return err
		}
		if n := strings.Count(string(text), p.from); n != 1 {
			return fmt.Errorf("riversuite: %s has %d times %q, want it once: River has changed, look where its plugins come together", p.file, n, p.from)
		}
		if err := root.WriteFile(p.file, []byte(strings.Replace(string(text), p.from, p.to, 1)), 0o600); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"fencedrun_plugins.go":               pluginsFile,
		"fencedrun_inject_test.go":           strings.ReplaceAll(injectFile, "PACKAGE", "river"),
		"rivertest/fencedrun_inject_test.go": strings.ReplaceAll(injectFile, "PACKAGE", "rivertest"),
	} {
		if err := root.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
